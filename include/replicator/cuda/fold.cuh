// SPDX-License-Identifier: Apache-2.0
// Combines two operands of the reduction tree over replicas, with the bits of collectives/reduction.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <replicator/core/dtype.hpp>
#include <replicator/core/reduction.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/launch.cuh>

namespace replicator::detail::cuda {

// A NaN wins. Of equal values, such as the two zeros, the right one is taken.
template <class T>
__device__ T combine(Reduction reduction, T left, T right) {
  if (reduction == Reduction::min) return left < right || left != left ? left : right;
  if (reduction == Reduction::max) return left > right || left != left ? left : right;
  return plus(left, right);
}

template <class T>
__global__ void fold_elements(Reduction reduction, T* into, const T* left, const T* right, std::int64_t elements) {
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) into[i] = combine(reduction, left[i], right[i]);
}

// The same for bfloat16, which is combined as floats and then rounded.
template <class Word>
__global__ void fold_bfloat16(Reduction reduction, Word* into, const Word* left, const Word* right, std::int64_t elements) {
  for (std::int64_t i = first_element(); i < elements; i += element_stride())
    into[i] = to_bfloat16(combine(reduction, from_bfloat16(left[i]), from_bfloat16(right[i])));
}

// into = combine(left, right)
inline void fold(void* queue, DType dtype, Reduction reduction, std::byte* into, const std::byte* left, const std::byte* right, std::int64_t elements) {
  if (elements == 0) return;
  const auto launch = [&]<class T>() {
    fold_elements<T><<<blocks_for(elements, block_threads), block_threads, 0, stream_of(queue)>>>(
        reduction, reinterpret_cast<T*>(into), reinterpret_cast<const T*>(left), reinterpret_cast<const T*>(right), elements);
  };
  if (dtype == DType::bfloat16)
    fold_bfloat16<<<blocks_for(elements, block_threads), block_threads, 0, stream_of(queue)>>>(
        reduction, reinterpret_cast<std::uint16_t*>(into), reinterpret_cast<const std::uint16_t*>(left), reinterpret_cast<const std::uint16_t*>(right),
        elements);
  else if (dtype == DType::uint8 || dtype == DType::boolean) launch.operator()<std::uint8_t>();
  else visit_compute(dtype, launch);
  REPLICATOR_CUDA_CHECK(cudaGetLastError());
}

}  // namespace replicator::detail::cuda
