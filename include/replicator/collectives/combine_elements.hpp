// SPDX-License-Identifier: Apache-2.0
// The code of reduction.hpp: the loops over elements, for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <replicator/collectives/reduction.hpp>
#include <replicator/core/dtype.hpp>
#include <replicator/core/processor.hpp>

namespace replicator::detail::collectives {

namespace detail {

struct Sum {
  template <class T>
  static T apply(T left, T right) {
    // Integers wrap: signed overflow would be undefined.
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(left) + static_cast<U>(right)));
    } else {
      return left + right;
    }
  }
};
// NaN wins, as in NumPy. Of equal values (the two zeros) the right one is taken.
struct Min {
  template <class T>
  static T apply(T left, T right) {
    return ((left < right) | (left != left)) ? left : right;
  }
};
struct Max {
  template <class T>
  static T apply(T left, T right) {
    return ((left > right) | (left != left)) ? left : right;
  }
};

// The type of an element in memory; `widen` gives the type in which elements are combined.
template <class T>
using Word = std::conditional_t<std::is_same_v<T, bfloat16>, std::uint16_t, T>;
template <class T>
inline auto widen(Word<T> word) {
  if constexpr (std::is_same_v<T, bfloat16>) return bfloat16_value(word);
  else return word;
}
template <class T, class Op>
inline Word<T> combine_words(Word<T> left, Word<T> right) {
  const auto result = Op::apply(widen<T>(left), widen<T>(right));
  if constexpr (std::is_same_v<T, bfloat16>) return bfloat16_bits(result);
  else return result;
}

// Works on tiles of 64 bytes in a local array. All loads of a tile come before its stores, so dst may be an operand, and
// g++ vectorises the loop at -O2. The tail is padded and takes the same loop.
template <class Op, class T>
inline void combine_tiles(std::byte* dst, const std::byte* left, const std::byte* right, std::int64_t elements) {
  constexpr std::int64_t tile = 64 / sizeof(T);
  const auto* a = reinterpret_cast<const Word<T>*>(left);
  const auto* b = reinterpret_cast<const Word<T>*>(right);
  auto* out = reinterpret_cast<Word<T>*>(dst);
  // Declared outside of the loop, and used for the tail too: clang would otherwise gather the elements one by one.
  Word<T> result[tile];
  std::int64_t i = 0;
  for (; i + tile <= elements; i += tile) {
    for (std::int64_t j = 0; j < tile; ++j) result[j] = combine_words<T, Op>(a[i + j], b[i + j]);
    for (std::int64_t j = 0; j < tile; ++j) out[i + j] = result[j];
  }
  if (i == elements) return;
  Word<T> x[tile] = {};
  Word<T> y[tile] = {};
  const auto bytes = static_cast<std::size_t>(elements - i) * sizeof(T);
  std::memcpy(x, a + i, bytes);
  std::memcpy(y, b + i, bytes);
  for (std::int64_t j = 0; j < tile; ++j) result[j] = combine_words<T, Op>(x[j], y[j]);
  std::memcpy(out + i, result, bytes);
}

template <class Op, class T>
[[gnu::flatten, REPLICATOR_AVX512]] inline void combine_avx512(std::byte* dst, const std::byte* left,
                                                               const std::byte* right, std::int64_t elements) {
  combine_tiles<Op, T>(dst, left, right, elements);
}
template <class Op, class T>
[[gnu::flatten, REPLICATOR_AVX2]] inline void combine_avx2(std::byte* dst, const std::byte* left,
                                                           const std::byte* right, std::int64_t elements) {
  combine_tiles<Op, T>(dst, left, right, elements);
}

template <class Op, class T>
CombineFunction choose_level() {
  if (has_avx512()) return combine_avx512<Op, T>;
  if (has_avx2()) return combine_avx2<Op, T>;
  return combine_tiles<Op, T>;
}

template <class Op>
CombineFunction choose_dtype(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return choose_level<Op, float>();
    case DType::float64:
      return choose_level<Op, double>();
    case DType::int32:
      return choose_level<Op, std::int32_t>();
    case DType::int64:
      return choose_level<Op, std::int64_t>();
    case DType::bfloat16:
      return choose_level<Op, bfloat16>();
    case DType::uint8:
    case DType::boolean:
      break;
  }
  return choose_level<Op, std::uint8_t>();
}

// Works like combine_tiles. A quotient is rounded once, so all instruction sets give the same bits.
template <class T>
inline void divide_tiles(std::byte* values, std::int64_t elements, int divisor) {
  constexpr std::int64_t tile = 64 / sizeof(T);
  auto* value = reinterpret_cast<Word<T>*>(values);
  const auto by = static_cast<decltype(widen<T>(Word<T>{}))>(divisor);
  const auto divide = [by](Word<T> word) {
    if constexpr (std::is_same_v<T, bfloat16>) return bfloat16_bits(widen<T>(word) / by);
    else return word / by;
  };
  std::int64_t i = 0;
  for (; i + tile <= elements; i += tile)
    for (std::int64_t j = 0; j < tile; ++j) value[i + j] = divide(value[i + j]);
  for (; i < elements; ++i) value[i] = divide(value[i]);
}
template <class T>
[[gnu::flatten, REPLICATOR_AVX512]] inline void divide_avx512(std::byte* values, std::int64_t elements, int divisor) {
  divide_tiles<T>(values, elements, divisor);
}
template <class T>
[[gnu::flatten, REPLICATOR_AVX2]] inline void divide_avx2(std::byte* values, std::int64_t elements, int divisor) {
  divide_tiles<T>(values, elements, divisor);
}
template <class T>
void divide_all(std::byte* values, std::int64_t elements, int divisor) {
  if (has_avx512()) divide_avx512<T>(values, elements, divisor);
  else if (has_avx2()) divide_avx2<T>(values, elements, divisor);
  else divide_tiles<T>(values, elements, divisor);
}

}  // namespace detail

template <class>
CombineFunction combine_function(DType dtype, Reduction reduction) {
  require_reducible(dtype, reduction);
  if (reduction == Reduction::min) return detail::choose_dtype<detail::Min>(dtype);
  if (reduction == Reduction::max) return detail::choose_dtype<detail::Max>(dtype);
  return detail::choose_dtype<detail::Sum>(dtype);
}

template <class>
void finish_root(DType dtype, Reduction reduction, std::byte* values, std::int64_t elements, int replicas) {
  if (reduction != Reduction::mean || replicas == 1) return;
  if (dtype == DType::float32) detail::divide_all<float>(values, elements, replicas);
  if (dtype == DType::float64) detail::divide_all<double>(values, elements, replicas);
  if (dtype == DType::bfloat16) detail::divide_all<bfloat16>(values, elements, replicas);
}

}  // namespace replicator::detail::collectives
