// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/async/async_results.hpp>

namespace test_async_results {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("small results of a group's replicas are packed and unpacked in order, large ones stay where they are") {
  const TensorType small{DType::float32, {2}}, scalar{DType::int64, {}}, empty{DType::float32, {0}}, largest{DType::uint8, {4096}}, large{DType::uint8, {4097}};
  const AsyncResults results{{small, large, empty, scalar, largest}, 2};
  CHECK(results.size() == 5);
  CHECK_FALSE(results.travels(1));
  CHECK(results.bytes() == 2 * (8 + 0 + 8 + 4096));
  AsyncResults::Values values(5);
  for (int replica = 0; replica < 2; ++replica) {
    values[0].push_back(Array<float>{{2}, {1.0f + static_cast<float>(replica), 7}}.any());
    values[1].emplace_back(large);
    values[2].emplace_back(empty);
    values[3].push_back(Array<std::int64_t>{{}, {10 + replica}}.any());
    values[4].emplace_back(largest);
  }
  const auto packed = results.pack(values);
  CHECK(packed.size() == results.bytes());
  const auto there = results.unpack(packed);
  CHECK(there[1].empty());
  for (std::size_t replica = 0; replica < 2; ++replica) {
    CHECK(there[0][replica].as<float>()[0] == 1.0f + static_cast<float>(replica));
    CHECK(there[0][replica].as<float>()[1] == 7);
    CHECK(there[2][replica].type() == empty);
    CHECK(there[3][replica].as<std::int64_t>()[0] == 10 + static_cast<std::int64_t>(replica));
    CHECK(there[4][replica].type() == largest);
  }
}

TEST_CASE("a step without results packs none") {
  const AsyncResults results{{}, 3};
  CHECK(results.bytes() == 0);
  CHECK(results.pack({}).empty());
  CHECK(results.unpack({}).empty());
}

}  // namespace test_async_results
