// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

#include <replicator/runtime/plan/place_in_arena.hpp>

namespace test_arena {

using namespace replicator;
using namespace replicator::detail;

namespace {

bool alive_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }
bool overlap(std::size_t a, std::size_t a_bytes, std::size_t b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// The largest number of bytes alive at one time: no layout needs less.
std::size_t lower_bound(const std::vector<Lifetime>& lifetimes) {
  std::size_t most = 0;
  for (const auto& at : lifetimes) {
    std::size_t bytes = 0;
    for (const auto& other : lifetimes)
      if (other.first <= at.first && at.first <= other.last) bytes += (other.bytes + 63) / 64 * 64;
    most = std::max(most, bytes);
  }
  return most;
}

rc::Gen<std::vector<Lifetime>> lifetimes() {
  return rc::gen::container<std::vector<Lifetime>>(
      rc::gen::map(rc::gen::tuple(rc::gen::inRange<std::size_t>(0, 1000), rc::gen::inRange<std::uint32_t>(0, 60),
                                  rc::gen::inRange<std::uint32_t>(0, 20)),
                   [](const std::tuple<std::size_t, std::uint32_t, std::uint32_t>& t) {
                     return Lifetime{std::get<0>(t), std::get<1>(t), std::get<1>(t) + std::get<2>(t)};
                   }));
}

}  // namespace

TEST_CASE("buffers that are alive at the same time never overlap, all lie inside, on cache lines") {
  REQUIRE(rc::check([] {
    const auto buffers = *lifetimes();
    const auto layout = place_in_arena(buffers);
    RC_ASSERT(layout.offsets.size() == buffers.size());
    RC_ASSERT(layout.bytes >= lower_bound(buffers));
    for (std::size_t a = 0; a < buffers.size(); ++a) {
      RC_ASSERT(layout.offsets[a] % 64 == 0u);
      RC_ASSERT(layout.offsets[a] + buffers[a].bytes <= layout.bytes);
      for (std::size_t b = 0; b < a; ++b)
        if (alive_together(buffers[a], buffers[b]))
          RC_ASSERT_FALSE(overlap(layout.offsets[a], buffers[a].bytes, layout.offsets[b], buffers[b].bytes));
    }
  }));
}

TEST_CASE("memory that is free is taken again") {
  CHECK(place_in_arena(std::vector<Lifetime>{{64, 0, 0}, {64, 1, 1}, {64, 2, 2}}).bytes == 64);
  CHECK(place_in_arena(std::vector<Lifetime>{{64, 0, 1}, {64, 1, 2}, {64, 2, 3}}).bytes == 128);
  // Two neighbours that were freed make room for a buffer as large as both.
  CHECK(place_in_arena(std::vector<Lifetime>{{64, 0, 1}, {64, 0, 1}, {128, 2, 3}}).bytes == 128);
  // The hole at the end is taken along when the arena grows.
  CHECK(place_in_arena(std::vector<Lifetime>{{64, 0, 5}, {64, 0, 1}, {256, 2, 3}}).bytes == 320);
}

TEST_CASE("of two holes the smaller one that fits is taken") {
  const auto layout =
      place_in_arena(std::vector<Lifetime>{{256, 0, 1}, {64, 0, 9}, {128, 0, 1}, {64, 0, 9}, {128, 2, 3}, {256, 2, 3}});
  CHECK(layout.bytes == 512);
  CHECK(layout.offsets[4] == layout.offsets[2]);
  CHECK(layout.offsets[5] == layout.offsets[0]);
}

TEST_CASE("an empty buffer takes no memory") {
  CHECK(place_in_arena(std::vector<Lifetime>{{0, 0, 3}, {0, 1, 2}}).bytes == 0);
}

}  // namespace test_arena
