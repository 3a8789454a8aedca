// SPDX-License-Identifier: Apache-2.0
// Regression, tanh(y) = tanh(x w): ./hello --replicas 8 --devices cpu:0-1 (any devices, any number of processes: the same digest)
#include <iostream>
#include <replicator/replicator.hpp>
#include "support/points.hpp"  // ready-made data, in examples/
namespace rp = replicator;

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  auto input_fn = [](const rp::InputContext& ctx) { return example::points(ctx, 64); };       // 64 points in all
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<float> y) {  // of ONE replica, n points
    auto w = replica.variable<float>("w", {2, 1}, rp::Initializer::zeros());
    auto loss = rp::mean(rp::map([](auto a, auto b) { return pow(tanh(a) - tanh(b), 2); }, rp::matmul(x, w.read()), y));
    rp::nn::sgd({.learning_rate = 0.5, .momentum = 0.5}).minimize(replica, loss);  // leaves a placeholder: all_reduce
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (auto [loss] : train.steps(20)) std::cout << "loss " << rp::mean(loss) << '\n';
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
