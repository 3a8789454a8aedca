// SPDX-License-Identifier: Apache-2.0
// Reorders a tensor from one layout to another; padding is written as zero.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/cpu/parallel.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::cpu {

namespace detail {

// One digit of an axis' index in a mixed radix: `step` is its weight.
struct CopyLoop {
  std::int64_t extent = 1;
  std::int64_t from = 0;  // strides in elements
  std::int64_t to = 0;
  std::size_t axis = 0;
  std::int64_t step = 1;
  bool padded = false;  // the axis may end within this loop
};

// The weights at which a layout cuts the index of `axis`, innermost first, with the stride of each digit.
struct AxisDigits {
  std::vector<std::int64_t> weight{1};
  std::vector<std::int64_t> stride;

  AxisDigits(const Layout& layout, const Shape& shape, std::size_t axis) {
    if (layout.plain) {
      stride = {shape.strides()[axis]};
      return;
    }
    std::int64_t inside = 1;
    for (std::size_t b = layout.blocks; b-- > 0; inside *= layout.size[b])
      if (layout.axis[b] == axis) {
        weight.push_back(weight.back() * layout.size[b]);
        stride.push_back(inside);
      }
    stride.push_back(layout.strides[axis]);
  }
  bool cuts_at(std::int64_t at) const { return std::find(weight.begin(), weight.end(), at) != weight.end(); }
  // Stride of a digit of this weight, which need not be one of this layout's own.
  std::int64_t stride_at(std::int64_t at) const {
    std::size_t digit = weight.size() - 1;
    while (weight[digit] > at) --digit;
    return at / weight[digit] * stride[digit];
  }
};

}  // namespace detail

class CopyExecutable final : public Executable {
 public:
  CopyExecutable(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads)
      : shape_{shape}, element_{size_of(dtype)}, threads_{shape.elements() < 1 << 16 ? 1 : threads} {
    input_layouts = {from};
    output_layouts = {to};
    in_place = {-1};
    bytes_ = static_cast<std::size_t>(storage_elements(to, shape)) * element_;
    clear_ = !is_dense(to, shape);
    for (std::size_t axis = 0; axis < shape.rank(); ++axis)
      if (!add_axis(axis, {from, shape, axis}, {to, shape, axis})) {
        // Blocks that do not divide each other: by way of the plain layout.
        first_ = std::make_unique<CopyExecutable>(shape, dtype, from, Layout{}, threads);
        second_ = std::make_unique<CopyExecutable>(shape, dtype, Layout{}, to, threads);
        scratch_bytes = static_cast<std::size_t>(shape.elements()) * element_;
        return;
      }
    order_loops();
  }

  void run(const Launch& launch) const override {
    if (first_) {
      std::byte* plain = launch.scratch;
      first_->run({launch.inputs, &plain, nullptr, launch.context, launch.stream});
      const std::byte* read = plain;
      second_->run({&read, launch.outputs, nullptr, launch.context, launch.stream});
      return;
    }
    if (clear_) std::memset(launch.outputs[0], 0, bytes_);
    if (shape_.elements() == 0) return;
    parallel_for(threads_, turns(loops_[0], {}), [&](int, std::int64_t begin, std::int64_t end) {
      if (element_ == 4) copy<std::uint32_t>(launch, begin, end);
      else if (element_ == 8) copy<std::uint64_t>(launch, begin, end);
      else if (element_ == 2) copy<std::uint16_t>(launch, begin, end);
      else copy<std::uint8_t>(launch, begin, end);
    });
  }

 private:
  using Coordinates = std::array<std::int64_t, Shape::max_rank>;

  // False where the digits of the two layouts do not fit each other.
  bool add_axis(std::size_t axis, const detail::AxisDigits& from, const detail::AxisDigits& to) {
    std::vector<std::int64_t> weights = from.weight;
    for (const auto weight : to.weight)
      if (!from.cuts_at(weight)) weights.push_back(weight);
    std::sort(weights.begin(), weights.end());
    for (std::size_t i = weights.size(); i-- > 0;) {
      const bool outermost = i + 1 == weights.size();
      if (!outermost && weights[i + 1] % weights[i] != 0) return false;
      const std::int64_t extent = outermost ? (shape_[axis] + weights[i] - 1) / weights[i] : weights[i + 1] / weights[i];
      const bool padded = shape_[axis] % weights.back() != 0;
      if (extent != 1 || padded) loops_.push_back({extent, from.stride_at(weights[i]), to.stride_at(weights[i]), axis, weights[i], padded});
    }
    return true;
  }

