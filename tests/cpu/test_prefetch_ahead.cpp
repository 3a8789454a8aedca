// SPDX-License-Identifier: Apache-2.0
// Prefetching while a tile is computed: which lines are fetched, and when.
#include <catch2/catch.hpp>

#include <cstddef>
#include <vector>

#include <replicator/cpu/loops/prefetch_ahead.hpp>

namespace test_prefetch_ahead {

using replicator::detail::cpu::PrefetchAhead;

namespace {

constexpr std::size_t line = 64;
std::vector<std::byte> memory(100 * line);

// The numbers of the lines that each of some calls fetches.
std::vector<std::vector<std::size_t>> fetched(PrefetchAhead& ahead, int calls) {
  std::vector<std::vector<std::size_t>> result(static_cast<std::size_t>(calls));
  for (auto& lines : result)
    ahead.next([&](const std::byte* at) { lines.push_back(static_cast<std::size_t>(at - memory.data()) / line); });
  return result;
}
using Lines = std::vector<std::vector<std::size_t>>;

}  // namespace

TEST_CASE("the calls fetch equal shares of all spans, one span after the other") {
  PrefetchAhead ahead;
  ahead.restart(3);
  ahead.add(memory.data(), 4 * line);
  ahead.add(memory.data() + 10 * line, 3 * line);
  CHECK(fetched(ahead, 5) == Lines{{0, 1, 2}, {3, 10}, {11, 12}, {}, {}});
}

TEST_CASE("a span shorter than a line, a span that is there already, and the ninth span are not fetched") {
  PrefetchAhead ahead;
  ahead.restart(1);
  ahead.add(memory.data() + 50 * line, line - 1);
  for (std::size_t i = 0; i < 7; ++i) ahead.add(memory.data() + i * line, line);
  ahead.add(memory.data() + 90 * line, line);
  CHECK(fetched(ahead, 1) == Lines{{0, 1, 2, 3, 4, 5, 6}});
  ahead.restart(1);
  ahead.add(memory.data() + 5 * line, 2 * line);
  ahead.add(memory.data() + 5 * line, 2 * line);
  CHECK(fetched(ahead, 1) == Lines{{5, 6}});
}

TEST_CASE("nothing is fetched where a share would be more than 64 lines") {
  PrefetchAhead ahead;
  ahead.restart(1);
  ahead.add(memory.data(), 65 * line);
  CHECK(fetched(ahead, 1) == Lines{{}});
  ahead.restart(2);
  ahead.add(memory.data(), 65 * line);
  CHECK(fetched(ahead, 2)[0].size() == 33);
}

TEST_CASE("nothing is fetched before the first start, without spans, and where no calls are to come") {
  PrefetchAhead ahead;
  CHECK(fetched(ahead, 1) == Lines{{}});
  ahead.restart(4);
  CHECK(fetched(ahead, 1) == Lines{{}});
  ahead.restart(0);
  ahead.add(memory.data(), 4 * line);
  CHECK(fetched(ahead, 1) == Lines{{}});
}

}  // namespace test_prefetch_ahead
