// SPDX-License-Identifier: Apache-2.0
// Base class of kernels on GPUs that take indices into an axis. An index that lies outside is noted for the host, which ends the
// step. Until then it is read as 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/ops/movement/around_axis.hpp>

namespace replicator::detail::cuda {

// Indices into an axis of this extent. Where the extent is 0, none can be used.
struct Indices {
  DType dtype = DType::int32;
  const std::byte* data = nullptr;
  std::int64_t count = 0, extent = 0;

  __device__ std::int64_t stored(std::int64_t i) const { return load<std::int64_t>(dtype, data, i); }
  __device__ bool outside(std::int64_t i) const { return stored(i) < 0 || stored(i) >= extent; }
  __device__ std::int64_t operator[](std::int64_t i) const { return outside(i) ? 0 : stored(i); }
};

// Sets *number to the number of the first index that lies outside, unless it is smaller already.
template <class Number>
__global__ void find_outside(Indices indices, Number* number) {
  for (std::int64_t i = first_element(); i < indices.count; i += element_stride())
    if (indices.outside(i)) atomicMin(number, static_cast<Number>(i));
}
// Runs after find_outside, and stores the value of the index that it found.
template <class Refused>
__global__ void note_value(Indices indices, Refused* refused) {
  if (first_element() == 0 && refused->number != Refused::none) refused->value = indices.stored(static_cast<std::int64_t>(refused->number));
}

// `whole` has the axis that the indices point into: x for gather, the result for scatter_add. In the other tensor, `count`
// indices replace this axis.
class IndexedExecutable : public Executable {
 public:
  IndexedExecutable(const TensorType& indices, const TensorType& whole, std::int64_t axis, std::optional<replicator::detail::IndexOrigin> origin = {})
      : indices_{indices},
        whole_{whole},
        axis_{axis},
        around_{around_axis(whole.shape, static_cast<std::size_t>(axis))},
        count_{indices.shape.elements()},
        origin_{std::move(origin)} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
    refuses = true;
  }
  void refuse(const Refusal& refusal) const override {
    replicator::detail::refuse_index(indices_, static_cast<std::int64_t>(refusal.number), refusal.value, whole_, axis_, origin_);
  }

 protected:
  Indices indices(const Launch& launch) const { return {indices_.dtype, launch.inputs[1], count_, around_.extent}; }
  void note_outside(const Launch& launch) const {
    if (count_ == 0) return;
    const cudaStream_t stream = stream_of(launch.stream);
    find_outside<<<blocks_for(count_, block_threads), block_threads, 0, stream>>>(indices(launch),
                                                                                  reinterpret_cast<unsigned long long*>(&launch.refused->number));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
    note_value<<<1, 1, 0, stream>>>(indices(launch), launch.refused);
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

  TensorType indices_, whole_;
  std::int64_t axis_;
  AroundAxis around_;
  std::int64_t count_;
  std::optional<replicator::detail::IndexOrigin> origin_;
};

}  // namespace replicator::detail::cuda
