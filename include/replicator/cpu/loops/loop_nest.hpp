// SPDX-License-Identifier: Apache-2.0
// A dense tensor as a nest of loops in storage order, and smaller operands that are broadcast along it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

// One loop over a dense tensor in storage order. One turn advances the index of `axis` by `step`.
struct StorageLoop {
  std::int64_t extent = 1;
  std::size_t axis = 0;
  std::int64_t step = 1;
};

// The loops of a tensor, outermost first, without loops of one turn. The layout must be dense.
inline std::vector<StorageLoop> storage_loops(const Shape& shape, const Layout& layout) {
  std::vector<StorageLoop> loops;
  std::array<std::int64_t, Shape::max_rank> block{};
  block.fill(1);
  if (!layout.plain)
    for (std::uint8_t b = 0; b < layout.blocks; ++b) block[layout.axis[b]] *= layout.size[b];
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) loops.push_back({shape[axis] / block[axis], axis, block[axis]});
  if (!layout.plain) {
    std::stable_sort(loops.begin(), loops.end(),
                     [&](const auto& a, const auto& b) { return layout.strides[a.axis] > layout.strides[b.axis]; });
    for (std::uint8_t b = 0; b < layout.blocks; ++b) {
      block[layout.axis[b]] /= layout.size[b];
      loops.push_back({layout.size[b], layout.axis[b], block[layout.axis[b]]});
    }
  }
  std::erase_if(loops, [](const auto& loop) { return loop.extent == 1; });
  return loops;
}

// One loop of an operand: `stride` elements per turn, or 0 where the operand is broadcast.
struct OperandLoop {
  std::int64_t extent = 1;
  std::int64_t stride = 0;
};

// The loops of a plain operand that is broadcast to `domain` by NumPy's rules, along the loops of the domain. Neighbours that are
// one loop are merged.
inline std::vector<OperandLoop> operand_loops(const std::vector<StorageLoop>& loops, const Shape& domain, const Shape& operand) {
  const auto strides = operand.strides();
  const std::size_t missing = domain.rank() - operand.rank();
  std::vector<OperandLoop> result;
  for (const auto& loop : loops) {
    std::int64_t stride = 0;
    if (loop.axis >= missing && operand[loop.axis - missing] != 1) stride = strides[loop.axis - missing] * loop.step;
    if (!result.empty() && result.back().stride == stride * loop.extent)
      result.back() = {result.back().extent * loop.extent, stride};
    else
      result.push_back({loop.extent, stride});
  }
  if (result.empty()) result.push_back({1, 0});
  return result;
}

// True where the operand's elements lie in the same order as the domain's.
inline bool is_linear(const std::vector<OperandLoop>& loops) {
  return loops.size() == 1 && (loops[0].stride == 1 || loops[0].extent == 1);
}

namespace detail {
// to[i] = from[(inside + i) / run] for i < count. Writes whole groups of 16, so up to 15 elements more.
[[gnu::always_inline]] inline void repeat_rows(float* to, const float* from, std::int64_t run, std::int64_t inside, std::int64_t count) {
  for (std::int64_t left = run - inside; count > 0; count -= left, to += left, ++from, left = run) {
    left = std::min(left, count);
    const float value = *from;
    for (std::int64_t i = 0; i < left; i += tile_group) {
      REPLICATOR_VECTOR_LOOP
      for (std::int64_t j = 0; j < tile_group; ++j) to[i + j] = value;
    }
  }
}
inline void repeat_rows_baseline(float* to, const float* from, std::int64_t run, std::int64_t inside, std::int64_t count) {
  repeat_rows(to, from, run, inside, count);
}
[[REPLICATOR_AVX2]] inline void repeat_rows_avx2(float* to, const float* from, std::int64_t run, std::int64_t inside, std::int64_t count) {
  repeat_rows(to, from, run, inside, count);
}
[[REPLICATOR_AVX512]] inline void repeat_rows_avx512(float* to, const float* from, std::int64_t run, std::int64_t inside, std::int64_t count) {
  repeat_rows(to, from, run, inside, count);
}
// By InstructionLevel.
inline constexpr decltype(&repeat_rows_baseline) repeat_rows_loops[] = {repeat_rows_baseline, repeat_rows_avx2, repeat_rows_avx512};
}  // namespace detail

