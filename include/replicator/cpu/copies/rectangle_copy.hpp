// SPDX-License-Identifier: Apache-2.0
// A copy between two layouts in rectangles that pass through registers. It is for layouts that are contiguous along different
// axes, for short rows, and for pairs of bfloat16. Weights of convolutions go into blocks this way, and their gradients out of blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/core/shape.hpp>
#include <replicator/cpu/copies/copy_loops.hpp>
#include <replicator/cpu/copies/copy_run.hpp>
#include <replicator/cpu/copies/rectangle.hpp>
#include <replicator/cpu/copies/rectangles_ahead.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu::detail {

class RectangleCopy {
 public:
  // Empty where the loops form no rectangles, or such narrow ones that plain loops are as good.
  static std::optional<RectangleCopy> of(std::vector<CopyLoop> loops, const Shape& shape, std::size_t element, InstructionLevel level) {
    const auto other_half = make_words(loops, element);
    if (!other_half || shape.elements() == 0) return std::nullopt;
    RectangleCopy copy{shape, *other_half};
    if (!copy.take(loops, level)) return std::nullopt;
    share_widest(loops);
    copy.outer_ = std::move(loops);
    return copy;
  }

  // Threads share the turns of the outermost loop. Without one they share the rows.
  void run(const std::byte* from, std::byte* to, int threads) const {
    const std::int64_t turns = outer_.empty() ? (rows_.words() + side - 1) / side : outer_[0].extent;
    parallel_for(threads, turns, [&](int, std::int64_t begin, std::int64_t end) {
      RectanglesAhead rectangles{move_, other_half_};
      if (outer_.empty()) add(rectangles, from, to, {}, begin * side, end * side);
      else turn(rectangles, 0, begin, end, from, to, {});
      rectangles.move_rest();
    });
  }

 private:
  static constexpr std::int64_t side = Rectangle::side, narrowest = 4;

  RectangleCopy(const Shape& shape, std::int64_t other_half) : shape_{shape}, other_half_{other_half}, source_word_{other_half == 0 ? 4 : 2} {}

  // Converts strides to bytes. Elements of 2 bytes form a word with their neighbour in the result. Returns the distance of a
  // word's halves in the source, or 0 where they are neighbours there too. Empty where elements form no words.
  static std::optional<std::int64_t> make_words(std::vector<CopyLoop>& loops, std::size_t element) {
    if (element != 2 && element != 4) return std::nullopt;
    for (auto& loop : loops) {
      loop.from *= static_cast<std::int64_t>(element);
      loop.to *= static_cast<std::int64_t>(element);
    }
    if (element == 4) return 0;
    const auto pairs = std::find_if(loops.begin(), loops.end(), [](const auto& loop) { return loop.to == 2 && loop.extent % 2 == 0 && !loop.cut; });
    if (pairs == loops.end()) return std::nullopt;
    const auto distance = pairs->from;
    *pairs = {pairs->extent / 2, 2 * pairs->from, 2 * pairs->to, pairs->axis};
    if (pairs->extent == 1) loops.erase(pairs);
    return distance == 2 ? 0 : distance;
  }

  // If the outermost loop has too few turns for threads to share, the loop with the most turns comes before it. Loops of a cut
  // axis stay in order.
  static void share_widest(std::vector<CopyLoop>& loops) {
    constexpr std::int64_t enough = 64;
    const auto shared = [](const CopyLoop& loop) { return loop.cut ? 0 : loop.extent; };
    const auto widest = std::max_element(loops.begin(), loops.end(), [&](const auto& a, const auto& b) { return shared(a) < shared(b); });
    if (widest != loops.end() && loops[0].extent < enough && shared(*widest) > loops[0].extent) std::rotate(loops.begin(), widest, widest + 1);
  }

  // Takes the loops of the rectangles out of `loops`. Returns false where there are none.
  bool take(std::vector<CopyLoop>& loops, InstructionLevel level) {
    if (!columns_.take_from(loops)) return false;
    const std::int64_t straight_row = columns_.words();
    transposed_ = columns_.far_stride() != 4;
    if (!transposed_) row_ = 4 * straight_row;
    // Long rows that are not transposed need no registers.
    if (!transposed_ && other_half_ == 0 && straight_row > side) return false;
    rows_ = CopyRun{&CopyLoop::to, &CopyLoop::from, row_};
    if (!rows_.take_from(loops)) return false;
    while (rows_.words() < side && rows_.take_from(loops)) {}
    // Extends rows of 16 words that continue in the source, so that it is read in whole cache lines.
    while ((transposed_ || straight_row == side) && columns_.take_from(loops)) {}
    while (rows_.take_from(loops)) {}
    rows_.tabulate();
    columns_.tabulate();
    for (std::size_t r = 0; r < straight_at_.size(); ++r) straight_at_[r] = static_cast<std::int64_t>(r) * row_;
    move_ = rectangle_move(transposed_, level);
    return std::min(rows_.words(), columns_.words()) >= narrowest;
  }

  void turn(RectanglesAhead& rectangles, std::size_t depth, std::int64_t begin, std::int64_t end, const std::byte* from, std::byte* to,
            CopyPosition at) const {
    const auto& loop = outer_[depth];
    const bool last = depth + 1 == outer_.size();
    end = std::min(end, turns(loop, shape_, at));
    at[loop.axis] += begin * loop.step;
    for (std::int64_t i = begin; i < end; ++i, at[loop.axis] += loop.step)
      if (last) add(rectangles, from + i * loop.from, to + i * loop.to, at, 0, rows_.words());
      else turn(rectangles, depth + 1, 0, outer_[depth + 1].extent, from + i * loop.from, to + i * loop.to, at);
  }

  // Adds the rows [begin, end), with all columns.
  void add(RectanglesAhead& rectangles, const std::byte* from, std::byte* to, const CopyPosition& at, std::int64_t begin, std::int64_t end) const {
    const std::int64_t columns = columns_.words(shape_, at);
    end = std::min(end, rows_.words(shape_, at));
    for (std::int64_t r = begin; r < end; r += side)
      for (std::int64_t c = 0; c < columns; c += side) {
        const auto row = rows_.far(r), column = columns_.far(c);
        const Rectangle rectangle{row.offsets, transposed_ ? column.offsets : straight_at_.data(), static_cast<int>(std::min(side, end - r)),
                                  static_cast<int>(std::min(side, columns - c))};
        rectangles.add(from + row.base + c * source_word_, to + column.base + r * row_ + (transposed_ ? 0 : column.offsets[0]), rectangle);
      }
  }

  Shape shape_;
  std::int64_t other_half_;   // see RectangleMove
  std::int64_t source_word_;  // bytes from one word of a row to the next
  std::int64_t row_ = 4;      // bytes from one row of the result to the next
  bool transposed_ = true;
  RectangleMove move_ = nullptr;
  CopyRun columns_{&CopyLoop::from, &CopyLoop::to, source_word_};  // contiguous in the source
  CopyRun rows_{&CopyLoop::to, &CopyLoop::from, row_};             // contiguous in the result
  std::array<std::int64_t, Rectangle::side> straight_at_{};        // where rows of the result begin if they are not transposed
  std::vector<CopyLoop> outer_;
};

}  // namespace replicator::detail::cpu::detail
