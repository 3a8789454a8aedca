// SPDX-License-Identifier: Apache-2.0
// Streams of random numbers: what a replica draws, and what the others draw in its place.
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_random_streams {

using namespace replicator;
using test::asynchronous;
using test::error_of;
using test::on_devices;

namespace {

template <class T>
std::vector<T> elements(const Array<T>& array) {
  return {array.begin(), array.end()};
}

// Estimates the gradient of -|w - 2|^2 from one perturbation of each replica. Only the heights travel.
Tensor<float> evolve(ReplicaContext& replica) {
  auto w = replica.variable<float>("w", {5}, Initializer::zeros());
  const auto height = [](Tensor<float> at) { return -mean((at - 2.0f) * (at - 2.0f)); };
  const auto own = height(w.read() + 0.1f * normal(replica, {5}, 0.0f, 1.0f, {.stream = 1}));
  const auto heights = all_gather(reshape(own, {1}));
  auto slope = zeros_like(w.read());
  for (int r = 0; r < replica.count(); ++r)
    slope += normal(replica, {5}, 0.0f, 1.0f, {.stream = 1, .of_replica = r}) * (slice(heights, {r}, {r + 1}) - mean(heights));
  w.assign(w.read() + slope);
  return height(w.read());
}

}  // namespace

TEST_CASE("every replica draws what replica 2 draws from the same stream, at another place of its graph and in another shape") {
  for (const int devices : {1, 2, 4}) {
    Replicator repl{on_devices(4, devices)};
    auto train = repl.replicate([](ReplicaContext& replica) {
      if (replica.id() == 2) (void)uniform(replica, {1});  // the graphs need not be alike
      const auto own = normal(replica, {6}, 0.0f, 1.0f, {.stream = 7});
      const auto other = normal(replica, {2, 3}, 0.0f, 1.0f, {.stream = 7, .of_replica = 2});
      return std::tuple{own, other, randint(replica, {4}, 0, 1000, {.stream = 7}), randint(replica, {4}, 0, 1000, {.stream = 7, .of_replica = 2}),
                        permutation(replica, 5, {.stream = 8}), permutation(replica, 5, {.stream = 8, .of_replica = 2}),
                        gumbel(replica, {3}, {.stream = 9}), gumbel(replica, {3}, {.stream = 9, .of_replica = 2})};
    });
    std::vector<float> before;
    for (int step = 0; step < 2; ++step) {
      const auto [own, other, numbers, other_numbers, order, other_order, noise, other_noise] = train.step();
      for (int r = 0; r < 4; ++r) {
        const auto at = static_cast<std::size_t>(r);
        CHECK(elements(other[at]) == elements(own[2]));
        CHECK(elements(other_numbers[at]) == elements(numbers[2]));
        CHECK(elements(other_order[at]) == elements(order[2]));
        CHECK(elements(other_noise[at]) == elements(noise[2]));
        if (r != 2) CHECK(elements(own[at]) != elements(own[2]));
      }
      CHECK(elements(own[2]) != before);
      before = elements(own[2]);
    }
  }
}

TEST_CASE("one stream gives the same numbers again, another one gives others, and a node without a stream has its own") {
  Replicator repl{on_devices(1, 1)};
  auto train = repl.replicate([](ReplicaContext& replica) {
    return std::tuple{uniform(replica, {8}, 0.0f, 1.0f, {.stream = 0}), uniform(replica, {8}, 0.0f, 1.0f, {.stream = 0}),
                      uniform(replica, {8}, 0.0f, 1.0f, {.stream = 1}), uniform(replica, {8}), uniform(replica, {8})};
  });
  const auto [a, again, b, c, d] = train.step();
  CHECK(elements(a[0]) == elements(again[0]));
  CHECK(elements(a[0]) != elements(b[0]));
  CHECK(elements(a[0]) != elements(c[0]));
  CHECK(elements(c[0]) != elements(d[0]));
}

TEST_CASE("numbers of a fixed replica are uniform: a mirrored variable may take them, and not a replica's own") {
  Replicator repl{on_devices(3, 2)};
  const auto step_of = [&](RandomOptions options) {
    return [options](ReplicaContext& replica) {
      auto w = replica.variable<float>("w", {4}, Initializer::zeros());
      w.assign(normal(replica, {4}, 0.0f, 1.0f, options));
      return w.read();
    };
  };
  auto train = repl.replicate(step_of({.stream = 3, .of_replica = 1}));
  const auto [w] = train.step();
  CHECK(elements(w[0]) == elements(w[2]));
  CHECK_THAT(error_of([&] { repl.replicate(step_of({.stream = 3})).step(); }),
             Catch::StartsWith("\"w\" is mirrored, but the value assigned at test_random_streams.cpp:"));
}

TEST_CASE("replicas that ask for different replicas' numbers do not count as uniform") {
  Replicator repl{on_devices(2, 1)};
  const auto text = error_of([&] {
    repl.replicate([](ReplicaContext& replica) {
      auto w = replica.variable<float>("w", {4}, Initializer::zeros());
      w.assign(normal(replica, {4}, 0.0f, 1.0f, {.stream = 3, .of_replica = 1 - replica.id()}));
    });
  });
  CHECK_THAT(text, Catch::StartsWith("the step functions of replicas 0 and 1 differ: random (") && Catch::Contains("the mirrored variable \"w\""));
}

TEST_CASE("an evolution strategy climbs, with the same bits on every placement") {
  std::string digest;
  for (const int devices : {1, 3, 8}) {
    Replicator repl{on_devices(8, devices)};
    auto train = repl.replicate(evolve);
    float height = -4;
    for (int step = 0; step < 60; ++step) {
      const auto [found] = train.step();
      height = found[0].data()[0];
    }
    CHECK(height > -0.2f);
    if (digest.empty()) digest = repl.digest();
    CHECK(repl.digest() == digest);
  }
}

TEST_CASE("processes draw each other's numbers without a message") {
  const auto draw = [] {
    Replicator repl{on_devices(4, 1)};
    auto train = repl.replicate([](ReplicaContext& replica) {
      auto w = replica.variable<float>("w", {6}, Initializer::zeros());
      for (int r = 0; r < replica.count(); ++r) w.assign(0.5f * w.read() + normal(replica, {6}, 0.0f, 1.0f, {.stream = 4, .of_replica = r}));
    });
    for (int step = 0; step < 3; ++step) train.step();
    return repl.digest();
  };
  const auto results = test::run_as_job(2, [&](int) { return draw(); });
  INFO(test::describe(results));
  const auto alone = draw();
  for (const auto& result : results) CHECK(result.text == alone);
}

TEST_CASE("the asynchronous regime draws the same numbers in the same step") {
  Replicator repl{asynchronous(3, 1)};
  auto train = repl.replicate([](ReplicaContext& replica) {
    return std::tuple{normal(replica, {4}, 0.0f, 1.0f, {.stream = 2}), normal(replica, {4}, 0.0f, 1.0f, {.stream = 2, .of_replica = 1})};
  });
  const auto [own, other] = train.step();
  for (std::size_t r = 0; r < 3; ++r) CHECK(elements(other[r]) == elements(own[1]));
}

TEST_CASE("a replica that does not exist, a missing stream and a stream that is too large are refused at the user's line") {
  const auto error_with = [](RandomOptions options) {
    return error_of([&] {
      Replicator repl{on_devices(2, 1)};
      repl.replicate([&](ReplicaContext& replica) { return uniform(replica, {2}, 0.0f, 1.0f, options); }).step();
    });
  };
  using Catch::Matchers::Contains, Catch::Matchers::StartsWith;
  const std::string start = "replica 0: random numbers at test_random_streams.cpp:";
  CHECK_THAT(error_with({.stream = 1, .of_replica = 2}), StartsWith(start) && Contains("those of replica 2, but there are only the replicas 0 to 1"));
  CHECK_THAT(error_with({.stream = 1, .of_replica = -1}), StartsWith(start) && Contains("those of replica -1, but"));
  CHECK_THAT(error_with({.of_replica = 1}), StartsWith(start) && Contains("without a stream") && Contains("{.stream = 1, .of_replica = 1}"));
  CHECK_THAT(error_with({.stream = std::int64_t{1} << 31}), StartsWith(start) && Contains("the stream 2147483648: streams have numbers from 0 to 2147483647"));
  CHECK_THAT(error_with({.stream = -1}), StartsWith(start) && Contains("the stream -1"));
}

}  // namespace test_random_streams
