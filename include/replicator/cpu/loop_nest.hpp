// SPDX-License-Identifier: Apache-2.0
// A tensor's elements as a nest of loops in the order in which they are stored, and smaller operands seen along it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>

namespace replicator::cpu {

// One loop over a dense tensor as stored: `step` is by how much one turn advances the index of `axis`.
struct StorageLoop {
  std::int64_t extent = 1;
  std::size_t axis = 0;
  std::int64_t step = 1;
};

// Outermost first; without loops of one turn. The layout must be dense.
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

// One loop of an operand: `stride` elements per turn, 0 where it is broadcast.
struct OperandLoop {
  std::int64_t extent = 1;
  std::int64_t stride = 0;
};

// A plain tensor broadcast to `domain` (NumPy), seen along the loops of the domain; neighbours that are one are merged.
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

// True where the operand's memory is in the order of the domain's, element for element.
inline bool is_linear(const std::vector<OperandLoop>& loops) {
  return loops.size() == 1 && (loops[0].stride == 1 || loops[0].extent == 1);
}

// Presents a broadcast operand as contiguous elements, a stretch of the domain at a time. A stretch that equals the
// last one is not written again: what a channel's constant costs is paid once per channel.
class BroadcastOperand {
 public:
  // `element`: bytes of one.
  BroadcastOperand(std::vector<OperandLoop> loops, std::size_t element) : loops_{std::move(loops)}, element_{element} {
    run_ = loops_.back().extent;
    const bool repeats = loops_.back().stride != 0 && loops_.size() > 1 && loops_[loops_.size() - 2].stride == 0;
    period_ = loops_.back().stride == 0 ? 1 : run_;
    stretch_ = repeats ? run_ * loops_[loops_.size() - 2].extent : run_;
  }

  // Elements over which only a period of the operand is read: tiles that end at its multiples are filled seldom.
  std::int64_t stretch() const { return stretch_; }

  // What one buffer holds: a stretch's elements from a phase on. One per thread and operand.
  struct State {
    std::int64_t begin = 0;   // of the stretch, in the domain
    std::int64_t base = -1;   // where the stretch begins in the operand
    std::int64_t phase = -1;  // place in the period
    std::int64_t count = 0;   // elements in the buffer
  };

  // Elements [position, position + count) of the domain: in `buffer`, or the operand's own memory where `count` of them
  // lie there and `borrow` allows it.
  const std::byte* present(const std::byte* operand, std::byte* buffer, std::int64_t position, std::int64_t count, bool borrow,
                           State& state) const {
    const bool fits = count <= state.count;
    if (fits && position >= state.begin && position + count <= state.begin + stretch_ && position % period_ == state.phase)
      return buffer;
    const std::int64_t inside = position % stretch_;
    const std::int64_t base = offset_of(position - inside);
    const std::int64_t phase = inside % period_;
    if (borrow && loops_.back().stride == 1 && phase + count <= period_)
      return operand + static_cast<std::size_t>(base + phase) * element_;
    const bool whole = inside + count <= stretch_;
    if (!(whole && fits && state.base == base && phase == state.phase)) fill(operand, buffer, position, count);
    state = whole ? State{position - inside, base, phase, std::max(count, state.base == base ? state.count : 0)} : State{};
    return buffer;
  }

 private:
  // Where the element at `position` of the domain lies in the operand.
  std::int64_t offset_of(std::int64_t position) const {
    std::int64_t offset = 0;
    for (std::size_t i = loops_.size(); i-- > 0;) {
      offset += position % loops_[i].extent * loops_[i].stride;
      position /= loops_[i].extent;
    }
    return offset;
  }

  void fill(const std::byte* operand, std::byte* buffer, std::int64_t position, std::int64_t count) const {
    while (count > 0) {
      const std::int64_t inside = position % stretch_;
      const std::int64_t n = std::min(count, stretch_ - inside);
      fill_stretch(operand + static_cast<std::size_t>(offset_of(position - inside)) * element_, buffer, inside, n);
      position += n;
      count -= n;
      buffer += static_cast<std::size_t>(n) * element_;
    }
  }
  void fill_stretch(const std::byte* from, std::byte* to, std::int64_t inside, std::int64_t n) const {
    if (element_ == 4) copy_stretch<std::uint32_t>(from, to, inside, n);
    else if (element_ == 8) copy_stretch<std::uint64_t>(from, to, inside, n);
    else copy_stretch<std::uint8_t>(from, to, inside, n);
  }
  template <class T>
  void copy_stretch(const std::byte* from_bytes, std::byte* to_bytes, std::int64_t inside, std::int64_t n) const {
    const T* from = reinterpret_cast<const T*>(from_bytes);
    T* to = reinterpret_cast<T*>(to_bytes);
    const std::int64_t stride = loops_.back().stride;
    if (stride == 0) {
      std::fill_n(to, n, *from);
      return;
    }
    // The first period, then what is there doubles.
    std::int64_t done = std::min(n, period_);
    const std::int64_t phase = inside % period_;
    for (std::int64_t i = 0; i < done; ++i) to[i] = from[(phase + i < period_ ? phase + i : phase + i - period_) * stride];
    while (done < n) {
      const std::int64_t more = std::min(done, n - done);
      std::memcpy(to + done, to, static_cast<std::size_t>(more) * sizeof(T));
      done += more;
    }
  }

  std::vector<OperandLoop> loops_;
  std::size_t element_;
  std::int64_t run_ = 1;      // turns of the innermost loop
  std::int64_t period_ = 1;   // after so many elements the operand repeats within a stretch
  std::int64_t stretch_ = 1;
};

}  // namespace replicator::cpu
