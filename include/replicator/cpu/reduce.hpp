// SPDX-License-Identifier: Apache-2.0
// The kernel of Reduce on the CPU: all outputs of the expression in one pass over the inputs.
//
// The order in which an output's elements are combined depends on the shape, the axes and the layout only, never on the
// number of threads: the domain is a nest of loops in storage order, reduced or kept. The innermost reduced loop is cut
// into blocks of 4,096 turns; turn t of a block goes to lane t mod P, the lanes are folded by a balanced tree, and the
// results of blocks, and of the turns of each outer reduced loop, by a binary tree (the binary counter's).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <replicator/cpu/accumulate.hpp>
#include <replicator/cpu/map.hpp>
#include <replicator/cpu/parallel.hpp>
#include <replicator/cpu/tile_program.hpp>

namespace replicator::cpu {

// How a domain is reduced: `levels` of outer loops around units of `rows` (one block at most) by `width` kept elements.
struct ReductionNest {
  static constexpr std::int64_t block = 4096;
  struct Level {
    bool reduced = false;
    std::int64_t extent = 1;
    std::int64_t step = 1;   // kept elements inside one turn
    std::int64_t turns = 1;  // elements of the domain inside one turn (a full one)
  };
  std::vector<Level> levels;
  std::int64_t rows = 1;   // of the innermost reduced loop
  std::int64_t width = 1;  // kept elements inside it
  std::int64_t parts = 1;  // lanes of each kept element, a power of two
  std::int64_t kept = 1;   // elements of an output

  ReductionNest(const std::vector<StorageLoop>& loops, const std::vector<std::int64_t>& axes) {
    for (const auto& loop : loops) {
      const bool reduced = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(loop.axis)) != axes.end();
      if (!levels.empty() && levels.back().reduced == reduced) levels.back().extent *= loop.extent;
      else levels.push_back({reduced, loop.extent});
    }
    width = pop(false);
    rows = pop(true);
    if (rows > block) levels.push_back({true, (rows + block - 1) / block});
    std::int64_t step = width;
    std::int64_t turns = width * std::min(rows, block);
    for (std::size_t l = levels.size(); l-- > 0;) {
      levels[l].step = step;
      levels[l].turns = turns;
      turns = l + 1 == levels.size() && rows > block ? rows * width : turns * levels[l].extent;
      if (!levels[l].reduced) step *= levels[l].extent;
    }
    kept = step;
    // About 64 lanes, in whole groups of 16, but no more than a short row can fill.
    if (width > 0 && width < 64) {
      std::int64_t group = 1;
      while (width * group % tile_group != 0) group *= 2;
      while (width * parts < 64 || parts % group != 0) parts *= 2;
      while (parts > 1 && parts * 2 > rows) parts /= 2;
    }
  }

 private:
  // Takes the innermost level away where it is of that sort: its extent, else 1.
  std::int64_t pop(bool reduced) {
    if (levels.empty() || levels.back().reduced != reduced) return 1;
    const std::int64_t extent = levels.back().extent;
    levels.pop_back();
    return extent;
  }
};

class ReduceExecutable final : public Executable {
 public:
  ReduceExecutable(const Reduce& reduce, const KernelRequest& request)
      : ReduceExecutable{reduce, request, domain_layout(request, reduce.domain)} {}

  void run(const Launch& launch) const override {
    if (program_.elements() == 0) return clear(launch);
    const bool gather = outer_turns() > 1 && threads_ > 1 && nest_.levels[0].reduced;
    parallel_for(threads_, outer_turns(), [&](int part, std::int64_t first, std::int64_t last) {
      Worker worker{*this, launch.scratch, part, first, gather};
      const std::int64_t turns = nest_.levels.empty() ? program_.elements() : nest_.levels[0].turns;
      program_.run(launch.inputs, nullptr, launch.scratch + tiles_at(part), first * turns,
                   std::min(last * turns, program_.elements()),
                   [&](const TileProgram::ResultTiles& tiles, std::int64_t count) { worker.take(tiles, count); });
    });
    if (gather) combine_outer_turns(launch.scratch);
    for (std::size_t o = 0; o < stored_.size(); ++o) store(launch, o);
  }

