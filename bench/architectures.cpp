// SPDX-License-Identifier: Apache-2.0
// Times a training step of a common network: forward, backward, SGD with momentum. bench/compare_architectures runs each beside PyTorch.
//   architectures NAME [--seconds 2] [--turns yes] and the flags of a deployment
// Prints the median microseconds of a step, and the most memory that steps took. --turns is described in turns.hpp.
//   architectures NAME --gradients FILE.safetensors [--dtype float32] [--seed 0] and the flags of a deployment
// Writes the loss and the gradients of a first step. Weights and batch are hashed numbers. The names are in architectures/catalog.hpp.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <replicator/replicator.hpp>

#include "architectures/catalog.hpp"
#include "turns.hpp"
namespace rp = replicator;

namespace {

struct Options {
  std::string name, gradients, dtype = "float32";
  double seconds = 2;
  std::uint32_t seed = 0;
  bool turns = false;
};

Options parse(const std::vector<std::string>& words) {
  if (words.empty() || !architectures::catalog().contains(words[0]))
    throw rp::BuildError{"usage: architectures NAME [--seconds 2] [--turns yes] [--gradients FILE] [--dtype float32] [--seed 0]; the names are in architectures/catalog.hpp"};
  Options o;
  o.name = words[0];
  for (std::size_t i = 1; i + 1 < words.size(); i += 2)
    if (words[i] == "--seconds") o.seconds = std::atof(words[i + 1].c_str());
    else if (words[i] == "--turns") o.turns = true;
    else if (words[i] == "--gradients") o.gradients = words[i + 1];
    else if (words[i] == "--dtype" && (words[i + 1] == "float32" || words[i + 1] == "float64")) o.dtype = words[i + 1];
    else if (words[i] == "--seed") o.seed = static_cast<std::uint32_t>(std::atoi(words[i + 1].c_str()));
    else throw rp::BuildError{"architectures knows no flag " + words[i] + " " + words[i + 1]};
  return o;
}

template <rp::FloatingElement T>
void write_gradients(const Options& o, const rp::Deployment& deployment) {
  auto found = architectures::gradients<T>(architectures::catalog().at(o.name), deployment, o.seed);
  found.of.emplace("loss", rp::Array<double>{{}, {found.loss}}.any());
  rp::io::write_safetensors(o.gradients, found.of);
}

void time_steps(const Options& o, const rp::Deployment& deployment) {
  rp::Replicator repl{deployment};
  const double before = bench::peak_mib();
  auto train = std::visit(
      [&](const auto& model) {
        auto input_fn = [&](const rp::InputContext&) {
          auto [numbers, labels] = architectures::batch<float>(model.numbers(), model.labels(), model.classes);
          // Lends the arrays: returning them would copy them once more in each step.
          return rp::data::from_generator([numbers = std::move(numbers), labels = std::move(labels)]() mutable {
            return std::tuple{rp::Array<float>::borrow(numbers.shape(), numbers.data()), rp::Array<std::int32_t>::borrow(labels.shape(), labels.data())};
          });
        };
        return repl.replicate(input_fn, [&](rp::ReplicaContext& replica, rp::Tensor<float> numbers, rp::Tensor<std::int32_t> labels) {
          const auto loss = model.loss(replica, numbers, labels);
          rp::nn::sgd({.learning_rate = 1e-4, .momentum = 0.9}).minimize(replica, loss);
          return loss;
        });
      },
      architectures::catalog().at(o.name));
  train.step();
  bench::take_turns(o.turns, [&] { bench::time_steps(o.seconds, before, [&] { train.step(); }); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto deployment = rp::Deployment::from(argc, argv);
    const Options o = parse(deployment.remaining);
    if (o.gradients.empty()) time_steps(o, deployment);
    else if (o.dtype == "float64") write_gradients<double>(o, deployment);
    else write_gradients<float>(o, deployment);
  } catch (const rp::Error& error) {
    std::fprintf(stderr, "architectures: %s\n", error.what());
    return 1;
  }
}
