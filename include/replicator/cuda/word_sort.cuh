// SPDX-License-Identifier: Apache-2.0
// Stable sorting of words on GPUs by some of their bits, with CUB. The sorted bits decide the order; the other bits say where an
// element lies. All sorting goes through this class, because its kernels take nvcc long.
#pragma once

#include <cuda_runtime.h>

#include <cub/device/device_radix_sort.cuh>

#include <bit>
#include <cstddef>
#include <cstdint>

#include <replicator/cuda/check.cuh>

namespace replicator::detail::cuda {

// Number of bits that tell `count` values apart.
inline int bits_for(std::int64_t count) { return count > 1 ? std::bit_width(static_cast<std::uint64_t>(count - 1)) : 0; }

class WordSort {
 public:
  // Sorts `count` words by their bits [first, behind).
  WordSort(std::int64_t count, int first, int behind) : count_{count}, first_{first}, behind_{behind} {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
      (void)cudaGetLastError();  // no GPU: what is planned will not run
      return;
    }
    cub::DoubleBuffer<std::uint64_t> rows{nullptr, nullptr};
    sort(nullptr, cub_bytes_, rows, nullptr);
  }

  // Room for two rows of words, and for CUB's own needs.
  std::size_t scratch_bytes() const { return 2 * row_bytes() + cub_bytes_; }
  // Where to write the words that are to be sorted.
  std::uint64_t* words(std::byte* scratch) const { return reinterpret_cast<std::uint64_t*>(scratch); }
  // Sorts the words and returns where they lie then. They may be sorted there again. Their old place is overwritten too.
  std::uint64_t* run(std::byte* scratch, std::uint64_t* words, cudaStream_t stream) const {
    auto* const first = reinterpret_cast<std::uint64_t*>(scratch);
    cub::DoubleBuffer<std::uint64_t> rows{words, words == first ? first + count_ : first};
    std::size_t bytes = cub_bytes_;
    sort(scratch + 2 * row_bytes(), bytes, rows, stream);
    return rows.Current();
  }

 private:
  std::size_t row_bytes() const { return static_cast<std::size_t>(count_) * sizeof(std::uint64_t); }
  // Without scratch it only writes how many bytes the scratch must have.
  void sort(void* scratch, std::size_t& bytes, cub::DoubleBuffer<std::uint64_t>& rows, cudaStream_t stream) const {
    REPLICATOR_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(scratch, bytes, rows, count_, first_, behind_, stream));
  }

  std::int64_t count_;
  int first_, behind_;
  std::size_t cub_bytes_ = 0;
};

}  // namespace replicator::detail::cuda
