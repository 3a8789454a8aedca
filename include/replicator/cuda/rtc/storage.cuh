// SPDX-License-Identifier: Apache-2.0
// How elements lie in memory, and how they are converted to values of expressions and back.
#pragma once

#include <replicator/cuda/rtc/arithmetic.cuh>

namespace replicator::detail::cuda {

// bfloat16 in memory. Arithmetic on it is in float.
struct Bfloat16Word {
  unsigned short bits;
};
// A bool in memory, which is a byte.
struct BoolByte {
  unsigned char bits;
};

// Same as bfloat16_value and bfloat16_bits, which device code cannot call.
__device__ inline float from_bfloat16(unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
__device__ inline unsigned short to_bfloat16(float value) {
  const unsigned bits = __float_as_uint(value);
  return static_cast<unsigned short>((value != value ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Same as cpu::detail::truncated, which device code cannot call.
template <class To, class T>
__device__ To to_integer(T x) {
  if constexpr (!is_real<T>) return static_cast<To>(x);
  else {
    constexpr bool has_sign = To(-1) < To(1);
    constexpr To highest = static_cast<To>(Unsigned<To>(-1) >> (has_sign ? 1 : 0)), lowest = has_sign ? -highest - 1 : 0;
    constexpr T beyond = static_cast<T>(highest / 2 + 1) * 2;
    return x >= beyond                   ? highest
           : x <= static_cast<T>(lowest) ? lowest
           : x != x                      ? To{0}
                                         : static_cast<To>(x);
  }
}

template <class T>
__device__ T value_of(T x) {
  return x;
}
__device__ inline float value_of(Bfloat16Word x) { return from_bfloat16(x.bits); }
__device__ inline unsigned char value_of(BoolByte x) { return x.bits; }

template <class T, class Stored>
__device__ T load(const Stored* data, long long at) {
  return static_cast<T>(value_of(data[at]));
}

// Converts a value to what is stored. Floating to integer truncates and saturates. To bool gives whether it is not zero. A wider
// integer wraps around.
template <class Stored>
struct Storing {
  template <class T>
  static __device__ Stored of(T value) {
    if constexpr (is_real<Stored>) return static_cast<Stored>(value);
    else return to_integer<Stored>(value);
  }
};
template <>
struct Storing<Bfloat16Word> {
  template <class T>
  static __device__ Bfloat16Word of(T value) {
    return {to_bfloat16(static_cast<float>(value))};
  }
};
template <>
struct Storing<BoolByte> {
  template <class T>
  static __device__ BoolByte of(T value) {
    return {static_cast<unsigned char>(value != 0 ? 1 : 0)};
  }
};
template <class Stored, class T>
__device__ void store(Stored* data, long long at, T value) {
  data[at] = Storing<Stored>::of(value);
}

// Neighbouring elements that a thread loads or stores at once, 16 bytes at a time.
template <class Stored, int lanes>
struct alignas(sizeof(Stored) * lanes < 16 ? sizeof(Stored) * lanes : 16) Lanes {
  Stored at[lanes];
};
template <int lanes, class Stored>
__device__ const Lanes<Stored, lanes>& lanes_at(const Stored* first) {
  return *reinterpret_cast<const Lanes<Stored, lanes>*>(first);
}
template <int lanes, class T, class Stored>
__device__ void load_lanes(T* values, const Stored* first) {
  const auto loaded = lanes_at<lanes>(first);
  for (int j = 0; j < lanes; ++j) values[j] = static_cast<T>(value_of(loaded.at[j]));
}
template <int lanes, class Stored, class T>
__device__ void store_lanes(Stored* first, const T* values) {
  Lanes<Stored, lanes> stored;
  for (int j = 0; j < lanes; ++j) stored.at[j] = Storing<Stored>::of(values[j]);
  *reinterpret_cast<Lanes<Stored, lanes>*>(first) = stored;
}

}  // namespace replicator::detail::cuda
