// SPDX-License-Identifier: Apache-2.0
// The kernels of gather and scatter_add on the CPU, on row-major memory. Threads share the elements of the result, so the bits do
// not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/index.hpp>
#include <replicator/cpu/loops/add_rows.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/ops/gather.hpp>

namespace replicator::detail::cpu {

namespace detail {

// The indices of a node, and the axis that they point into.
class IndexList {
 public:
  IndexList(const TensorType& indices, const TensorType& whole, std::int64_t axis, std::optional<IndexOrigin> origin = {})
      : indices_{indices}, whole_{whole}, axis_{axis}, count_{indices.shape.elements()}, origin_{origin} {}

  std::int64_t count() const { return count_; }
  std::int64_t extent() const { return whole_.shape[static_cast<std::size_t>(axis_)]; }
  std::int64_t at(const std::byte* data, std::int64_t i) const {
    if (indices_.dtype == DType::int32) return reinterpret_cast<const std::int32_t*>(data)[i];
    return reinterpret_cast<const std::int64_t*>(data)[i];
  }
  // Throws DataError for the first index outside of the axis.
  void require_inside(const std::byte* data) const {
    const auto limit = static_cast<std::uint64_t>(extent());
    for (std::int64_t i = 0; i < count_; ++i)
      if (static_cast<std::uint64_t>(at(data, i)) >= limit) replicator::detail::refuse_index(indices_, i, at(data, i), whole_, axis_, origin_);
  }

 private:
  TensorType indices_, whole_;
  std::int64_t axis_, count_;
  std::optional<IndexOrigin> origin_;
};

// What both kernels know. `around` is the axis in x for gather, and in the result for scatter_add.
struct IndexedAxis {
  IndexList indices;
  AroundAxis around;
  int threads = 1;
};

class IndexedLoops : public Executable {
 public:
  explicit IndexedLoops(IndexedAxis axis) : axis_{axis} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
    throws = true;
  }

 protected:
  IndexedAxis axis_;
};

// Copies elements as words of their size.
template <class Word>
class GatherLoops final : public IndexedLoops {
 public:
  using IndexedLoops::IndexedLoops;
  void run(const Launch& launch) const override {
    axis_.indices.require_inside(launch.inputs[1]);
    const std::int64_t extent = axis_.around.extent, inner = axis_.around.inner, count = axis_.indices.count();
    const Word* const x = reinterpret_cast<const Word*>(launch.inputs[0]);
    Word* const y = reinterpret_cast<Word*>(launch.outputs[0]);
    parallel_for(axis_.threads, axis_.around.outer * count, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const Word* const from = x + (row / count * extent + axis_.indices.at(launch.inputs[1], row % count)) * inner;
        if (inner == 1)
          y[row] = *from;
        else
          std::memcpy(y + row * inner, from, static_cast<std::size_t>(inner) * sizeof(Word));
      }
    });
  }
};

// Each thread owns some rows of the result. It walks through all indices and adds the slices that belong to its rows.
template <class T>
class ScatterAddLoops final : public IndexedLoops {
 public:
  using IndexedLoops::IndexedLoops;
  void run(const Launch& launch) const override {
    axis_.indices.require_inside(launch.inputs[1]);
    const std::int64_t extent = axis_.around.extent, inner = axis_.around.inner;
    const T* const x = reinterpret_cast<const T*>(launch.inputs[0]);
    T* const y = reinterpret_cast<T*>(launch.outputs[0]);
    parallel_for(axis_.threads, axis_.around.outer * extent, [&](int, std::int64_t begin, std::int64_t end) {
      std::memset(y + begin * inner, 0, static_cast<std::size_t>((end - begin) * inner) * sizeof(T));
      for (std::int64_t o = begin / extent; o * extent < end; ++o) add(o, begin, end, launch.inputs[1], x, y);
    });
  }

 private:
  // Adds the slices at position o of the leading axes to the rows [begin, end) of the result.
  void add(std::int64_t o, std::int64_t begin, std::int64_t end, const std::byte* indices, const T* x, T* y) const {
    const std::int64_t extent = axis_.around.extent, inner = axis_.around.inner, count = axis_.indices.count();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = o * extent + axis_.indices.at(indices, i);
      if (row >= begin && row < end) add_rows(y + row * inner, y + row * inner, x + (o * count + i) * inner, inner);
    }
  }
};

inline std::unique_ptr<Executable> make_gather(const KernelRequest& request) {
  const auto& op = *request.operation.get<Gather>();
  const auto& x = request.inputs[0];
  const IndexedAxis indexed{
      {request.inputs[1], x, op.axis, op.origin}, around_axis(x.shape, static_cast<std::size_t>(op.axis)), request.threads};
  switch (size_of(x.dtype)) {
    case 1:
      return std::make_unique<GatherLoops<std::uint8_t>>(indexed);
    case 2:
      return std::make_unique<GatherLoops<std::uint16_t>>(indexed);
    case 4:
      return std::make_unique<GatherLoops<std::uint32_t>>(indexed);
    case 8:
      return std::make_unique<GatherLoops<std::uint64_t>>(indexed);
    default:
      return nullptr;
  }
}

inline std::unique_ptr<Executable> make_scatter_add(const KernelRequest& request) {
  const auto axis = request.operation.get<ScatterAdd>()->axis;
  const auto& y = request.outputs[0];
  const IndexedAxis indexed{
      {request.inputs[1], y, axis}, around_axis(y.shape, static_cast<std::size_t>(axis)), request.threads};
  switch (y.dtype) {
    case DType::float32:
      return std::make_unique<ScatterAddLoops<float>>(indexed);
    case DType::float64:
      return std::make_unique<ScatterAddLoops<double>>(indexed);
    case DType::int32:
      return std::make_unique<ScatterAddLoops<std::int32_t>>(indexed);
    case DType::int64:
      return std::make_unique<ScatterAddLoops<std::int64_t>>(indexed);
    case DType::bfloat16:
      return in_float32(request, &make_scatter_add);
    default:
      return nullptr;
  }
}

}  // namespace detail

inline constexpr Kernel gather_loops{"gather loops", &detail::make_gather};
inline constexpr Kernel scatter_add_loops{"scatter_add loops", &detail::make_scatter_add};

inline const bool gather_loops_registered =
    register_kernel<Gather>(DeviceKind::cpu, KernelTier::reference, &gather_loops) &&
    register_kernel<ScatterAdd>(DeviceKind::cpu, KernelTier::reference, &scatter_add_loops);

}  // namespace replicator::detail::cpu
