// SPDX-License-Identifier: Apache-2.0
// Which groups of elements a thread of an elementwise kernel takes, up to the largest numbers.
#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>
#include <vector>

#include "cuda_runtime.h"

#include <replicator/cuda/rtc/map.cuh>

namespace test_map_range {

using namespace replicator::detail::cuda;

namespace {

// Notes the groups that are loaded and stored.
template <class I, int groups>
struct Noted {
  using Index = I;
  static constexpr int at_once = groups, lanes = 4, slots = 1;
  std::vector<std::uint64_t>& loaded;
  std::vector<std::uint64_t>& stored;

  void evaluate(Index group, float* y) const {
    loaded.push_back(group);
    *y = static_cast<float>(group % 1024);
  }
  void store_all(Index group, const float* y) const {
    CHECK(*y == static_cast<float>(group % 1024));
    stored.push_back(group);
  }
};

template <class I, int groups>
void check_range(std::uint64_t first, std::uint64_t stride, std::uint64_t end) {
  INFO(groups << " at once, " << first << " + n * " << stride << " < " << end);
  std::vector<std::uint64_t> loaded, stored, want;
  map_range<float>(Noted<I, groups>{loaded, stored}, static_cast<I>(first), static_cast<I>(stride), static_cast<I>(end));
  for (auto group = first; group < end; group += stride) want.push_back(group);
  CHECK(stored == want);
  for (const auto group : loaded) CHECK(group < end);
}

template <class I, int groups>
void check_ranges(std::uint64_t most) {
  constexpr std::uint64_t largest_grid = (1 << 16) * 256;
  for (const std::uint64_t end : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{255}, std::uint64_t{257}, most - 1, most})
    for (const std::uint64_t stride : {std::uint64_t{256}, largest_grid})
      for (const std::uint64_t from_end : {1, 2, 255, 256, 257, 1000, 5000})
        if (from_end <= end) check_range<I, groups>(end - from_end, stride, end);
  check_range<I, groups>(most % largest_grid, largest_grid, most);  // all of a thread's groups
  check_range<I, groups>(7, 256, 7);                                // none
}

}  // namespace

TEST_CASE("a thread stores each of its groups once, and loads no group behind the end") {
  check_ranges<unsigned, 1>((std::uint64_t{1} << 31) - 1);
  check_ranges<unsigned, 2>((std::uint64_t{1} << 31) - 1);
  check_ranges<unsigned, 4>((std::uint64_t{1} << 31) - 1);
  check_ranges<long long, 1>(std::uint64_t{1} << 33);
  check_ranges<long long, 4>(std::uint64_t{1} << 33);
}

}  // namespace test_map_range