 private:
  ReduceExecutable(const Reduce& reduce, const KernelRequest& request, const Layout& layout)
      : loops_{storage_loops(reduce.domain, layout)},
        nest_{loops_, reduce.axes},
        program_{*reduce.expression, request.inputs, reduce.domain, loops_, {}},
        accumulate_{accumulate_loops(reduce.expression->compute, reduce.kind, instruction_level())},
        compute_{reduce.expression->compute},
        stored_{reduce.dtypes},
        element_{size_of(compute_)},
        threads_{program_.tiles() < 32 ? 1 : request.threads} {
    input_layouts = demanded_layouts(request, reduce.domain, layout);
    output_layouts.assign(request.outputs.size(), Layout{});
    in_place.assign(request.outputs.size(), -1);
    if (program_.elements() == 0) {
      kept_ = request.outputs[0].shape.elements();
      if (kept_ > 0 && reduce.kind != ReduceKind::sum)
        throw BuildError{"the " + std::string{name_of(reduce.kind)} + " over no elements was asked for, of the shape " +
                         reduce.domain.text() + ": give the reduced axes an extent of at least 1"};
      return;
    }
    kept_ = nest_.kept;
    find_order(reduce);
    plan_scratch();
  }

  // Where the kept elements, which are found in storage order, lie in a plain output.
  void find_order(const Reduce& reduce) {
    std::int64_t stride = 1;
    std::array<std::int64_t, Shape::max_rank> strides{};
    for (std::size_t axis = reduce.domain.rank(); axis-- > 0;) {
      if (std::find(reduce.axes.begin(), reduce.axes.end(), static_cast<std::int64_t>(axis)) != reduce.axes.end()) continue;
      strides[axis] = stride;
      stride *= reduce.domain[axis];
    }
    for (const auto& loop : loops_)
      if (strides[loop.axis] != 0) order_.push_back({loop.extent, strides[loop.axis] * loop.step});
    std::int64_t inside = 1;
    for (std::size_t l = order_.size(); l-- > 0;) {
      in_order_ &= order_[l].stride == inside;
      inside *= order_[l].extent;
    }
  }

  void plan_scratch() {
    std::size_t end = 0;
    const auto take = [&](std::int64_t elements) {
      const std::size_t at = end;
      end += (static_cast<std::size_t>(elements) * element_ + 127) / 64 * 64;
      return at;
    };
    for (std::size_t l = 0; l < nest_.levels.size(); ++l)
      stacks_.push_back(nest_.levels[l].reduced ? take((std::bit_width(static_cast<std::uint64_t>(nest_.levels[l].extent)) + 1) * nest_.levels[l].step) : 0);
    lanes_ = take(nest_.width * nest_.parts);
    per_output_ = end;
    per_part_ = per_output_ * stored_.size();
    end = per_part_ * static_cast<std::size_t>(threads_);
    results_ = end;
    std::size_t widest = element_;
    for (const auto dtype : stored_) widest = std::max(widest, size_of(dtype));
    per_result_ = ((static_cast<std::size_t>(kept_) + tile_group) * widest + 63) / 64 * 64;  // conversions take whole groups
    end += 2 * per_result_ * stored_.size();
    turns_ = end;
    if (!nest_.levels.empty() && nest_.levels[0].reduced && threads_ > 1) {
      per_turns_ = static_cast<std::size_t>(outer_turns() * nest_.levels[0].step) * element_;
      end += (per_turns_ * stored_.size() + 63) / 64 * 64;
    }
    tiles_ = end;
    scratch_bytes = tiles_ + program_.scratch_bytes() * static_cast<std::size_t>(threads_);
  }

