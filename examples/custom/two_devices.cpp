// SPDX-License-Identifier: Apache-2.0
// Model parallelism: each replica is split over two logical devices. Two replicas on four devices, or everything on
// one:
//   ./two_devices --replicas 2 --logical-devices 2 --devices cpu:0-3
#include <iostream>
#include <replicator/replicator.hpp>
namespace rp = replicator;

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  auto input_fn = [](const rp::InputContext& ctx) {
    return rp::data::from_generator([n = ctx.replica_batch(32), ctx](std::int64_t position) {
      rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      rp::Array<float> x{{n, 16}};
      rp::Array<std::int32_t> y{{n}};
      for (auto& value : x) value = 2 * random.uniform() - 1;
      for (std::int64_t i = 0; i < n; ++i) y[i] = x[16 * i] > x[16 * i + 1];
      return std::tuple{x, y};
    });
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<std::int32_t> y) {  // x [n, 16], y [n]
    // While `here` lives, new nodes and variables are on that device. Gradients and updates stay with them.
    auto hidden = [&] {
      const auto here = replica.logical_device(0);
      return rp::relu(rp::nn::linear(replica, x, "below", {.features = 64}));  // [n, 64] on device 0
    }();
    auto logits = [&] {
      const auto here = replica.logical_device(replica.logical_devices() - 1);
      auto next = rp::relu(rp::nn::linear(replica, hidden, "middle", {.features = 64}));  // the copy from 0 is made for you
      return rp::nn::linear(replica, next, "above", {.features = 2});                     // [n, 2] on device 1
    }();
    auto loss = rp::mean(rp::softmax_cross_entropy(logits, y));
    rp::nn::sgd({.learning_rate = 0.2, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (auto [loss] : train.steps(20))
    if (train.steps_done() % 5 == 0) std::cout << "loss " << rp::mean(loss) << '\n';
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