// Presents a broadcast operand to tile loops, one stretch of the domain at a time. A pattern that repeats every 16 elements is
// presented as one group: the constant of a channel, or the 16 channels of a block. Other patterns are written to a buffer.
class BroadcastOperand {
 public:
  // `element` is the size of an element in bytes.
  BroadcastOperand(std::vector<OperandLoop> loops, std::size_t element) : loops_{std::move(loops)}, element_{element} {
    run_ = loops_.back().extent;
    const bool repeats = loops_.back().stride != 0 && loops_.size() > 1 && loops_[loops_.size() - 2].stride == 0;
    period_ = loops_.back().stride == 0 ? 1 : run_;
    stretch_ = repeats ? run_ * loops_[loops_.size() - 2].extent : run_;
    if (element_ == sizeof(float) && loops_.size() == 2 && loops_[0].stride == 1 && loops_[1].stride == 0 && run_ >= tile_group)
      repeat_rows_ = detail::repeat_rows_loops[static_cast<std::size_t>(instruction_level())];
  }

  // Whether a float32 operand has one element for each row of at least 16. Then as_rows() may present it, too.
  bool has_rows() const { return repeat_rows_ != nullptr; }
  // Presents the same elements as present() to a loop of row_loops.hpp.
  TileOperand as_rows(const std::byte* operand, std::int64_t position, std::int64_t count) const {
    return {operand + static_cast<std::size_t>(position / run_) * element_, 0, run_, position % run_, count};
  }

  // Number of elements over which only one period of the operand is read. Tiles should end at multiples of it.
  std::int64_t stretch() const { return stretch_; }
  // Number of elements along the innermost loop.
  std::int64_t run() const { return run_; }

  // The stretch that was presented last. Each thread has one per operand.
  struct State {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    TileOperand operand;
    // Where the pattern is longer than a group: the buffer holds so many elements of it, from one that lies `phase` behind the
    // beginning of a period.
    std::int64_t copied = 0;
    std::int64_t phase = 0;
  };

  // Presents elements [position, position + count) of the domain, in whole groups. They are in `buffer`, or where they lie in the operand.
  TileOperand present(const std::byte* operand, std::byte* buffer, std::int64_t position, std::int64_t count, State& state) const {
    const auto group = static_cast<std::int64_t>(tile_group * element_);
    if (repeat_rows_) {
      const std::int64_t row = position / run_, begin = row * run_;
      const bool one = position + count <= begin + run_;
      repeat_rows_(reinterpret_cast<float*>(buffer), reinterpret_cast<const float*>(operand) + row, run_, one ? 0 : position - begin, one ? tile_group : count);
      return {buffer, one ? 0 : group};
    }
    const std::int64_t inside = position % stretch_;
    const std::int64_t phase = inside % period_;
    if (position >= state.begin && position + count <= state.end && (state.copied == 0 || (count <= state.copied && phase == state.phase)))
      return state.operand;
    const std::byte* base = operand + static_cast<std::size_t>(offset_of(position - inside)) * element_;
    const bool unit = loops_.back().stride == 1;
    state = {};
    if (inside + count <= stretch_ && tile_group % period_ == 0) {
      state = {position - inside, position - inside + stretch_, {base, 0}};
      if (phase != 0) state.begin = state.end = 0;  // another tile may begin elsewhere in the period
      if (!unit || period_ != tile_group || phase != 0) {
        fill_stretch(base, buffer, inside, tile_group);
        state.operand.data = buffer;
      }
      return state.operand;
    }
    if (unit && phase + count <= period_ && count % tile_group == 0) return {base + static_cast<std::size_t>(phase) * element_, group};
    fill(operand, buffer, position, count);
    if (inside + count <= stretch_) state = {position - inside, position - inside + stretch_, {buffer, group}, count, phase};
    return {buffer, group};
  }

