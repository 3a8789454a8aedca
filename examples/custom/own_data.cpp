// SPDX-License-Identifier: Apache-2.0
// Trains a classifier on the rows of two NumPy files: ./own_data x.npy y.npy --replicas 4 --devices cpu:0-1
#include <cstdint>
#include <iostream>
#include <tuple>

#include <replicator/replicator.hpp>

namespace rp = replicator;

int main(int argc, char** argv) try {
  const auto deployment = rp::Deployment::from(argc, argv);  // takes the flags that it knows
  const auto& files = deployment.remaining;                  // and leaves the program's own
  if (files.size() != 2) return std::cerr << "usage: own_data X.npy Y.npy\n"
                                          << rp::Deployment::help(),
                                2;
  rp::Replicator repl{deployment};

  auto input_fn = [&](const rp::InputContext& ctx) {  // rows of float32, and a label of int64 for each
    return rp::data::zip(rp::data::npy<float>(files[0]), rp::data::npy<std::int64_t>(files[1])) |
           rp::data::shuffle() | rp::data::shard(ctx) | rp::data::batch(ctx.replica_batch(96));
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<std::int64_t> labels) {  // x [n, features], labels [n]
    auto hidden = rp::relu(rp::nn::linear(replica, x, "hidden", {.features = 32}));
    auto logits = rp::nn::linear(replica, hidden, "out", {.features = 3});
    auto loss = rp::mean(rp::softmax_cross_entropy(logits, labels));
    rp::nn::adam({.learning_rate = 0.01}).minimize(replica, loss);
    return std::tuple{loss, rp::accuracy(logits, labels)};
  };

  auto train = repl.replicate(input_fn, step_fn);
  int step = 0;
  for (auto [loss, right] : train.steps(200))
    if (++step % 50 == 0 && repl.process() == 0) std::cout << step << ": loss " << rp::mean(loss) << ", accuracy " << rp::mean(right) << '\n';
  const auto digest = repl.digest();  // on all processes
  if (repl.process() == 0) std::cout << "digest: " << digest << '\n';
  return std::cout.flush() ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
