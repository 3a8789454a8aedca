// SPDX-License-Identifier: Apache-2.0
// What kernels of GPUs do with indices into an axis: they are looked at before anything is written. That waits for the queue once, for only
// the host can throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <replicator/cuda/arithmetic.cuh>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/launch.cuh>
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

// `whole` has the axis that they point into: x of gather, the result of scatter_add. `count` indices stand in its place in the other tensor.
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

}  // namespace replicator::cuda
