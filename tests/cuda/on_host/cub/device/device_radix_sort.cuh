// SPDX-License-Identifier: Apache-2.0
// The part of CUB's DeviceRadixSort that the kernels use, on the host. It runs on the stream, in exactly the requested
// scratch memory.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace cub {

template <class T>
struct DoubleBuffer {
  T* d_buffers[2];
  int selector = 0;

  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() const { return d_buffers[selector]; }
  T* Alternate() const { return d_buffers[selector ^ 1]; }
};

struct DeviceRadixSort {
  // By the bits [begin, end) of unsigned keys; others leave equal keys in their order.
  template <class Key, class Count>
  static cudaError_t SortKeys(void* scratch, std::size_t& bytes, DoubleBuffer<Key>& keys, Count count, int begin, int end, cudaStream_t stream) {
    static_assert(std::is_unsigned_v<Key>);
    const std::size_t needed = 1000;
    if (!scratch) return bytes = needed, cudaSuccess;
    if (bytes < needed) return cudaErrorInvalidValue;
    if (begin == end) return cudaSuccess;  // they stay where they are
    Key* const from = keys.Current();
    Key* const to = keys.Alternate();
    keys.selector ^= 1;
    on_host::give(stream, [=] {
      const auto digits = [=](Key key) { return static_cast<Key>(key << (8 * static_cast<int>(sizeof(Key)) - end)) >> (8 * static_cast<int>(sizeof(Key)) - end + begin); };
      std::stable_sort(from, from + count, [&](Key a, Key b) { return digits(a) < digits(b); });
      std::copy(from, from + count, to);
      std::memset(from, 0xCD, static_cast<std::size_t>(count) * sizeof(Key));
      std::memset(scratch, 0xCD, needed);
    });
    return cudaSuccess;
  }
};

}  // namespace cub
