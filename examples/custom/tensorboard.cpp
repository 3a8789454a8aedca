// SPDX-License-Identifier: Apache-2.0
// Writes curves, pictures and histograms of your own training loop for TensorBoard, on any number of processes:
//   ./tensorboard --replicas 2 && tensorboard --logdir runs
#include <algorithm>
#include <iostream>
#include <optional>
#include <replicator/io/tensorboard.hpp>
#include <replicator/replicator.hpp>
namespace rp = replicator;

int main(int argc, char** argv) try {
  auto deployment = rp::Deployment::from(argc, argv);
  const std::string folder = deployment.remaining.empty() ? "runs/a" : deployment.remaining[0];
  rp::Replicator repl{std::move(deployment)};
  auto input_fn = [](const rp::InputContext& ctx) {
    return rp::data::from_generator([n = ctx.replica_batch(32), ctx](std::int64_t position) {
      rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      rp::Array<float> x{{n, 64}}, y{{n, 1}};
      for (auto& value : x) value = random.uniform();
      for (std::int64_t i = 0; i < n; ++i) y[i] = x[64 * i + 9];
      return std::tuple{x, y};
    });
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<float> y) {  // x [n, 64], y [n, 1]
    auto loss = rp::mean(rp::map([](auto a, auto b) { return pow(a - b, 2); }, rp::nn::linear(replica, x, "fc", {.features = 1}), y));
    rp::nn::sgd({.learning_rate = 0.02}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);

  std::optional<rp::io::TensorBoardWriter> board;  // of process 0: the others have none
  if (repl.process() == 0) board.emplace(folder);  // tensorboard --logdir runs
  for (auto [loss] : train.steps(20)) {
    const auto step = static_cast<std::int64_t>(train.steps_done());
    if (board) {
      const auto weights = repl.value("fc.weight").as<float>();
      rp::Array<std::uint8_t> pixels{{8, 8}};  // or [height, width, 3]
      for (std::int64_t i = 0; i < 64; ++i) pixels[i] = static_cast<std::uint8_t>(255 * std::clamp(weights[i], 0.0f, 1.0f));
      board->scalar("loss/train", step, rp::mean(loss));
      board->image("fc.weight", step, pixels);
      board->histogram("fc.weight", step, weights);
    }
  }
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
