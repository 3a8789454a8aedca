// SPDX-License-Identifier: Apache-2.0
// A user-defined optimizer: Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023). A small network
// learns the parity of two bits with it: ./own_optimizer --replicas 4 --devices cpu:0-1
#include <iostream>
#include <replicator/replicator.hpp>
namespace rp = replicator;

// An optimizer knows one replica: it assigns variables from their gradients. wrap_optimizer adds the sum over the
// replicas.
//   u = sign(beta1 m + (1 - beta1) g);   p -= rate (u + decay p);   m = beta2 m + (1 - beta2) g
struct Lion {
  float rate = 0.01f, beta1 = 0.9f, beta2 = 0.99f, decay = 0;

  template <rp::FloatingElement T>
  void apply_gradients(rp::ReplicaContext& replica, const std::vector<rp::Variable<T>>& variables, const std::vector<rp::Tensor<T>>& gradients,
                       std::source_location where = std::source_location::current()) const {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const auto& p = variables[i];
      // State is a variable like any other: in checkpoints, the same on all replicas, and not to be trained itself.
      const auto m = replica.variable<T>(p.name() + "/lion", p.shape(), rp::Initializer::zeros(), {.trainable = false}, where);
      const auto g = gradients[i];
      const auto moved = [*this](auto p, auto m, auto g) { return p - rate * (sign(beta1 * m + (1 - beta1) * g) + decay * p); };
      p.assign(rp::map(moved, p.read(where), m.read(where), g), where);
      m.assign(rp::map([*this](auto m, auto g) { return beta2 * m + (1 - beta2) * g; }, m.read(where), g), where);
    }
  }
};
static_assert(rp::nn::AppliesGradients<Lion, float>);

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  auto input_fn = [](const rp::InputContext& ctx) {
    return rp::data::from_generator([n = ctx.replica_batch(32), ctx](std::int64_t position) {
      rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      rp::Array<float> bits{{n, 2}};
      rp::Array<std::int32_t> parity{{n}};
      for (auto& bit : bits) bit = static_cast<float>(random.below(2));
      for (std::int64_t i = 0; i < n; ++i) parity[i] = bits[2 * i] != bits[2 * i + 1];
      return std::tuple{bits, parity};
    });
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> bits, rp::Tensor<std::int32_t> parity) {  // [n, 2], [n]
    auto hidden = rp::tanh(rp::nn::linear(replica, bits, "hidden", {.features = 16}));                       // [n, 16]
    auto logits = rp::nn::linear(replica, hidden, "out", {.features = 2});                                   // [n, 2]
    auto loss = rp::mean(rp::softmax_cross_entropy(logits, parity));
    rp::nn::wrap_optimizer(Lion{.rate = 0.02f}).minimize(replica, loss);  // the mean of the gradients over all replicas, then Lion
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (auto [loss] : train.steps(40))
    if (train.steps_done() % 8 == 0) std::cout << "loss " << rp::mean(loss) << '\n';
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
