// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include <replicator/async/shard.hpp>

namespace test_shard {

using namespace replicator;
using namespace replicator::detail;

namespace {

Shard::Waiting throwing() {
  Shard::Waiting waiting;
  waiting.fail = [](int reader, const Shard::Held& held) {
    throw std::runtime_error{std::to_string(reader) + " for " + std::to_string(held.holder) + (held.by_bound ? " by the bound" : "")};
  };
  return waiting;
}
const auto nothing = [] {};

}  // namespace

TEST_CASE("who must not stand still is told that a bound holds its reader up, and nothing is done") {
  Shard shard{2, 1, throwing()};
  int updates = 0;
  const auto apply = [&](std::int64_t before) { CHECK(before == updates++); };
  shard.read(0, nothing);
  shard.read(1, nothing);
  CHECK(shard.try_update(1, apply));
  shard.read(1, nothing);
  CHECK_FALSE(shard.try_update(1, apply));  // reader 0 has missed one update already
  CHECK(updates == 1);
  CHECK_THROWS_WITH(shard.fail_held(1), "1 for 0 by the bound");
  CHECK(shard.try_update(0, apply));
  CHECK_NOTHROW(shard.fail_held(1));
  CHECK(shard.try_update(1, apply));
  CHECK(updates == 3);
  CHECK(shard.staleness().largest() == 1);
}

TEST_CASE("who only looks at a shard holds nobody up") {
  Shard shard{2, 0, throwing()};
  shard.read(-1, nothing);
  shard.read(0, nothing);
  shard.read(-1, nothing);
  CHECK(shard.try_update(0, [](std::int64_t) {}));
}

TEST_CASE("an update by who has not read since its last one is refused") {
  Shard shard{2, {}, throwing()};
  shard.read(0, nothing);
  CHECK(shard.try_update(0, [](std::int64_t) {}));
  for (const int reader : {0, 1})
    CHECK_THROWS_WITH(shard.update(reader, [](std::int64_t) {}),
                      "reader " + std::to_string(reader) + " of a shard sends an update, but has not read the shard since its last one");
  CHECK(shard.staleness().updates() == 1);
}

}  // namespace test_shard
