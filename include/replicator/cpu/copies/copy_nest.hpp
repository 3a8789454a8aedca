// SPDX-License-Identifier: Apache-2.0
// Runs a nest of copy loops: by rectangles that pass through registers, by rows, or by tiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/core/shape.hpp>
#include <replicator/cpu/copies/copy_loops.hpp>
#include <replicator/cpu/copies/rectangle_copy.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu::detail {

class CopyNest {
 public:
  // The loops are in the order of the result, outermost first. `shape` has the axes of loops that are cut. Small copies take one
  // thread.
  CopyNest(std::vector<CopyLoop> loops, const Shape& shape, std::size_t element, int threads, InstructionLevel level)
      : shape_{shape}, element_{element}, threads_{shape.elements() < 1 << 16 ? 1 : threads}, rectangles_{RectangleCopy::of(loops, shape, element, level)}, loops_{std::move(loops)} {
    order_loops();
  }

  // Threads share the turns of the outermost loop.
  void run(const std::byte* from, std::byte* to) const {
    if (shape_.elements() == 0) return;
    if (rectangles_) return rectangles_->run(from, to, threads_);
    parallel_for(threads_, turns(loops_[0], shape_, {}), [&](int, std::int64_t begin, std::int64_t end) {
      if (element_ == 4) copy<std::uint32_t>(from, to, begin, end);
      else if (element_ == 8) copy<std::uint64_t>(from, to, begin, end);
      else if (element_ == 2) copy<std::uint16_t>(from, to, begin, end);
      else copy<std::uint8_t>(from, to, begin, end);
    });
  }

 private:
  // Makes at least two loops. Puts the loop that is contiguous in the source next to the innermost one.
  void order_loops() {
    while (loops_.size() < 2) loops_.insert(loops_.begin(), CopyLoop{});
    const auto contiguous = std::find_if(loops_.begin(), loops_.end() - 1, [](const auto& l) { return l.from == 1 && l.extent > 1; });
    // The digits of an axis that is cut stay in order, because the outer digits decide where the axis ends.
    if (contiguous < loops_.end() - 1 && !contiguous->cut) std::rotate(contiguous, contiguous + 1, loops_.end() - 1);
  }

  template <class T>
  void copy(const std::byte* source, std::byte* result, std::int64_t begin, std::int64_t end) const {
    const T* from = reinterpret_cast<const T*>(source);
    T* to = reinterpret_cast<T*>(result);
    const auto& outer = loops_[0];
    CopyPosition at{};
    if (loops_.size() == 2) {
      at[outer.axis] = begin * outer.step;
      return copy_tile(from + begin * outer.from, to + begin * outer.to, end - begin, at);
    }
    for (std::int64_t i = begin; i < end; ++i) {
      at[outer.axis] = i * outer.step;
      copy_inside(1, from + i * outer.from, to + i * outer.to, at);
    }
  }

  template <class T>
  void copy_inside(std::size_t depth, const T* from, T* to, CopyPosition at) const {
    const auto& loop = loops_[depth];
    const std::int64_t n = turns(loop, shape_, at);
    if (depth + 2 == loops_.size()) return copy_tile(from, to, n, at);
    for (std::int64_t i = 0; i < n; ++i, at[loop.axis] += loop.step) copy_inside(depth + 1, from + i * loop.from, to + i * loop.to, at);
  }

  // Runs the two innermost loops for `rows` turns of the outer one. Tiles of 16 by 16 reuse the cache lines of both sides.
  template <class T>
  void copy_tile(const T* from, T* to, std::int64_t rows, CopyPosition at) const {
    constexpr std::int64_t side = 16;
    const auto &outer = loops_[loops_.size() - 2], &inner = loops_.back();
    if (inner.from == 1 && inner.to == 1) {
      for (std::int64_t i = 0; i < rows; ++i, at[outer.axis] += outer.step)
        std::memcpy(to + i * outer.to, from + i * outer.from, static_cast<std::size_t>(turns(inner, shape_, at)) * sizeof(T));
      return;
    }
    if (outer.cut && outer.axis == inner.axis) {
      for (std::int64_t i = 0; i < rows; ++i, at[outer.axis] += outer.step)
        copy_elements(from + i * outer.from, to + i * outer.to, 1, turns(inner, shape_, at), outer, inner);
      return;
    }
    const std::int64_t columns = turns(inner, shape_, at);
    for (std::int64_t i = 0; i < rows; i += side)
      for (std::int64_t j = 0; j < columns; j += side)
        copy_elements(from + i * outer.from + j * inner.from, to + i * outer.to + j * inner.to, std::min(side, rows - i),
                      std::min(side, columns - j), outer, inner);
  }

  template <class T>
  static void copy_elements(const T* from, T* to, std::int64_t rows, std::int64_t columns, const CopyLoop& outer,
                            const CopyLoop& inner) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) to[i * outer.to + j * inner.to] = from[i * outer.from + j * inner.from];
  }

  Shape shape_;
  std::size_t element_;
  int threads_;
  std::optional<RectangleCopy> rectangles_;
  std::vector<CopyLoop> loops_;  // for copies without rectangles
};

}  // namespace replicator::detail::cpu::detail
