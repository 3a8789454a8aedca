// SPDX-License-Identifier: Apache-2.0
// divider_of: the constants by which kernels divide by an extent. 32-bit numbers are divided by multiplication, which takes a
// tenth of the instructions of a 64-bit division.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include <replicator/cuda/expressions/operands.hpp>
#include <replicator/cuda/rtc/divider.cuh>

namespace replicator::detail::cuda {

// `extent` may be 0 where nothing is divided.
inline Divider divider_of(std::int64_t extent) {
  const auto words = divider_words(std::max<std::int64_t>(extent, 1));
  Divider result;
  static_assert(sizeof result == sizeof words);
  std::memcpy(&result, &words, sizeof result);
  return result;
}

// Whether numbers up to `most` may be divided as 32-bit ones.
inline bool fits_32_bits(std::int64_t most) { return most < std::int64_t{1} << 31; }

// n / by, for 0 <= n.
template <class I>
__device__ I quotient_by(const Divider& by, I n) {
  if constexpr (sizeof(I) == 4) return static_cast<I>(quotient_of(static_cast<unsigned>(n), by));
  else return static_cast<I>(quotient_of(static_cast<long long>(n), by));
}

}  // namespace replicator::detail::cuda
