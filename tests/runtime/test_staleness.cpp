// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <optional>
#include <vector>

#include <rapidcheck.h>

#include <replicator/async/staleness.hpp>

namespace test_staleness {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("an update is as stale as others were made since its reader read") {
  Staleness shard{3, std::nullopt};
  shard.read(0);
  shard.read(1);
  CHECK(shard.update(0) == 0);
  shard.read(0);
  CHECK(shard.update(0) == 0);
  shard.read(2);
  CHECK(shard.update(1) == 2);
  CHECK(shard.update(2) == 1);
  CHECK(shard.updates() == 4);
  CHECK(shard.largest() == 2);
  CHECK(shard.mean() == 0.75);
}

TEST_CASE("under a bound whoever read last waits for the one who would become too late") {
  Staleness shard{3, 2};
  for (const int reader : {0, 1, 2}) shard.read(reader);
  CHECK(shard.update(1) == 0);
  shard.read(1);
  // Were 1 to be next, 0 and 2 would be stale by 2 and 3.
  CHECK_FALSE(shard.may_update(1));
  CHECK(shard.held_by(1) == 0);
  CHECK(shard.may_update(2));
  CHECK(shard.update(2) == 1);
  CHECK(shard.update(0) == 2);
  CHECK(shard.may_update(1));
  CHECK(shard.update(1) == 2);
}

TEST_CASE("no update passes the bound, and with as much as the others who are at work somebody can always go on") {
  rc::check("a bound of the readers less one and more", [] {
    const int readers = *rc::gen::inRange(1, 7);
    const auto bound = readers - 1 + *rc::gen::inRange<std::int64_t>(0, 5);
    Staleness shard{readers, bound};
    std::vector<bool> reading(static_cast<std::size_t>(readers));
    std::int64_t updates = 0;
    for (const int turn : *rc::gen::container<std::vector<int>>(200, rc::gen::inRange(0, readers))) {
      const auto r = static_cast<std::size_t>(turn);
      if (!reading[r]) shard.read(turn);
      else if (shard.may_update(turn)) {
        RC_ASSERT(shard.update(turn) <= bound);
        ++updates;
        reading[r] = false;
        continue;
      }
      reading[r] = true;
      bool any = false, all = true;
      for (int other = 0; other < readers; ++other) {
        all = all && reading[static_cast<std::size_t>(other)];
        any = any || (reading[static_cast<std::size_t>(other)] && shard.may_update(other));
      }
      RC_ASSERT(any || !all);
    }
    RC_ASSERT(shard.updates() == updates);
    RC_ASSERT(shard.largest() <= bound);
  });
}

}  // namespace test_staleness
