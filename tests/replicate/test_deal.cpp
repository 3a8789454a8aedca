// SPDX-License-Identifier: Apache-2.0
// Sources that cannot be split: one reader, dealt to the replicas.
#include <catch2/catch.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <replicator/replicator.hpp>

#include "../support/processes.hpp"
#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_deal {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;

namespace {

// Gives the next number to whoever asks.
auto counter(std::int64_t end) {
  return data::from_generator([n = std::int64_t{0}, end]() mutable -> std::optional<Array<std::int64_t>> {
    if (n == end) return std::nullopt;
    return Array<std::int64_t>{{}, {n++}};
  });
}

}  // namespace

TEST_CASE("element i goes to hand i % n, whoever asks first") {
  auto hands = data::deal(counter(11), 3);
  std::vector<std::int64_t> last, first;
  while (const auto element = hands[2].next()) last.push_back(element->item());
  CHECK(hands[2].position() == 3);
  while (const auto element = hands[0].next()) first.push_back(element->item());
  CHECK(last == std::vector<std::int64_t>{2, 5, 8});
  CHECK(first == std::vector<std::int64_t>{0, 3, 6, 9});
  CHECK_FALSE(hands[0].next());
  CHECK(error_of([] { data::deal(counter(1), 0); }) == "deal(0): there must be at least one hand to deal to");
}

TEST_CASE("hands asked by threads of their own get the same elements") {
  auto hands = data::deal(counter(4000), 4);
  std::vector<std::vector<std::int64_t>> found(4);
  std::vector<std::thread> threads;
  for (std::size_t h = 0; h < 4; ++h)
    threads.emplace_back([&, h] {
      while (const auto element = hands[h].next()) found[h].push_back(element->item());
    });
  for (auto& thread : threads) thread.join();
  for (std::size_t h = 0; h < 4; ++h) {
    REQUIRE(found[h].size() == 1000);
    for (std::size_t i = 0; i < 1000; ++i) REQUIRE(found[h][i] == static_cast<std::int64_t>(4 * i + h));
  }
}

TEST_CASE("an exception of the reader takes the place of one element of one hand") {
  auto hands = data::deal(data::from_generator([](std::int64_t i) {
                            if (i == 3) throw DataError{"element three"};
                            return Array<std::int64_t>{{}, {i}};
                          }),
                          2);
  CHECK(hands[0].next()->item() == 0);
  CHECK(hands[1].next()->item() == 1);
  CHECK(hands[0].next()->item() == 2);
  CHECK(hands[0].next()->item() == 4);
  CHECK_THROWS_AS(hands[1].next(), DataError);
  CHECK(hands[1].next()->item() == 5);
}

TEST_CASE("an input function for the host is called once and dealt, with the same bits on any devices") {
  const auto run = [](int devices) {
    Replicator repl{on_devices(4, devices)};
    int calls = 0;
    auto step = repl.replicate(
        [&](const HostContext& host) {
          ++calls;
          CHECK(host.local_replicas() == 4);
          CHECK((host.replicas() == 4 && host.first_replica() == 0 && host.process() == 0 && host.processes() == 1));
          CHECK(host.seed() == 17);
          return counter(4 * 2 * 5 + 6) | data::batch(host.replica_batch(8));
        },
        [](ReplicaContext& replica, Tensor<std::int64_t> x) {
          auto w = replica.variable<float>("w", {2}, Initializer::zeros());
          w.assign(w.read() * 1.1f + all_reduce(cast<float>(x) / 3.0f, Reduction::sum));
          return x;
        });
    std::vector<std::int64_t> second;
    for (auto [x] : step.steps(100)) {
      second.clear();
      for (int r = 0; r < 4; ++r) second.insert(second.end(), x[r].begin(), x[r].end());
    }
    CHECK(calls == 1);
    CHECK(step.steps_done() == 5);  // three batches were left over for four replicas
    CHECK(second == std::vector<std::int64_t>{32, 33, 34, 35, 36, 37, 38, 39});
    return repl.digest();
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("hands can be taken through stages of their own") {
  Replicator repl{on_devices(2, 2)};
  auto hands = data::deal(counter(100), repl.replicas());
  auto step = repl.replicate(
      [&](const InputContext& ctx) { return std::move(hands[static_cast<std::size_t>(ctx.replica())]) | data::batch(2) | data::prefetch(2); },
      [](ReplicaContext&, Tensor<std::int64_t> x) { return x; });
  step.step();
  const auto [x] = step.step();
  CHECK((x[0][0] == 4 && x[0][1] == 6 && x[1][0] == 5 && x[1][1] == 7));
}

TEST_CASE("every host has a reader of its own") {
  const auto results = test::run_as_job(2, [&](int) {
    Replicator repl{on_devices(3, 1)};
    auto step = repl.replicate([](const HostContext& host) { return counter(10 * host.local_replicas()); },
                               [](ReplicaContext&, Tensor<std::int64_t> x) { return x; });
    step.step();
    const auto [x] = step.step();
    return std::to_string(x[0].item()) + " " + std::to_string(x[1].item()) + " " + std::to_string(x[2].item());
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "2 3 1");  // two replicas on the first host, one on the second
}

}  // namespace test_deal
