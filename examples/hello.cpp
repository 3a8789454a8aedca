// SPDX-License-Identifier: Apache-2.0
// Regression, y = tanh(x w): ./hello --replicas 8 --devices cpu:0-1. Any devices and any number of processes give the same digest.
#include <cmath>
#include <iostream>
#include <replicator/replicator.hpp>
namespace rp = replicator;

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};

  auto input_fn = [](const rp::InputContext& ctx) {  // examples for ONE replica; each step takes 64 over all of them
    return rp::data::from_generator([n = ctx.replica_batch(64), ctx](std::int64_t position) {
      rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      rp::Array<float> x{{n, 2}}, y{{n, 1}};
      for (auto& value : x) value = 2 * random.uniform() - 1;
      for (std::int64_t i = 0; i < n; ++i) y[i] = 0.75f * x[2 * i] - 0.5f * x[2 * i + 1];
      return std::tuple{x, y};
    });
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<float> y) {  // x [n, 2], y [n, 1]
    auto w = replica.variable<float>("w", {2, 1}, rp::Initializer::zeros());
    auto loss = rp::mean(rp::map([](auto a, auto b) { return pow(tanh(a) - tanh(b), 2); }, rp::matmul(x, w.read()), y));
    rp::nn::sgd({.learning_rate = 0.5, .momentum = 0.5}).minimize(replica, loss);  // leaves an all-reduce of the gradient
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (auto [loss] : train.steps(20)) std::cout << "loss " << rp::mean(loss) << '\n';
  std::cout << "digest: " << repl.digest() << '\n';
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
