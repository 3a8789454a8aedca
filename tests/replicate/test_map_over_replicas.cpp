// SPDX-License-Identifier: Apache-2.0
// map_reduce and map_gather against closed forms, on every number of replicas and devices.
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/map_over_replicas.hpp>

#include "deployments.hpp"

namespace test_map_over_replicas {

using namespace replicator;
using namespace replicator::detail;
using T = Tensor<float>;

namespace {

auto ones(const InputContext&) {
  return data::from_generator([](std::int64_t) { return Array<float>{{}, {1}}; });
}

// Thunk i gives [i + 1, 10 (i + 1)] times x.
std::vector<std::function<T()>> counted(ReplicaContext& replica, T x, int count, int* calls = nullptr) {
  std::vector<std::function<T()>> thunks;
  for (int i = 0; i < count; ++i)
    thunks.push_back([&replica, x, i, calls] {
      if (calls) ++*calls;
      return constant<float>(replica, {{2}, {static_cast<float>(i + 1), 10.0f * static_cast<float>(i + 1)}}) * x;
    });
  return thunks;
}

}  // namespace

TEST_CASE("map_reduce and map_gather give what all thunks give, for any number of thunks, replicas and devices") {
  for (int replicas = 1; replicas <= 9; ++replicas)
    for (int devices = 1; devices <= replicas; devices += 1 + devices / 3)
      for (const int count : {1, 2, 5, 9, 20}) {
        INFO(count << " thunks, " << replicas << " replicas on " << devices << " devices");
        Replicator repl{test::on_devices(replicas, devices)};
        auto step = repl.replicate(ones, [count](ReplicaContext& replica, T x) {
          const auto thunks = counted(replica, x, count);
          return std::tuple{map_reduce(replica, thunks, Reduction::sum), map_reduce(replica, thunks, Reduction::mean),
                            map_reduce(replica, thunks, Reduction::min), map_reduce(replica, thunks, Reduction::max), map_gather(replica, thunks)};
        });
        const auto [sum, mean, least, most, all] = step.step();
        for (int r = 0; r < replicas; ++r) {
          const auto n = static_cast<float>(count);
          REQUIRE(sum[r][0] == n * (n + 1) / 2);
          REQUIRE(sum[r][1] == 5 * n * (n + 1));
          REQUIRE(mean[r][0] == (n + 1) / 2);
          REQUIRE(least[r][1] == 10);
          REQUIRE(most[r][1] == 10 * n);
          REQUIRE(all[r].shape() == Shape{count, 2});
          for (int i = 0; i < count; ++i) {
            REQUIRE(all[r][static_cast<std::size_t>(2 * i)] == static_cast<float>(i + 1));
            REQUIRE(all[r][static_cast<std::size_t>(2 * i + 1)] == 10 * static_cast<float>(i + 1));
          }
        }
      }
}

TEST_CASE("map_gather has the bits of one replica that calls all thunks") {
  const auto run = [](int replicas, int devices) {
    Replicator repl{test::on_devices(replicas, devices)};
    auto step = repl.replicate(ones, [](ReplicaContext& replica, T x) {
      std::vector<std::function<T()>> thunks;
      for (int i = 0; i < 7; ++i)
        thunks.push_back([&replica, x, i] { return exp(sin(cast<float>(iota(replica, 50)) * (0.1f + 0.3f * static_cast<float>(i)) + x)); });
      return map_gather(replica, thunks);
    });
    const auto [all] = step.step();
    return std::string(reinterpret_cast<const char*>(all[0].any().bytes().data()), all[0].any().bytes().size());
  };
  const auto alone = run(1, 1);
  for (const int replicas : {2, 3, 5, 8})
    for (const int devices : {1, 2, replicas}) CHECK(run(replicas, devices) == alone);
}

TEST_CASE("a replica calls only its own thunks, and the first where it has none") {
  const auto calls = [](int replica, int replicas, int count) {
    Graph graph{replica, replicas};
    ReplicaContext context{graph};
    int called = 0;
    map_gather(context, counted(context, full<float>(context, {}, 1), count, &called));
    return called;
  };
  CHECK(calls(0, 4, 6) == 2);
  CHECK(calls(3, 4, 6) == 1);
  CHECK(calls(3, 4, 2) == 1);
  CHECK(calls(0, 1, 6) == 6);
}

TEST_CASE("a replica may use a collective's result for the next one while others do not, on logical devices too") {
  for (const int logical : {1, 2})
    for (int teams = 1; teams <= 3; ++teams) {
      INFO(teams << " devices for each of " << logical << " logical devices");
      auto where = test::on_devices(3, teams * logical);
      where.logical_devices = logical;
      Replicator repl{where};
      auto step = repl.replicate(ones, [](ReplicaContext& replica, T x) {
        const auto last = replica.logical_device(replica.logical_devices() - 1);
        const auto own = x * static_cast<float>(replica.id() + 1);  // 1, 2, 3
        const auto six = all_reduce(own, Reduction::sum);
        return std::tuple{six, all_reduce(replica.id() == 1 ? six * own : own, Reduction::sum)};
      });
      const auto [first, second] = step.step();
      for (int r = 0; r < 3; ++r) {
        CHECK(first[r][0] == 6);
        CHECK(second[r][0] == 1 + 12 + 3);
      }
    }
}

TEST_CASE("inside groups each group maps all thunks") {
  Replicator repl{test::on_devices(4, 3)};
  auto step = repl.replicate(ones, [](ReplicaContext& replica, T x) {
    const CollectiveOptions in{.group = group_columns(4, 2)};
    const auto thunks = counted(replica, x * static_cast<float>(1 + replica.id() % 2), 3);
    return std::tuple{map_reduce(replica, thunks, Reduction::sum, in), map_gather(replica, thunks, in)};
  });
  const auto [sum, all] = step.step();
  for (int r = 0; r < 4; ++r) {
    CHECK(sum[r][0] == static_cast<float>(6 * (1 + r % 2)));
    CHECK(all[r][4] == static_cast<float>(3 * (1 + r % 2)));
  }
}

TEST_CASE("a NaN of one thunk is the minimum and the maximum of all, wherever it is") {
  for (int at = 0; at < 4; ++at) {
    Replicator repl{test::on_devices(2, 1)};
    auto step = repl.replicate(ones, [at](ReplicaContext& replica, T x) {
      std::vector<std::function<T()>> thunks;
      for (int i = 0; i < 4; ++i) thunks.push_back([x, i, at] { return log(x * (i == at ? -1.0f : 1.0f + static_cast<float>(i))); });
      return std::tuple{map_reduce(replica, thunks, Reduction::min), map_reduce(replica, thunks, Reduction::max)};
    });
    const auto [least, most] = step.step();
    CHECK(std::isnan(least[1].item()));
    CHECK(std::isnan(most[1].item()));
  }
}

TEST_CASE("mistakes in thunks name the call") {
  Graph graph{1, 2};
  ReplicaContext replica{graph};
  const auto error = [](auto f) { return test::error_of(f); };
  using Thunks = std::vector<std::function<T()>>;
  const auto of = [&](std::int64_t n) { return [&graph, n] { return full<float>(graph, {n}, 1); }; };
  CHECK_THAT(error([&] { map_gather(replica, Thunks{}); }), Catch::StartsWith("replica 1: map_gather at test_map_over_replicas.cpp:") &&
                                                                Catch::EndsWith(": found no thunks: give at least one"));
  CHECK_THAT(error([&] { map_reduce(replica, Thunks{of(1), of(1), of(2), of(3)}, Reduction::sum); }),
             Catch::EndsWith(": thunk 3 gives float32[3], thunk 2 float32[2]: all thunks must give equal shapes and dtypes"));
  const std::array integers{[&] { return full<std::int32_t>(graph, {2}, 1); }};
  CHECK_THAT(error([&] { map_reduce(replica, integers, Reduction::mean); }),
             Catch::EndsWith(": mean of int32[2] over replicas is not defined: cast to a floating type first, or take min or max"));
}

}  // namespace test_map_over_replicas
