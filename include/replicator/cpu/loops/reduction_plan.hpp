// SPDX-License-Identifier: Apache-2.0
// The scratch memory of a reduction, and the tree by which it combines partial results.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <replicator/cpu/loops/accumulate.hpp>
#include <replicator/cpu/loops/reduction_nest.hpp>

namespace replicator::detail::cpu {

// Plans the scratch memory. Each part (thread) has a state per output: the lanes, and a stack for each reduced level. Then each
// output has its results, and as much spare room. Where threads share the outermost reduced loop, each output also has the
// results of its turns.
class ReductionPlan {
 public:
  // `widest`: bytes of the largest element that is computed or stored.
  ReductionPlan(const ReductionNest& nest, const AccumulateLoops& loops, std::size_t element, std::size_t widest, std::size_t outputs, int threads)
      : nest_{nest}, loops_{loops}, element_{element}, outputs_{outputs} {
    const auto take = [this](std::size_t bytes) {
      const std::size_t at = scratch_bytes_;
      scratch_bytes_ += (bytes + 63) / 64 * 64;
      return at;
    };
    constexpr std::size_t apart = 64;  // so that no two threads share a cache line
    for (const auto& level : nest_.levels)
      stacks_.push_back(level.reduced ? take(bytes((std::bit_width(static_cast<std::uint64_t>(level.extent)) + 1) * level.step) + apart) : 0);
    lanes_ = take(bytes(nest_.lanes()) + apart);
    per_output_ = scratch_bytes_;
    per_part_ = per_output_ * outputs;
    scratch_bytes_ = per_part_ * static_cast<std::size_t>(threads);
    per_result_ = (static_cast<std::size_t>(nest_.kept + tile_group) * widest + 63) / 64 * 64;  // conversions take whole groups
    results_ = take(2 * per_result_ * outputs);
    if (nest_.levels.empty() || !nest_.levels[0].reduced || nest_.outer_turns() == 1 || threads == 1) return;
    gathers_ = true;
    per_turns_ = bytes(nest_.outer_turns() * nest_.levels[0].step);
    turns_ = take(per_turns_ * outputs);
  }

  const ReductionNest& nest() const { return nest_; }
  const AccumulateLoops& loops() const { return loops_; }
  std::size_t outputs() const { return outputs_; }
  // Whether units have one kept element each and lie one behind the other, and there is a loop that reduces several of them.
  bool takes_units() const {
    return loops_.reduce_units != nullptr && nest_.width == 1 && nest_.rows <= ReductionNest::block && !nest_.levels.empty() && nest_.parts >= tile_group;
  }
  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * element_; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  // Whether threads share the turns of the outermost loop and that loop is reduced. Then each turn's array is kept, and the
  // arrays are combined in order.
  bool gathers() const { return gathers_; }

  std::byte* state(std::byte* scratch, int part, std::size_t output) const {
    return scratch + per_part_ * static_cast<std::size_t>(part) + per_output_ * output;
  }
  std::byte* lanes(std::byte* state) const { return state + lanes_; }
  std::byte* result(std::byte* scratch, std::size_t output) const { return scratch + results_ + 2 * per_result_ * output; }
  std::byte* spare(std::byte* scratch, std::size_t output) const { return result(scratch, output) + per_result_; }
  std::byte* turn(std::byte* scratch, std::size_t output, std::int64_t index) const {
    return scratch + turns_ + per_turns_ * output + bytes(index * nest_.levels[0].step);
  }

  // --- the binary counter ------------------------------------------------------------------------------------------------
  // Where the result of turn `index` of a reduced level goes. Before it lies one array for each bit that is set in `index`: the
  // tree over that many turns.
  std::byte* slot(std::byte* state, std::size_t level, std::int64_t index) const { return at(state, level, depth(index)); }
  // Combines what is complete. Call it after the result of turn `index` was put there.
  void push(std::byte* state, std::size_t level, std::int64_t index) const {
    for (int top = depth(index); index & 1; index >>= 1) join(state, level, top--);
  }
  // Returns where the tree over all turns is. Call it after the last push.
  std::byte* collapse(std::byte* state, std::size_t level) const {
    for (int top = depth(nest_.levels[level].extent) - 1; top > 0; --top) join(state, level, top);
    return at(state, level, 0);
  }

  // Combines the gathered turns by the same tree, for each output.
  void combine_gathered(std::byte* scratch) const {
    const std::size_t size = bytes(nest_.levels[0].step);
    for (std::size_t o = 0; o < outputs_; ++o) {
      std::byte* own = state(scratch, 0, o);
      for (std::int64_t t = 0; t < nest_.outer_turns(); ++t) {
        std::memcpy(slot(own, 0, t), turn(scratch, o, t), size);
        push(own, 0, t);
      }
      std::memcpy(result(scratch, o), collapse(own, 0), size);
    }
  }

 private:
  static int depth(std::int64_t turns) { return std::popcount(static_cast<std::uint64_t>(turns)); }
  std::byte* at(std::byte* state, std::size_t level, int position) const {
    return state + stacks_[level] + bytes(position * nest_.levels[level].step);
  }
  void join(std::byte* state, std::size_t level, int top) const {
    loops_.accumulate(at(state, level, top - 1), at(state, level, top), nest_.levels[level].step, 1);
  }

  ReductionNest nest_;
  AccumulateLoops loops_;
  std::size_t element_;
  std::size_t outputs_;
  bool gathers_ = false;
  std::vector<std::size_t> stacks_;  // by level
  std::size_t lanes_ = 0, per_output_ = 0, per_part_ = 0, results_ = 0, per_result_ = 0, turns_ = 0, per_turns_ = 0;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace replicator::detail::cpu
