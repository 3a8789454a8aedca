// SPDX-License-Identifier: Apache-2.0
// A mean over a validation set counts every element once, with any number of replicas and any batch size.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <tuple>

#include <replicator/replicator.hpp>

#include "deployments.hpp"

namespace test_evaluation {

using namespace replicator;
using namespace replicator::detail;
using test::on_devices;

namespace {

// Pictures of one pixel, which a "network" recognises where pixel and label are equal.
struct Pictures {
  std::int64_t count;
  std::uint64_t seed;
  std::int32_t pixel(std::int64_t i) const { return static_cast<std::int32_t>((static_cast<std::uint64_t>(i) * 2654435761u + seed) >> 7 & 3); }
  std::int32_t label(std::int64_t i) const { return static_cast<std::int32_t>(i & 3); }
  std::int64_t size() const { return count; }
  std::tuple<Array<std::int32_t>, Array<std::int32_t>> operator[](std::int64_t i) const {
    return {Array<std::int32_t>{{}, {pixel(i)}}, Array<std::int32_t>{{}, {label(i)}}};
  }
};

}  // namespace

TEST_CASE("the accuracy over N pictures is the plain count, for any number of replicas, devices and any batch") {
  REQUIRE(rc::check([] {
    const auto n = *rc::gen::inRange<std::int64_t>(1, 60);
    const auto replicas = *rc::gen::inRange(1, 6);
    const auto devices = *rc::gen::inRange(1, replicas + 1);
    const auto batch = *rc::gen::inRange<std::int64_t>(1, 9);
    const data::TableSource<Pictures> pictures{{n, *rc::gen::inRange<std::uint64_t>(0, 1000)}};
    Replicator repl{on_devices(replicas, devices)};
    auto step = repl.replicate(
        [&](const InputContext& ctx) {
          return data::TableSource{pictures} | data::shard(ctx) | data::epochs(1) | data::batch(batch, {.last = data::Last::pad});
        },
        [](ReplicaContext&, Tensor<std::int32_t> x, Tensor<std::int32_t> y, Tensor<float> weights) {
          return std::tuple{sum(cast<float>(x == y) * weights), sum(weights)};
        });
    double right = 0, all = 0;
    while (!step.finished()) {
      const auto [hits, count] = step.step();
      for (const auto& one : hits) right += static_cast<double>(one.item());
      for (const auto& one : count) all += static_cast<double>(one.item());
    }
    std::int64_t expected = 0;
    for (std::int64_t i = 0; i < n; ++i) expected += pictures.table()->pixel(i) == pictures.table()->label(i);
    RC_ASSERT(all == static_cast<double>(n));
    RC_ASSERT(right == static_cast<double>(expected));
  }));
}

}  // namespace test_evaluation
