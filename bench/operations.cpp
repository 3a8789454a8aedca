// SPDX-License-Identifier: Apache-2.0
// Times one operation of common models, forward and backward, as a step on one device.
//   operations NAME [--seconds 0.5] [--turns yes] and the flags of a deployment
// Prints the median microseconds of a step, and the most memory that steps took beyond the inputs. --turns is described in
// turns.hpp. bench/compare_operations runs every operation beside PyTorch.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <replicator/replicator.hpp>

#include "turns.hpp"
namespace rp = replicator;

namespace {

using Tensor = rp::Tensor<float>;
using Tensors = std::vector<Tensor>;

struct Benchmark {
  std::vector<rp::Shape> inputs;
  std::function<Tensor(const Tensors&)> compute;
  std::function<Tensor(rp::ReplicaContext&, const Tensors&)> layer = {};  // instead, with variables of its own
  bool draws = false;                                                     // random numbers, so gradients differ between replicas
};

// h = tanh(x[t] + h) for all t: every slice is used once.
Tensor slices(const Tensors& in) {
  const auto rows = rp::unbind(in[0]);
  Tensor h = rp::tanh(rows[0]);
  for (std::size_t t = 1; t < rows.size(); ++t) h = rp::tanh(rows[t] + h);
  return h;
}
Benchmark depthwise(std::int64_t window) {
  return {{{8, 96, 32, 32}, {96, 1, window, window}},
          [window](const Tensors& in) { return rp::convolution(in[0], in[1], {.padding = {window / 2, window / 2}, .groups = 96}); }};
}
Benchmark layer_norm(std::int64_t rows, std::int64_t columns) {
  return {{{rows, columns}, {columns}, {columns}}, [](const Tensors& in) {
            const auto by = rp::moments(in[0], rp::Axes{1}.kept());
            const auto scale = rp::map([](auto variance) { return 1 / sqrt(variance + 1e-5); }, by.variance);  // as rp::nn::layer_norm
            return rp::map([](auto x, auto m, auto s, auto g, auto b) { return (x - m) * s * g + b; }, in[0], by.mean, scale, in[1], in[2]);
          }};
}
Benchmark softmax(std::int64_t rows, std::int64_t columns) {
  return {{{rows, columns}}, [](const Tensors& in) { return rp::softmax(in[0]); }};
}
Benchmark attention(const rp::Shape& shape, bool causal, double dropout = 0) {
  return {{shape, shape, shape}, [=](const Tensors& in) { return rp::attention(in[0], in[1], in[2], {.causal = causal, .dropout = dropout}); }, {}, dropout > 0};
}
// [2, 4, 1024, 64]; seen(i) is element i of the mask.
Benchmark masked_attention(const rp::Shape& mask, bool (*seen)(std::int64_t i)) {
  const rp::Shape shape{2, 4, 1024, 64};
  return {{shape, shape, shape}, [=](const Tensors& in) {
            rp::Array<bool> values{mask};
            for (std::int64_t i = 0; i < values.size(); ++i) values[i] = seen(i);
            return rp::attention(in[0], in[1], in[2], {.mask = rp::constant(in[0].graph(), values)});
          }};
}
// The second half of the second sequence is padding.
bool is_no_padding(std::int64_t i) { return i < 1024 + 512; }
// A query sees itself and the 255 places before it.
bool is_in_window(std::int64_t i) { return i % 1024 <= i / 1024 && i % 1024 > i / 1024 - 256; }
// Four heads of queries share a head of keys and values.
Benchmark grouped_attention() {
  return {{{2, 2, 4, 1024, 64}, {2, 2, 1, 1024, 64}, {2, 2, 1, 1024, 64}}, [](const Tensors& in) { return rp::attention(in[0], in[1], in[2], {.causal = true}); }};
}

Benchmark gru(std::int64_t places) {
  return {{{places, 16, 128}}, {}, [](rp::ReplicaContext& replica, const Tensors& in) { return rp::nn::gru(replica, in[0], "gru", {.features = 256}).outputs; }};
}

const std::map<std::string, Benchmark>& benchmarks() {
  static const std::map<std::string, Benchmark> all{
      {"slices_64", {{{64, 16, 768}}, slices}},
      {"slices_256", {{{256, 16, 768}}, slices}},
      {"gru_64", gru(64)},
      {"gru_256", gru(256)},
      {"depthwise_7x7", depthwise(7)},
      {"depthwise_5x5", depthwise(5)},
      {"depthwise_3x3", depthwise(3)},
      {"layer_norm_192", layer_norm(2056, 192)},
      {"layer_norm_96", layer_norm(8192, 96)},
      {"softmax_257", softmax(6168, 257)},
      {"softmax_4096", softmax(1024, 4096)},
      {"attention_257", attention({8, 3, 257, 64}, false)},
      {"attention_257_causal", attention({8, 3, 257, 64}, true)},
      {"attention_1024_causal", attention({2, 4, 1024, 64}, true)},
      {"attention_1024_dropout", attention({2, 4, 1024, 64}, true, 0.1)},
      {"attention_1024_padded", masked_attention({2, 1, 1, 1024}, is_no_padding)},
      {"attention_1024_window", masked_attention({1024, 1024}, is_in_window)},
      {"attention_1024_groups", grouped_attention()},
      {"silu", {{{3145728}}, [](const Tensors& in) { return rp::silu(in[0]); }}},
      {"gelu_tanh", {{{3145728}}, [](const Tensors& in) { return rp::gelu(in[0]); }}},
      {"permute", {{{8, 96, 64, 64}}, [](const Tensors& in) { return rp::transpose(in[0], {0, 2, 3, 1}); }}}};
  return all;
}

void run(int argc, char** argv) {
  const auto deployment = rp::Deployment::from(argc, argv);
  const auto& words = deployment.remaining;
  if (words.empty() || !benchmarks().contains(words[0])) throw rp::BuildError{"usage: operations NAME [--seconds 0.5] [--turns yes]; the names are in operations.cpp"};
  const Benchmark& benchmark = benchmarks().at(words[0]);
  double seconds = 0.5;
  bool turns = false;
  for (std::size_t i = 1; i + 1 < words.size(); i += 2)
    if (words[i] == "--seconds") seconds = std::atof(words[i + 1].c_str());
    else turns |= words[i] == "--turns";
  rp::Replicator repl{deployment};
  auto nothing = [](const rp::InputContext&) { return rp::data::from_generator([] { return rp::Array<float>{{1}}; }); };
  // Inputs, upstream gradient and gradients are variables, so a step copies nothing in or out.
  auto step_fn = [&](rp::ReplicaContext& replica, Tensor) {
    const auto made = [&](const std::string& name, const rp::Shape& shape, rp::VariableKind kind = rp::VariableKind::mirrored) {
      return replica.variable<float>(name, shape, rp::Initializer::normal(0, 1), {.kind = kind});
    };
    Tensors inputs;
    for (std::size_t i = 0; i < benchmark.inputs.size(); ++i) inputs.push_back(made("x" + std::to_string(i), benchmark.inputs[i]).read());
    const Tensor y = benchmark.layer ? benchmark.layer(replica, inputs) : benchmark.compute(inputs);
    const auto variables = replica.trainable_variables<float>();
    const auto gradients = rp::nn::variable_gradients(rp::sum(y * made("upstream", y.shape()).read()), variables);
    const auto kind = benchmark.draws ? rp::VariableKind::replica_local : rp::VariableKind::mirrored;
    for (std::size_t i = 0; i < variables.size(); ++i) made("gradient of " + variables[i].name(), variables[i].shape(), kind).assign(gradients[i]);
  };
  auto train = repl.replicate(nothing, step_fn);
  const double before = bench::peak_mib();
  bench::take_turns(turns, [&] {
    train.step();
    bench::time_steps(seconds, before, [&] { train.step(); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const rp::Error& error) {
    std::fprintf(stderr, "operations: %s\n", error.what());
    return 1;
  }
}
