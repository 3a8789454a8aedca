// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstring>
#include <source_location>
#include <string>

#include <replicator/data/generator.hpp>
#include <replicator/nn/embedding.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

#include "deployments.hpp"

namespace test_embedding {

using namespace replicator;
using namespace replicator::detail;
using Catch::Matchers::Contains;

namespace {

// Three indices per replica and step; from step `bad` on, one of replica 1 is 9.
auto indices_until(std::int64_t bad) {
  return [bad](const InputContext& ctx) {
    return data::from_generator([bad, replica = ctx.replica()](std::int64_t position) {
      const std::int32_t second = position >= bad && replica == 1 ? 9 : 2;
      return Array<std::int32_t>{{3}, {replica, second, 0}};
    });
  };
}

Tensor<float> embed(ReplicaContext& replica, Tensor<std::int32_t> indices) {
  return nn::embedding(replica, indices, "words",
                       {.entries = 5, .features = 4, .initializer = Initializer::uniform(-1, 1)});
}

std::string digest_after_training(int devices) {
  Replicator repl{test::on_devices(4, devices)};
  auto train = repl.replicate(indices_until(100), [](ReplicaContext& replica, Tensor<std::int32_t> indices) {
    const auto rows = embed(replica, indices);
    const auto loss = mean(rows * rows);
    nn::sgd({.learning_rate = 0.1f}).minimize(replica, loss);
    return loss;
  });
  for (auto [loss] : train.steps(5)) (void)loss;
  return repl.digest();
}

}  // namespace

TEST_CASE("an embedding is the rows of its table") {
  Replicator repl{test::on_devices(2, 1)};
  auto train = repl.replicate(indices_until(100), [](ReplicaContext& replica, Tensor<std::int32_t> indices) {
    return embed(replica, indices);
  });
  const auto [rows] = train.step();
  const auto weight = repl.value("words.weight").as<float>();
  for (int replica = 0; replica < 2; ++replica) {
    REQUIRE(rows[replica].shape() == Shape{3, 4});
    const std::int64_t expected[] = {replica, 2, 0};
    for (std::int64_t i = 0; i < 12; ++i)
      CHECK(rows[replica][i] == weight[static_cast<std::size_t>(4 * expected[i / 4] + i % 4)]);
  }
}

TEST_CASE("an embedding trains to the same bits on any number of devices, and rows that nobody asks for stay") {
  CHECK(digest_after_training(1) == digest_after_training(2));
  CHECK(digest_after_training(1) == digest_after_training(3));
  Graph graph;
  ReplicaContext replica{graph};
  const auto indices = Tensor<std::int32_t>{graph.tensor(graph.add({Input{}, {}, {{DType::int32, Shape{3}}}, {}, {}}))};
  const auto loss = sum(embed(replica, indices));
  CHECK(gradient(loss, replica.trainable_variables<float>()[0].read()).shape() == Shape{5, 4});
}

TEST_CASE("an index outside ends the step with the replica, the line and the index, and changes nothing") {
  for (const int devices : {1, 2}) {
    Replicator repl{test::on_devices(2, devices)};
    std::string line;
    auto train = repl.replicate(indices_until(2), [&](ReplicaContext& replica, Tensor<std::int32_t> indices) {
      const auto here = std::source_location::current();
      line = Location{here}.text();
      const auto rows = nn::embedding(replica, indices, "words", {.entries = 5, .features = 4}, here);
      const auto loss = mean(rows * rows);
      nn::sgd({.learning_rate = 0.1f}).minimize(replica, loss);
      return loss;
    });
    for (auto [loss] : train.steps(2)) (void)loss;
    const AnyArray before = repl.value("words.weight");
    const auto message = test::error_of([&] { (void)train.step(); });
    CHECK(message == "replica 1: embedding \"words\" at " + line +
                         ": the index 9 at [1] of the indices int32[3] lies outside of axis 0 of float32[5, 4]: "
                         "indices count from 0 and must be below 5");
    CHECK(std::memcmp(before.data(), repl.value("words.weight").data(), before.size_bytes()) == 0);
    CHECK(test::error_of([&] { (void)train.step(); }) == message);
  }
}

TEST_CASE("an embedding without entries or features is refused") {
  Graph graph{1, 2};
  ReplicaContext replica{graph};
  const auto indices = Tensor<std::int32_t>{graph.tensor(graph.add({Input{}, {}, {{DType::int32, Shape{3}}}, {}, {}}))};
  CHECK_THROWS_WITH(nn::embedding(replica, indices, "words", {.features = 4}),
                    Contains("replica 1: embedding \"words\" at test_embedding.cpp:") &&
                        Contains("entries and features must be at least 1, found 0 and 4"));
}

}  // namespace test_embedding