  // Outermost first as the result is stored, but for the loop that is contiguous in the source: next to the innermost.
  void order_loops() {
    std::stable_sort(loops_.begin(), loops_.end(), [](const auto& a, const auto& b) { return a.to > b.to; });
    std::vector<detail::CopyLoop> merged;
    for (const auto& loop : loops_) {
      auto* outer = merged.empty() ? nullptr : &merged.back();
      if (outer && !outer->padded && !loop.padded && outer->from == loop.from * loop.extent && outer->to == loop.to * loop.extent)
        *outer = {outer->extent * loop.extent, loop.from, loop.to, loop.axis, loop.step, false};
      else
        merged.push_back(loop);
    }
    loops_ = std::move(merged);
    while (loops_.size() < 2) loops_.insert(loops_.begin(), detail::CopyLoop{});
    const auto contiguous = std::find_if(loops_.begin(), loops_.end() - 1, [](const auto& l) { return l.from == 1 && l.extent > 1; });
    // The digits of a padded axis stay in order, for its end is found from the outer ones.
    if (contiguous < loops_.end() - 1 && !contiguous->padded) std::rotate(contiguous, contiguous + 1, loops_.end() - 1);
  }

  // How many turns of the loop lie inside the tensor.
  std::int64_t turns(const detail::CopyLoop& loop, const Coordinates& at) const {
    if (!loop.padded) return loop.extent;
    const std::int64_t left = shape_[loop.axis] - at[loop.axis];
    return std::clamp<std::int64_t>((left + loop.step - 1) / loop.step, 0, loop.extent);
  }

  template <class T>
  void copy(const Launch& launch, std::int64_t begin, std::int64_t end) const {
    const T* from = reinterpret_cast<const T*>(launch.inputs[0]);
    T* to = reinterpret_cast<T*>(launch.outputs[0]);
    const auto& outer = loops_[0];
    Coordinates at{};
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
  void copy_inside(std::size_t depth, const T* from, T* to, Coordinates at) const {
    const auto& loop = loops_[depth];
    const std::int64_t n = turns(loop, at);
    if (depth + 2 == loops_.size()) return copy_tile(from, to, n, at);
    for (std::int64_t i = 0; i < n; ++i, at[loop.axis] += loop.step) copy_inside(depth + 1, from + i * loop.from, to + i * loop.to, at);
  }

  // The two innermost loops, `rows` turns of the outer one; 16 by 16, so that both sides keep their cache lines.
  template <class T>
  void copy_tile(const T* from, T* to, std::int64_t rows, Coordinates at) const {
    constexpr std::int64_t side = 16;
    const auto &outer = loops_[loops_.size() - 2], &inner = loops_.back();
    if (inner.from == 1 && inner.to == 1) {
      for (std::int64_t i = 0; i < rows; ++i, at[outer.axis] += outer.step)
        std::memcpy(to + i * outer.to, from + i * outer.from, static_cast<std::size_t>(turns(inner, at)) * sizeof(T));
      return;
    }
    if (outer.padded && outer.axis == inner.axis) {
      for (std::int64_t i = 0; i < rows; ++i, at[outer.axis] += outer.step)
        copy_rectangle(from + i * outer.from, to + i * outer.to, 1, turns(inner, at), outer, inner);
      return;
    }
    const std::int64_t columns = turns(inner, at);
    for (std::int64_t i = 0; i < rows; i += side)
      for (std::int64_t j = 0; j < columns; j += side)
        copy_rectangle(from + i * outer.from + j * inner.from, to + i * outer.to + j * inner.to, std::min(side, rows - i),
                       std::min(side, columns - j), outer, inner);
  }

  template <class T>
  static void copy_rectangle(const T* from, T* to, std::int64_t rows, std::int64_t columns, const detail::CopyLoop& outer,
                             const detail::CopyLoop& inner) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) to[i * outer.to + j * inner.to] = from[i * outer.from + j * inner.from];
  }

  Shape shape_;
  std::size_t element_;
  int threads_;
  std::size_t bytes_ = 0;  // of the result
  bool clear_ = false;
  std::vector<detail::CopyLoop> loops_;
  std::unique_ptr<CopyExecutable> first_, second_;
};

// A copy of `shape` elements from one layout to another; any two layouts, for equal ones too.
inline std::unique_ptr<Executable> make_copy(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads = 1) {
  return std::make_unique<CopyExecutable>(shape, dtype, from, to, threads);
}

inline std::unique_ptr<Executable> make_layout_copy(const KernelRequest& request) {
  return make_copy(request.inputs[0].shape, request.inputs[0].dtype, request.offered[0], request.operation.get<LayoutCopy>()->to,
                   request.threads);
}
inline constexpr Kernel copy_kernel{"cpu loops", &make_layout_copy};
inline const bool copy_registered = register_kernel<LayoutCopy>(DeviceKind::cpu, KernelTier::reference, &copy_kernel);

}  // namespace replicator::cpu
