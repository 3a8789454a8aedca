// SPDX-License-Identifier: Apache-2.0
// gather and scatter_add on GPUs, an element of the result for each thread. The indices are looked at before anything
// is written; that waits for the queue once, for only the host can throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include <replicator/cuda/arithmetic.cuh>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/words.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/around_axis.hpp>
#include <replicator/ops/gather.hpp>

namespace replicator::cuda {

// *number becomes the number of the first index outside of [0, extent), where there is one before it.
template <class Number>
__global__ void find_outside(DType dtype, const std::byte* indices, std::int64_t count, std::int64_t extent, Number* number) {
  for (std::int64_t i = first_element(); i < count; i += element_stride())
    if (const auto index = load<std::int64_t>(dtype, indices, i); index < 0 || index >= extent) atomicMin(number, static_cast<Number>(i));
}

// `around` is the axis in x of gather, in the result of scatter_add; `count` indices stand in its place in the other tensor.
template <class Word>
__global__ void gather_words(AroundAxis around, DType dtype, const std::byte* indices, std::int64_t count, const Word* x, Word* y) {
  const std::int64_t elements = around.outer * count * around.inner;
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) {
    const std::int64_t row = i / around.inner;
    y[i] = x[(row / count * around.extent + load<std::int64_t>(dtype, indices, row % count)) * around.inner + i % around.inner];
  }
}

template <class Stored>
__global__ void scatter_add(AroundAxis around, DType dtype, const std::byte* indices, std::int64_t count, const Stored* x, Stored* y) {
  const std::int64_t elements = around.outer * around.extent * around.inner;
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) {
    const std::int64_t inner = i % around.inner, own = i / around.inner % around.extent, outer = i / around.inner / around.extent;
    compute_of<Stored> sum{};
    for (std::int64_t k = 0; k < count; ++k)
      if (load<std::int64_t>(dtype, indices, k) == own) sum = plus(sum, value_of(x[(outer * count + k) * around.inner + inner]));
    y[i] = stored<Stored>(sum);
  }
}

class IndexedExecutable : public Executable {
 public:
  IndexedExecutable(const TensorType& indices, const TensorType& whole, std::int64_t axis)
      : indices_{indices},
        whole_{whole},
        axis_{axis},
        around_{around_axis(whole.shape, static_cast<std::size_t>(axis))},
        count_{indices.shape.elements()} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
    scratch_bytes = sizeof(unsigned long long);
    needs_host = true;
  }

 protected:
  // Throws DataError for the first index outside of the axis.
  void require_inside(const Launch& launch) const {
    if (count_ == 0) return;
    const cudaStream_t stream = stream_of(launch.stream);
    auto* const found = reinterpret_cast<unsigned long long*>(launch.scratch);
    auto first = std::numeric_limits<unsigned long long>::max();
    REPLICATOR_CUDA_CHECK(cudaMemsetAsync(found, 0xFF, sizeof first, stream));
    find_outside<<<blocks_for(count_, block_threads), block_threads, 0, stream>>>(indices_.dtype, launch.inputs[1], count_, around_.extent, found);
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
    REPLICATOR_CUDA_CHECK(cudaMemcpyAsync(&first, found, sizeof first, cudaMemcpyDeviceToHost, stream));
    REPLICATOR_CUDA_CHECK(cudaStreamSynchronize(stream));
    if (first < static_cast<unsigned long long>(count_)) refuse(launch, static_cast<std::int64_t>(first));
  }

  TensorType indices_, whole_;
  std::int64_t axis_;
  AroundAxis around_;
  std::int64_t count_;

 private:
  [[noreturn]] void refuse(const Launch& launch, std::int64_t number) const {
    std::int64_t value = 0;
    const std::size_t bytes = size_of(indices_.dtype);
    REPLICATOR_CUDA_CHECK(cudaMemcpyAsync(&value, launch.inputs[1] + static_cast<std::size_t>(number) * bytes, bytes, cudaMemcpyDeviceToHost,
                                          stream_of(launch.stream)));
    REPLICATOR_CUDA_CHECK(cudaStreamSynchronize(stream_of(launch.stream)));
    if (bytes == 4) value = static_cast<std::int32_t>(value);  // its low half was written
    replicator::detail::refuse_index(indices_, number, value, whole_, axis_);
  }
};

template <class Word>
class GatherExecutable final : public IndexedExecutable {
 public:
  using IndexedExecutable::IndexedExecutable;
  void run(const Launch& launch) const override {
    require_inside(launch);
    const std::int64_t elements = around_.outer * count_ * around_.inner;
    if (elements == 0) return;
    gather_words<<<blocks_for(elements, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
        around_, indices_.dtype, launch.inputs[1], count_, reinterpret_cast<const Word*>(launch.inputs[0]),
        reinterpret_cast<Word*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }
};

template <class Stored>
class ScatterAddExecutable final : public IndexedExecutable {
 public:
  using IndexedExecutable::IndexedExecutable;
  void run(const Launch& launch) const override {
    require_inside(launch);
    const std::int64_t elements = around_.outer * around_.extent * around_.inner;
    if (elements == 0) return;
    scatter_add<<<blocks_for(elements, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
        around_, indices_.dtype, launch.inputs[1], count_, reinterpret_cast<const Stored*>(launch.inputs[0]),
        reinterpret_cast<Stored*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }
};

inline std::unique_ptr<Executable> make_gather(const KernelRequest& request) {
  const auto& x = request.inputs[0];
  return visit_word(x.dtype, [&]<class Word>() -> std::unique_ptr<Executable> {
    return std::make_unique<GatherExecutable<Word>>(request.inputs[1], x, request.operation.get<Gather>()->axis);
  });
}

inline std::unique_ptr<Executable> make_scatter_add(const KernelRequest& request) {
  const auto& y = request.outputs[0];
  const auto make = [&]<class Stored>() -> std::unique_ptr<Executable> {
    return std::make_unique<ScatterAddExecutable<Stored>>(request.inputs[1], y, request.operation.get<ScatterAdd>()->axis);
  };
  switch (y.dtype) {
    case DType::float32: return make.template operator()<float>();
    case DType::float64: return make.template operator()<double>();
    case DType::int32: return make.template operator()<std::int32_t>();
    case DType::int64: return make.template operator()<std::int64_t>();
    case DType::bfloat16: return make.template operator()<Bfloat16Word>();
    default: return nullptr;
  }
}

inline constexpr Kernel gather_kernel{"cuda gather", &make_gather};
inline constexpr Kernel scatter_add_kernel{"cuda scatter_add", &make_scatter_add};

inline const bool gather_registered = register_kernel<Gather>(DeviceKind::cuda, KernelTier::reference, &gather_kernel) &&
                                      register_kernel<ScatterAdd>(DeviceKind::cuda, KernelTier::reference, &scatter_add_kernel);

}  // namespace replicator::cuda