  std::int64_t outer_turns() const { return nest_.levels.empty() ? 1 : nest_.levels[0].extent; }
  std::size_t tiles_at(int part) const { return tiles_ + program_.scratch_bytes() * static_cast<std::size_t>(part); }
  std::byte* state(std::byte* scratch, int part, std::size_t output) const {
    return scratch + per_part_ * static_cast<std::size_t>(part) + per_output_ * output;
  }
  std::byte* result(std::byte* scratch, std::size_t output) const { return scratch + results_ + 2 * per_result_ * output; }
  std::byte* turn(std::byte* scratch, std::size_t output, std::int64_t index) const {
    return scratch + turns_ + per_turns_ * output + bytes(index * nest_.levels[0].step);
  }
  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * element_; }

  // --- the binary counter: slot i of a level's stack holds the tree over the turns of the i-th highest bit set ---------
  std::byte* slot(std::byte* state, std::size_t level, int at) const {
    return state + stacks_[level] + bytes(at * nest_.levels[level].step);
  }
  static int depth(std::int64_t turns) { return std::popcount(static_cast<std::uint64_t>(turns)); }
  void join(std::byte* state, std::size_t level, int at) const {
    accumulate_.accumulate(slot(state, level, at - 1), slot(state, level, at), nest_.levels[level].step, 1);
  }
  // After turn `index` was put into slot depth(index).
  void push(std::byte* state, std::size_t level, std::int64_t index) const {
    int at = depth(index);
    for (; index & 1; index >>= 1) join(state, level, at--);
  }
  // The tree over all turns, in slot 0.
  void collapse(std::byte* state, std::size_t level) const {
    for (int at = depth(nest_.levels[level].extent) - 1; at > 0; --at) join(state, level, at);
  }

  void combine_outer_turns(std::byte* scratch) const {
    for (std::size_t o = 0; o < stored_.size(); ++o) {
      std::byte* own = state(scratch, 0, o);
      for (std::int64_t t = 0; t < outer_turns(); ++t) {
        std::memcpy(slot(own, 0, depth(t)), turn(scratch, o, t), bytes(nest_.levels[0].step));
        push(own, 0, t);
      }
      collapse(own, 0);
      std::memcpy(result(scratch, o), slot(own, 0, 0), bytes(nest_.levels[0].step));
    }
  }

  // Follows the tiles of a contiguous part of the outermost loop.
  class Worker {
   public:
    Worker(const ReduceExecutable& plan, std::byte* scratch, int part, std::int64_t first, bool gather)
        : plan_{plan}, scratch_{scratch}, part_{part}, gather_{gather} {
      index_[0] = first;
      begin_unit();
    }

    void take(const TileProgram::ResultTiles& tiles, std::int64_t count) {
      for (std::int64_t at = 0; at < count;) {
        const std::int64_t n = std::min(count - at, unit_ - done_);
        for (std::size_t o = 0; o < plan_.stored_.size(); ++o) accumulate(lanes(o), tiles[o] + plan_.bytes(at), n);
        at += n;
        done_ += n;
        if (done_ == unit_) finish_unit();
      }
    }

   private:
    std::byte* state(std::size_t output) const { return plan_.state(scratch_, part_, output); }
    std::byte* lanes(std::size_t output) const { return state(output) + plan_.lanes_; }
    std::int64_t lane_count() const { return plan_.nest_.width * plan_.nest_.parts; }

    void begin_unit() {
      const auto& nest = plan_.nest_;
      const std::int64_t before = nest.rows > nest.block ? index_[nest.levels.size() - 1] * nest.block : 0;
      unit_ = std::min(nest.rows - before, nest.block) * nest.width;
      done_ = 0;
      for (std::size_t o = 0; o < plan_.stored_.size(); ++o) plan_.accumulate_.clear(lanes(o), lane_count());
    }

    void accumulate(std::byte* lanes, const std::byte* x, std::int64_t count) const {
      const std::int64_t all = lane_count();
      const auto add = [&](std::int64_t lane, std::int64_t width, std::int64_t rows) {
        if (width * rows == 0) return;
        plan_.accumulate_.accumulate(lanes + plan_.bytes(lane), x, width, rows);
        x += plan_.bytes(width * rows);
        count -= width * rows;
      };
      if (const std::int64_t lane = done_ % all; lane != 0) add(lane, std::min(all - lane, count), 1);
      add(0, all, count / all);
      add(0, count, 1);
    }

    // Where the array goes that is finished by `level` (or by a unit, if that is the number of levels).
    std::byte* destination(std::size_t output, std::size_t level) const {
      const auto& levels = plan_.nest_.levels;
      std::int64_t offset = 0;
      while (level-- > 0) {
        if (levels[level].reduced) {
          if (level == 0 && gather_) return plan_.turn(scratch_, output, index_[0]) + plan_.bytes(offset);
          return plan_.slot(state(output), level, depth(index_[level])) + plan_.bytes(offset);
        }
        offset += index_[level] * levels[level].step;
      }
      return plan_.result(scratch_, output) + plan_.bytes(offset);
    }

    void finish_unit() {
      const auto& levels = plan_.nest_.levels;
      for (std::size_t o = 0; o < plan_.stored_.size(); ++o) {
        plan_.accumulate_.fold(lanes(o), plan_.nest_.width, plan_.nest_.parts);
        std::memcpy(destination(o, levels.size()), lanes(o), plan_.bytes(plan_.nest_.width));
      }
      for (std::size_t level = levels.size(); level-- > 0;) {
        const bool count = levels[level].reduced && !(level == 0 && gather_);
        if (count)
          for (std::size_t o = 0; o < plan_.stored_.size(); ++o) plan_.push(state(o), level, index_[level]);
        if (++index_[level] < levels[level].extent) break;
        if (count)
          for (std::size_t o = 0; o < plan_.stored_.size(); ++o) {
            plan_.collapse(state(o), level);
            std::memcpy(destination(o, level), plan_.slot(state(o), level, 0), plan_.bytes(levels[level].step));
          }
        index_[level] = 0;
      }
      begin_unit();
    }

    const ReduceExecutable& plan_;
    std::byte* scratch_;
    int part_;
    bool gather_;
    std::array<std::int64_t, 2 * Shape::max_rank + Layout::max_blocks> index_{};
    std::int64_t unit_ = 0;  // elements of the current unit
    std::int64_t done_ = 0;
  };

  // --- results ---------------------------------------------------------------------------------------------------------
  void store(const Launch& launch, std::size_t o) const {
    std::byte* from = result(launch.scratch, o);
    std::byte* spare = from + per_result_;
    if (!in_order_) {
      permute(from, spare);
      std::swap(from, spare);
    }
    if (stored_[o] != compute_) {
      const TileOperand operand{from, static_cast<std::int64_t>(tile_group * element_)};
      conversion_loop(compute_, stored_[o])(spare, operand, operand, operand, (kept_ + tile_group - 1) / tile_group * tile_group);
      from = spare;
    }
    std::memcpy(launch.outputs[o], from, static_cast<std::size_t>(kept_) * size_of(stored_[o]));
  }

  void permute(const std::byte* from, std::byte* to) const {
    std::array<std::int64_t, Shape::max_rank + Layout::max_blocks> index{};
    std::int64_t offset = 0;
    for (std::int64_t i = 0; i < kept_; ++i) {
      std::memcpy(to + bytes(offset), from + bytes(i), element_);
      for (std::size_t l = order_.size(); l-- > 0;) {
        offset += order_[l].stride;
        if (++index[l] < order_[l].extent) break;
        offset -= order_[l].stride * order_[l].extent;
        index[l] = 0;
      }
    }
  }

  void clear(const Launch& launch) const {
    for (std::size_t o = 0; o < stored_.size(); ++o)
      if (kept_ > 0) std::memset(launch.outputs[o], 0, static_cast<std::size_t>(kept_) * size_of(stored_[o]));
  }

  std::vector<StorageLoop> loops_;
  ReductionNest nest_;
  TileProgram program_;
  AccumulateLoops accumulate_;
  DType compute_;
  std::vector<DType> stored_;
  std::size_t element_;
  int threads_;
  std::int64_t kept_ = 0;
  std::vector<OperandLoop> order_;  // kept loops in storage order with the strides of a plain output
  bool in_order_ = true;
  // Places in the scratch: states by part and output (stacks of the levels, lanes), results and spare room by output,
  // gathered outer turns by output, tiles by part.
  std::vector<std::size_t> stacks_;
  std::size_t lanes_ = 0, per_output_ = 0, per_part_ = 0, results_ = 0, per_result_ = 0, turns_ = 0, per_turns_ = 0, tiles_ = 0;
};

inline std::unique_ptr<Executable> make_reduce(const KernelRequest& request) {
  return std::make_unique<ReduceExecutable>(*request.operation.get<Reduce>(), request);
}
inline constexpr Kernel reduce_kernel{"cpu tiles", &make_reduce};
inline const bool reduce_registered = register_kernel<Reduce>(DeviceKind::cpu, KernelTier::library, &reduce_kernel);

}  // namespace replicator::cpu
