// SPDX-License-Identifier: Apache-2.0
// Local SGD (Stich, 2019): each replica trains weights of its own, which become their mean after every eight steps.
//   ./local_sgd --replicas 4 --devices cpu:0-1
#include <iostream>
#include <replicator/replicator.hpp>
#include "../support/points.hpp"
namespace rp = replicator;

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  auto network = [](rp::ReplicaContext& replica, rp::Tensor<float> x) {  // [n, 2]
    const auto own = replica.local_variables();                          // while it lives, declared variables are replica-local
    return rp::nn::linear(replica, x, "out", {.features = 1});           // [n, 1]
  };
  auto input_fn = [](const rp::InputContext& ctx) { return example::points(ctx, 64); };
  auto local_step = [&](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<float> y) {
    auto loss = rp::mean(rp::pow(rp::tanh(network(replica, x)) - rp::tanh(y), 2));
    rp::nn::local(rp::nn::sgd({.learning_rate = 0.5})).minimize(replica, loss);  // no communication
    return loss;
  };
  auto mean_step = [&](rp::ReplicaContext& replica) {
    network(replica, rp::full(replica, {1, 2}, 0.0f));  // declares the variables
    rp::nn::average_over_replicas(replica);             // one all_reduce for each
  };
  auto train = repl.replicate(input_fn, local_step);
  auto average = repl.replicate(mean_step);
  for (auto [loss] : train.steps(40)) {
    if (train.steps_done() % 8 != 0) continue;
    average.step();
    if (repl.process() == 0) std::cout << "losses before the mean: " << loss << '\n';
  }
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
