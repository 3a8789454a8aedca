// SPDX-License-Identifier: Apache-2.0
// The domain of a reduction as a nest of loops, each reduced or kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <replicator/cpu/loops/loop_nest.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

// `levels` of outer loops around units of `rows` by `width` kept elements. The rows of a unit are one block at most.
struct ReductionNest {
  static constexpr std::int64_t block = 4096;
  struct Level {
    bool reduced = false;
    std::int64_t extent = 1;
    std::int64_t step = 1;   // kept elements inside one turn
    std::int64_t turns = 1;  // elements of the domain inside one turn (a full one)
  };
  std::vector<Level> levels;  // outermost first
  std::int64_t rows = 1;      // turns of the innermost reduced loop
  std::int64_t width = 1;     // kept elements inside it
  std::int64_t parts = 1;     // lanes of each kept element, a power of two
  std::int64_t kept = 1;      // elements of an output

  // `loops` are those of the domain in storage order. Those over `axes` are reduced.
  ReductionNest(const std::vector<StorageLoop>& loops, const std::vector<std::int64_t>& axes) {
    for (const auto& loop : loops) add(std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(loop.axis)) != axes.end(), loop.extent);
    width = pop(false);
    rows = pop(true);
    if (rows > block) levels.push_back({true, (rows + block - 1) / block});
    measure();
    choose_parts();
  }

  std::int64_t lanes() const { return width * parts; }
  // Elements of a row that is reduced to one; 0 where rows are not contiguous.
  std::int64_t row() const { return width == 1 && !levels.empty() ? rows : 0; }
  // Number of turns of the outermost loop, and number of elements of the domain inside one turn.
  std::int64_t outer_turns() const { return levels.empty() ? 1 : levels[0].extent; }
  std::int64_t outer_elements() const { return levels.empty() ? rows * width : levels[0].turns; }

 private:
  // Neighbouring loops of the same sort become one.
  void add(bool reduced, std::int64_t extent) {
    if (!levels.empty() && levels.back().reduced == reduced) levels.back().extent *= extent;
    else levels.push_back({reduced, extent});
  }
  // Removes the innermost level if it is of that sort. Returns its extent, or 1 otherwise.
  std::int64_t pop(bool reduced) {
    if (levels.empty() || levels.back().reduced != reduced) return 1;
    const std::int64_t extent = levels.back().extent;
    levels.pop_back();
    return extent;
  }
  void measure() {
    std::int64_t step = width;
    std::int64_t turns = width * std::min(rows, block);
    for (std::size_t l = levels.size(); l-- > 0;) {
      levels[l].step = step;
      levels[l].turns = turns;
      turns = l + 1 == levels.size() && rows > block ? rows * width : turns * levels[l].extent;
      if (!levels[l].reduced) step *= levels[l].extent;
    }
    kept = step;
  }
  // Chooses about 64 lanes, in whole groups of 16, but at most half as many parts as there are rows.
  void choose_parts() {
    if (width == 0 || width >= 64) return;
    std::int64_t group = 1;
    while (width * group % tile_group != 0) group *= 2;
    while (lanes() < 64 || parts % group != 0) parts *= 2;
    while (parts > 1 && parts * 2 > rows) parts /= 2;
  }
};

}  // namespace replicator::detail::cpu
