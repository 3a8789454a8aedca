// SPDX-License-Identifier: Apache-2.0
// User-defined data sources. A table of numbered items can be shuffled, sharded, repeated and resumed. A generator can
// be endless: ./data_source --replicas 4 --devices cpu:0-1
#include <cmath>
#include <iostream>
#include <replicator/replicator.hpp>
namespace rp = replicator;

// Two spirals, point by point. A table knows its number of items and creates each of them on demand, from any thread.
class Spirals {
 public:
  std::int64_t size() const { return 512; }
  std::tuple<rp::Array<float>, rp::Array<std::int32_t>> operator[](std::int64_t item) const {
    const int arm = static_cast<int>(item % 2);
    const float turn = 3 * std::sqrt(static_cast<float>(item / 2) / 256.0f), sign = arm == 0 ? 1.0f : -1.0f;
    return {rp::Array<float>{{2}, {sign * turn * std::cos(turn), sign * turn * std::sin(turn)}}, rp::Array<std::int32_t>{{}, {arm}}};
  }
};

// [n, 2] -> [n, 2]
rp::Tensor<float> network(rp::ReplicaContext& replica, rp::Tensor<float> points) {
  auto hidden = rp::tanh(rp::nn::linear(replica, points, "below", {.features = 32}));
  return rp::nn::linear(replica, rp::tanh(rp::nn::linear(replica, hidden, "middle", {.features = 32})), "above", {.features = 2});
}

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  const rp::data::TableSource<Spirals> spirals{Spirals{}};  // copies share it
  auto numbered = [&](const rp::InputContext& ctx) {
    return rp::data::TableSource<Spirals>{spirals} | rp::data::shuffle() | rp::data::shard(ctx) | rp::data::batch(ctx.replica_batch(64)) |
           rp::data::prefetch(1);
  };
  auto train = repl.replicate(numbered, [](rp::ReplicaContext& replica, rp::Tensor<float> points, rp::Tensor<std::int32_t> arms) {  // [n, 2], [n]
    auto logits = network(replica, points);
    auto loss = rp::mean(rp::softmax_cross_entropy(logits, arms));
    rp::nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  });
  for (auto [loss] : train.steps(80))
    if (train.steps_done() % 16 == 0) std::cout << "loss " << rp::mean(loss) << '\n';

  // A function of the position can seek, so a resumed run continues where it stopped. std::nullopt ends the input.
  auto generated = [](const rp::InputContext& ctx) {
    return rp::data::from_generator([ctx](std::int64_t position) -> std::optional<rp::Array<float>> {
      if (position == 3) return std::nullopt;
      rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      rp::Array<float> points{{16, 2}};
      for (auto& value : points) value = 6 * random.uniform() - 3;
      return points;
    });
  };
  auto look = repl.replicate(generated, [](rp::ReplicaContext& replica, rp::Tensor<float> points) {  // [16, 2]
    return rp::mean(rp::cast<float>(rp::argmax(network(replica, points), 1)));
  });
  while (!look.finished()) std::cout << "second arm: " << rp::mean(std::get<0>(look.step())) << " of random points\n";
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
