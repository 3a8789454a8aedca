// SPDX-License-Identifier: Apache-2.0
// A function with a gradient of one's own: a network whose hidden layer is +1 or -1 (Bengio, Leonard, Courville, 2013)
// learns the parity of two bits. The program sets the learning rate: ./own_gradient --replicas 4 --devices cpu:0-1
#include <iostream>
#include <replicator/replicator.hpp>
namespace rp = replicator;

// The sign, whose derivative is 0 or does not exist. Backwards it passes gradients on where |x| <= 1.
const auto binary = rp::custom_gradient([](auto x) { return rp::select(x < 0.0f, -1.0f, rp::full(x.graph(), x.shape(), 1.0f)); },
                                        [](auto x, auto /*y*/, auto dy) { return rp::select(rp::abs(x) <= 1.0f, dy, 0.0f); });

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
    auto hidden = binary(rp::nn::linear(replica, bits, "hidden", {.features = 32}));                         // [n, 32] of +-1
    auto logits = rp::nn::linear(replica, hidden, "out", {.features = 2});                                   // [n, 2]
    auto loss = rp::mean(rp::softmax_cross_entropy(logits, parity));
    rp::nn::adam({.learning_rate = rp::nn::Rate::variable("learning_rate", 0.02)}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (auto [loss] : train.steps(60)) {
    if (train.steps_done() % 12 == 0) std::cout << "loss " << rp::mean(loss) << ", rate " << repl.get<float>("learning_rate") << '\n';
    if (train.steps_done() == 36) repl.set("learning_rate", 0.005);  // from the next step on
  }
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