 private:
  // Offset in the operand of the element at `position` of the domain.
  std::int64_t offset_of(std::int64_t position) const {
    std::int64_t offset = 0;
    for (std::size_t i = loops_.size(); i-- > 0;) {
      offset += position % loops_[i].extent * loops_[i].stride;
      position /= loops_[i].extent;
    }
    return offset;
  }

  void fill(const std::byte* operand, std::byte* buffer, std::int64_t position, std::int64_t count) const {
    // Only the first stretch needs a division per loop. For each further stretch the loops around it count on.
    const std::size_t around = loops_.size() - (stretch_ == run_ ? 1 : 2);
    std::array<std::int64_t, Shape::max_rank + Layout::max_blocks> index{};
    std::int64_t inside = position % stretch_;
    std::int64_t offset = offset_of(position - inside);
    for (std::int64_t i = static_cast<std::int64_t>(around) - 1, rest = position / stretch_; i >= 0; --i) {
      index[static_cast<std::size_t>(i)] = rest % loops_[static_cast<std::size_t>(i)].extent;
      rest /= loops_[static_cast<std::size_t>(i)].extent;
    }
    while (true) {
      const std::int64_t n = std::min(count, stretch_ - inside);
      fill_stretch(operand + offset * static_cast<std::int64_t>(element_), buffer, inside, n);
      if ((count -= n) == 0) return;
      buffer += static_cast<std::size_t>(n) * element_;
      inside = 0;
      for (std::size_t i = around; i-- > 0;) {
        offset += loops_[i].stride;
        if (++index[i] < loops_[i].extent) break;
        offset -= loops_[i].stride * loops_[i].extent;
        index[i] = 0;
      }
    }
  }
  void fill_stretch(const std::byte* from, std::byte* to, std::int64_t inside, std::int64_t n) const {
    if (element_ == 4) copy_stretch<std::uint32_t>(from, to, inside, n);
    else if (element_ == 2) copy_stretch<std::uint16_t>(from, to, inside, n);
    else if (element_ == 8) copy_stretch<std::uint64_t>(from, to, inside, n);
    else copy_stretch<std::uint8_t>(from, to, inside, n);
  }
  template <class T>
  void copy_stretch(const std::byte* from_bytes, std::byte* to_bytes, std::int64_t inside, std::int64_t n) const {
    const T* from = reinterpret_cast<const T*>(from_bytes);
    T* to = reinterpret_cast<T*>(to_bytes);
    const std::int64_t stride = loops_.back().stride;
    if (stride == 0) return fill_constant(to, *from, n);
    // Copies the first period, then doubles the part that is copied.
    std::int64_t done = std::min(n, period_);
    const std::int64_t phase = inside % period_;
    for (std::int64_t i = 0; i < done; ++i) to[i] = from[(phase + i < period_ ? phase + i : phase + i - period_) * stride];
    while (done < n) {
      const std::int64_t more = std::min(done, n - done);
      std::memcpy(to + done, to, static_cast<std::size_t>(more) * sizeof(T));
      done += more;
    }
  }

  template <class T>
  static void fill_constant(T* to, T value, std::int64_t n) {
    constexpr std::int64_t group = 16;  // a constant count vectorises
    for (; n >= group; n -= group, to += group)
      for (std::int64_t i = 0; i < group; ++i) to[i] = value;
    for (; n > 0; --n) *to++ = value;
  }

  std::vector<OperandLoop> loops_;
  std::size_t element_;
  std::int64_t run_ = 1;     // turns of the innermost loop
  std::int64_t period_ = 1;  // after this many elements the operand repeats within a stretch
  std::int64_t stretch_ = 1;
  void (*repeat_rows_)(float*, const float*, std::int64_t, std::int64_t, std::int64_t) = nullptr;  // where each element is repeated along a row
};

}  // namespace replicator::detail::cpu
