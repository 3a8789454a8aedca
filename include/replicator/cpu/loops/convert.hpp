// SPDX-License-Identifier: Apache-2.0
// Loops that convert tiles between the stored types and the types of computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <replicator/core/dtype.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/lanes.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

namespace detail {

// The words as which elements lie in memory.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, std::conditional_t<std::is_same_v<T, bfloat16>, std::uint16_t, T>>;

// Truncates towards zero. A number that the integer cannot hold becomes the nearest that it can, and NaN becomes 0. C++ leaves
// these cases undefined.
template <class To, class From>
[[gnu::always_inline]] inline To truncated(From x) {
  using Limits = std::numeric_limits<To>;
  constexpr From lowest = static_cast<From>(Limits::min());
  constexpr From beyond = static_cast<From>(Limits::max() / 2 + 1) * 2;  // a power of two: exact
  const To whole = static_cast<To>(x > lowest && x < beyond ? x : From{0});
  return x >= beyond   ? Limits::max()
         : x <= lowest ? Limits::min()
                       : whole;
}

// Converts one element. Floating to integer truncates and saturates. To bool gives whether it is not zero. To bfloat16 goes
// through float. A wider integer wraps around.
template <class From, class To>
[[gnu::always_inline]] inline Stored<To> convert_element(Stored<From> x) {
  if constexpr (std::is_same_v<From, bfloat16>) return convert_element<float, To>(bfloat16_value(x));
  else if constexpr (std::is_same_v<To, bfloat16>) return bfloat16_bits(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bool>) return static_cast<std::uint8_t>(x != 0 ? 1 : 0);
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) return truncated<To>(x);
  else return static_cast<To>(x);
}

template <class From, class To>
[[gnu::always_inline]] inline void convert_tile(void* out, const TileOperand& a, std::int64_t n) {
  auto* o = static_cast<Stored<To>*>(out);
  const std::byte* at = a.data;
  for (Stored<To>* const end = o + n; o != end; o += tile_group, at += a.step) {
    const auto* x = reinterpret_cast<const Stored<From>*>(at);
    REPLICATOR_VECTOR_LOOP
    for (std::int64_t j = 0; j < tile_group; ++j) o[j] = convert_element<From, To>(x[j]);
  }
}

template <class From, class To>
void convert_loop(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  convert_tile<From, To>(out, a, n);
}
template <class From, class To>
[[REPLICATOR_AVX2]] void convert_loop_avx2(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  convert_tile<From, To>(out, a, n);
}
template <class From, class To>
[[REPLICATOR_AVX512]] void convert_loop_avx512(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  auto* to = static_cast<std::byte*>(out);
  const std::byte* at = a.data;
  const std::int64_t step = a.step;
  for (std::byte* const end = to + static_cast<std::size_t>(n) * sizeof(To); to != end; to += tile_group * sizeof(To), at += step)
    store_lanes(to, load_lanes(at, From{}), To{});
}

// These conversions use integer arithmetic alone, so every level gives the same bits. All others have only a baseline loop.
template <class From, class To>
TileLoop widest_convert_loop(InstructionLevel level) {
  if (level == InstructionLevel::avx512 && std::is_same_v<To, bfloat16> && rounds_by_instruction()) return &convert_loop_avx512<From, RoundedByInstruction>;
  if (level == InstructionLevel::avx512) return &convert_loop_avx512<From, To>;
  return level == InstructionLevel::avx2 ? &convert_loop_avx2<From, To> : &convert_loop<From, To>;
}

// One of the two types of a conversion must be a type of computation. That keeps the number of loops small.
template <class T>
inline constexpr bool computes = compute_type(dtype_of<T>) == dtype_of<T>;

template <class From>
struct ConvertLoopFrom {
  template <class To>
  TileLoop operator()() const {
    if constexpr (computes<From> || computes<To>) return &convert_loop<From, To>;
    else return nullptr;
  }
};

}  // namespace detail

// The loop that converts elements; equal types are copied. One of the two must be a type of computation (see compute_type). The
// output must not overlap the input.
inline TileLoop conversion_loop(DType from, DType to) {
  if (from == DType::bfloat16 && to == DType::float32) return detail::widest_convert_loop<bfloat16, float>(instruction_level());
  if (from == DType::float32 && to == DType::bfloat16) return detail::widest_convert_loop<float, bfloat16>(instruction_level());
  return visit_dtype(from, [to]<class From>() { return visit_dtype(to, detail::ConvertLoopFrom<From>{}); });
}

// Converts any number of elements by such a loop. An incomplete last group goes through a local buffer.
inline void convert_all(TileLoop loop, std::byte* to, std::size_t to_size, const std::byte* from, std::size_t from_size, std::int64_t elements) {
  const std::int64_t whole = elements / tile_group * tile_group;
  const auto run = [&](std::byte* out, const std::byte* in, std::int64_t n) {
    const TileOperand operand{in, tile_group * static_cast<std::int64_t>(from_size)};
    loop(out, operand, operand, operand, n);
  };
  run(to, from, whole);
  if (whole == elements) return;
  const auto done = static_cast<std::size_t>(whole), rest = static_cast<std::size_t>(elements - whole);
  alignas(64) std::byte in[tile_group * sizeof(double)]{}, out[tile_group * sizeof(double)];
  std::memcpy(in, from + done * from_size, rest * from_size);
  run(out, in, tile_group);
  std::memcpy(to + done * to_size, out, rest * to_size);
}

}  // namespace replicator::detail::cpu
