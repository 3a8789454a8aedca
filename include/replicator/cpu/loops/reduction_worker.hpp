// SPDX-License-Identifier: Apache-2.0
// One thread's share of a reduction: combines the elements of a contiguous part of the outermost loop as they are computed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/cpu/loops/reduction_plan.hpp>
#include <replicator/cpu/loops/tile_program.hpp>

namespace replicator::detail::cpu {

class ReductionWorker {
 public:
  // `first` is the first turn of the outermost loop in this part. `plan` must outlive this.
  ReductionWorker(const ReductionPlan& plan, std::byte* scratch, int part, std::int64_t first) : plan_{plan}, scratch_{scratch}, part_{part} {
    index_[0] = first;
    begin_unit();
  }

  // Takes the next `count` elements of each output's expression. tiles[o] is the ResultTile of output o.
  template <class Tiles>
  void take(const Tiles& tiles, std::int64_t count) {
    for (std::int64_t at = 0; at < count;) {
      if (const std::int64_t units = whole_units(count - at); units > 0) {
        take_units(tiles, at, units);
        at += units * unit_;
        continue;
      }
      const std::int64_t n = std::min(count - at, unit_ - done_);
      for (std::size_t o = 0; o < plan_.outputs(); ++o) accumulate(lanes(o), tiles[o], at, n);
      at += n;
      done_ += n;
      if (done_ == unit_) finish_unit();
    }
  }

 private:
  std::byte* state(std::size_t output) const { return plan_.state(scratch_, part_, output); }
  std::byte* lanes(std::size_t output) const { return plan_.lanes(state(output)); }

  void begin_unit() {
    const auto& nest = plan_.nest();
    const std::int64_t before = nest.rows > nest.block ? index_[nest.levels.size() - 1] * nest.block : 0;
    unit_ = std::min(nest.rows - before, nest.block) * nest.width;
    done_ = 0;
    for (std::size_t o = 0; o < plan_.outputs(); ++o) plan_.loops().clear(lanes(o), nest.lanes());
  }

  // How many whole units of one kept element lie in the next `count` elements, if there is a loop that takes them at once.
  std::int64_t whole_units(std::int64_t count) const {
    if (done_ != 0 || count < unit_ || !plan_.takes_units()) return 0;
    const auto& levels = plan_.nest().levels;
    return std::min(count / unit_, levels.back().extent - index_[levels.size() - 1]);
  }
  template <class Tiles>
  void take_units(const Tiles& tiles, std::int64_t at, std::int64_t units) {
    const auto& nest = plan_.nest();
    for (std::size_t o = 0; o < plan_.outputs(); ++o) {
      const auto loop = tiles[o].stored ? plan_.loops().reduce_stored_units : plan_.loops().reduce_units;
      const std::size_t element = tiles[o].stored ? sizeof(bfloat16) : plan_.bytes(1);
      auto* results = reinterpret_cast<float*>(destination(o, nest.levels.size()));
      loop(results, tiles[o].data + static_cast<std::size_t>(at) * element, unit_, units, nest.parts);
    }
    index_[nest.levels.size() - 1] += units - 1;
    finish_turns();
  }

  // Accumulates `count` elements of a tile, from `at` on. First the rest of the row of lanes that was begun, then whole rows,
  // then the beginning of another row.
  void accumulate(std::byte* lanes, const TileProgram::ResultTile& tile, std::int64_t at, std::int64_t count) const {
    const auto loop = tile.stored ? plan_.loops().accumulate_stored : plan_.loops().accumulate;
    const std::size_t element = tile.stored ? sizeof(bfloat16) : plan_.bytes(1);
    const std::byte* x = tile.data + static_cast<std::size_t>(at) * element;
    const std::int64_t all = plan_.nest().lanes();
    const auto add = [&](std::int64_t lane, std::int64_t width, std::int64_t rows) {
      if (width * rows == 0) return;
      loop(lanes + plan_.bytes(lane), x, width, rows);
      x += static_cast<std::size_t>(width * rows) * element;
      count -= width * rows;
    };
    if (const std::int64_t lane = done_ % all; lane != 0) add(lane, std::min(all - lane, count), 1);
    add(0, all, count / all);
    add(0, count, 1);
  }

  // Whether this worker combines the turns of a level. Gathered turns are combined later (ReductionPlan::combine_gathered).
  bool counts(std::size_t level) const { return plan_.nest().levels[level].reduced && !(level == 0 && plan_.gathers()); }

  // Where the array that `level` has finished goes. The number of levels stands for a unit.
  std::byte* destination(std::size_t output, std::size_t level) const {
    const auto& levels = plan_.nest().levels;
    std::int64_t offset = 0;
    while (level-- > 0) {
      if (counts(level)) return plan_.slot(state(output), level, index_[level]) + plan_.bytes(offset);
      if (levels[level].reduced) return plan_.turn(scratch_, output, index_[0]) + plan_.bytes(offset);
      offset += index_[level] * levels[level].step;
    }
    return plan_.result(scratch_, output) + plan_.bytes(offset);
  }

  void finish_unit() {
    const auto& nest = plan_.nest();
    for (std::size_t o = 0; o < plan_.outputs(); ++o) {
      plan_.loops().fold(lanes(o), nest.width, nest.parts);
      std::memcpy(destination(o, nest.levels.size()), lanes(o), plan_.bytes(nest.width));
    }
    finish_turns();
    begin_unit();
  }
  void finish_turns() {
    std::size_t level = plan_.nest().levels.size();
    while (level > 0 && finish_turn(level - 1)) --level;
  }
  // Finishes a turn of the level. True if it was the last one, which also finishes a turn of the level around it.
  bool finish_turn(std::size_t level) {
    const auto& nest = plan_.nest();
    if (counts(level))
      for (std::size_t o = 0; o < plan_.outputs(); ++o) plan_.push(state(o), level, index_[level]);
    if (++index_[level] < nest.levels[level].extent) return false;
    if (counts(level))
      for (std::size_t o = 0; o < plan_.outputs(); ++o)
        std::memcpy(destination(o, level), plan_.collapse(state(o), level), plan_.bytes(nest.levels[level].step));
    index_[level] = 0;
    return true;
  }

  const ReductionPlan& plan_;
  std::byte* scratch_;
  int part_;
  std::array<std::int64_t, 2 * Shape::max_rank + Layout::max_blocks> index_{};  // turns done, by level
  std::int64_t unit_ = 0;                                                       // elements of the current unit
  std::int64_t done_ = 0;
};

}  // namespace replicator::detail::cpu
