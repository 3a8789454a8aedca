// SPDX-License-Identifier: Apache-2.0
// The kernel of LayoutCopy on the CPU: copies a tensor from one layout to another. Padding is written as zero.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/cpu/loops/copy_loops.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/rectangle_copy.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail::cpu {

class CopyExecutable final : public Executable {
 public:
  CopyExecutable(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads, InstructionLevel level)
      : shape_{shape}, element_{size_of(dtype)}, threads_{shape.elements() < 1 << 16 ? 1 : threads} {
    input_layouts = {from};
    output_layouts = {to};
    in_place = {-1};
    bytes_ = static_cast<std::size_t>(storage_elements(to, shape)) * element_;
    clear_ = !is_dense(to, shape);
    auto loops = detail::copy_loops(shape, from, to);
    if (!loops) {
      // The blocks of the two layouts do not divide each other, so the copy goes through the plain layout in scratch memory.
      first_ = std::make_unique<CopyExecutable>(shape, dtype, from, Layout{}, threads, level);
      second_ = std::make_unique<CopyExecutable>(shape, dtype, Layout{}, to, threads, level);
      scratch_bytes = static_cast<std::size_t>(shape.elements()) * element_;
      return;
    }
    rectangles_ = detail::RectangleCopy::of(*loops, shape, element_, level);
    loops_ = std::move(*loops);
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
    if (rectangles_) return rectangles_->run(launch.inputs[0], launch.outputs[0], threads_);
    parallel_for(threads_, detail::turns(loops_[0], shape_, {}), [&](int, std::int64_t begin, std::int64_t end) {
      if (element_ == 4) copy<std::uint32_t>(launch, begin, end);
      else if (element_ == 8) copy<std::uint64_t>(launch, begin, end);
      else if (element_ == 2) copy<std::uint16_t>(launch, begin, end);
      else copy<std::uint8_t>(launch, begin, end);
    });
  }

 private:
  // Makes at least two loops. Puts the loop that is contiguous in the source next to the innermost one.
  void order_loops() {
    while (loops_.size() < 2) loops_.insert(loops_.begin(), detail::CopyLoop{});
    const auto contiguous = std::find_if(loops_.begin(), loops_.end() - 1, [](const auto& l) { return l.from == 1 && l.extent > 1; });
    // The digits of an axis that is cut stay in order, because the outer digits decide where the axis ends.
    if (contiguous < loops_.end() - 1 && !contiguous->cut) std::rotate(contiguous, contiguous + 1, loops_.end() - 1);
  }

  template <class T>
  void copy(const Launch& launch, std::int64_t begin, std::int64_t end) const {
    const T* from = reinterpret_cast<const T*>(launch.inputs[0]);
    T* to = reinterpret_cast<T*>(launch.outputs[0]);
    const auto& outer = loops_[0];
    detail::CopyPosition at{};
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
  void copy_inside(std::size_t depth, const T* from, T* to, detail::CopyPosition at) const {
    const auto& loop = loops_[depth];
    const std::int64_t n = detail::turns(loop, shape_, at);
    if (depth + 2 == loops_.size()) return copy_tile(from, to, n, at);
    for (std::int64_t i = 0; i < n; ++i, at[loop.axis] += loop.step) copy_inside(depth + 1, from + i * loop.from, to + i * loop.to, at);
  }

  // Runs the two innermost loops for `rows` turns of the outer one. Tiles of 16 by 16 reuse the cache lines of both sides.
  template <class T>
  void copy_tile(const T* from, T* to, std::int64_t rows, detail::CopyPosition at) const {
    constexpr std::int64_t side = 16;
    const auto &outer = loops_[loops_.size() - 2], &inner = loops_.back();
    if (inner.from == 1 && inner.to == 1) {
      for (std::int64_t i = 0; i < rows; ++i, at[outer.axis] += outer.step)
        std::memcpy(to + i * outer.to, from + i * outer.from, static_cast<std::size_t>(detail::turns(inner, shape_, at)) * sizeof(T));
      return;
    }
    if (outer.cut && outer.axis == inner.axis) {
      for (std::int64_t i = 0; i < rows; ++i, at[outer.axis] += outer.step)
        copy_elements(from + i * outer.from, to + i * outer.to, 1, detail::turns(inner, shape_, at), outer, inner);
      return;
    }
    const std::int64_t columns = detail::turns(inner, shape_, at);
    for (std::int64_t i = 0; i < rows; i += side)
      for (std::int64_t j = 0; j < columns; j += side)
        copy_elements(from + i * outer.from + j * inner.from, to + i * outer.to + j * inner.to, std::min(side, rows - i),
                      std::min(side, columns - j), outer, inner);
  }

  template <class T>
  static void copy_elements(const T* from, T* to, std::int64_t rows, std::int64_t columns, const detail::CopyLoop& outer,
                            const detail::CopyLoop& inner) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) to[i * outer.to + j * inner.to] = from[i * outer.from + j * inner.from];
  }

  Shape shape_;
  std::size_t element_;
  int threads_;
  std::size_t bytes_ = 0;  // of the result
  bool clear_ = false;
  std::optional<detail::RectangleCopy> rectangles_;
  std::vector<detail::CopyLoop> loops_;  // where there are no rectangles
  std::unique_ptr<CopyExecutable> first_, second_;
};

// Whether such a copy moves rectangles through registers (RectangleCopy).
inline bool copies_rectangles(const Shape& shape, DType dtype, const Layout& from, const Layout& to) {
  const auto loops = detail::copy_loops(shape, from, to);
  return loops && detail::RectangleCopy::of(*loops, shape, size_of(dtype), instruction_level());
}

// Makes the executable that copies a tensor of this shape from one layout to another. The two may be equal.
inline std::unique_ptr<Executable> make_copy(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads = 1,
                                             InstructionLevel level = instruction_level()) {
  return std::make_unique<CopyExecutable>(shape, dtype, from, to, threads, level);
}

inline std::unique_ptr<Executable> make_layout_copy(const KernelRequest& request) {
  return make_copy(request.inputs[0].shape, request.inputs[0].dtype, request.offered[0], request.operation.get<LayoutCopy>()->to,
                   request.threads);
}
inline constexpr Kernel copy_kernel{"cpu loops", &make_layout_copy};
inline const bool copy_registered = register_kernel<LayoutCopy>(DeviceKind::cpu, KernelTier::reference, &copy_kernel);

}  // namespace replicator::detail::cpu
