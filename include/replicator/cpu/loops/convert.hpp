// SPDX-License-Identifier: Apache-2.0
// Loops that convert tiles between what is stored and the types of computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <replicator/core/dtype.hpp>
#include <replicator/cpu/loops/lanes.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

namespace detail {

// As which words elements lie in memory.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, std::conditional_t<std::is_same_v<T, bfloat16>, std::uint16_t, T>>;

// Towards zero; what the integer cannot hold becomes its nearest value, NaN 0: C++ leaves that undefined.
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

// Floating to integer truncates and saturates; to bool: not zero; to bfloat16 by way of float; a wider integer wraps around.
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
#pragma GCC ivdep
    for (std::int64_t j = 0; j < tile_group; ++j) o[j] = convert_element<From, To>(x[j]);
  }
}

template <class From, class To>
void convert_loop(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  convert_tile<From, To>(out, a, n);
}
template <class From, class To>
[[gnu::target("avx2")]] void convert_loop_avx2(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  convert_tile<From, To>(out, a, n);
}
template <class From, class To>
[[gnu::target("avx512f")]] void convert_loop_avx512(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  auto* to = static_cast<std::byte*>(out);
  const std::byte* at = a.data;
  const std::int64_t step = a.step;
  for (std::byte* const end = to + static_cast<std::size_t>(n) * sizeof(To); to != end; to += tile_group * sizeof(To), at += step)
    store_lanes(to, load_lanes(at, From{}), To{});
}

// Integer arithmetic alone: the same bits at every level. What else is converted has a baseline loop only.
template <class From, class To>
TileLoop widest_convert_loop(InstructionLevel level) {
  if (level == InstructionLevel::avx512 && std::is_same_v<To, bfloat16> && rounds_by_instruction()) return &convert_loop_avx512<From, RoundedByInstruction>;
  if (level == InstructionLevel::avx512) return &convert_loop_avx512<From, To>;
  return level == InstructionLevel::avx2 ? &convert_loop_avx2<From, To> : &convert_loop<From, To>;
}

// Between two types of which neither is one of computation nothing is ever converted: that keeps the loops few.
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

// The loop that converts elements; also between equal types, where it copies; one of them a type of computation (see
// compute_type). Not for an output that overlaps the input.
inline TileLoop conversion_loop(DType from, DType to) {
  if (from == DType::bfloat16 && to == DType::float32) return detail::widest_convert_loop<bfloat16, float>(instruction_level());
  if (from == DType::float32 && to == DType::bfloat16) return detail::widest_convert_loop<float, bfloat16>(instruction_level());
  return visit_dtype(from, [to]<class From>() { return visit_dtype(to, detail::ConvertLoopFrom<From>{}); });
}

// Converts any number of elements by such a loop: what is no whole group goes through a buffer of its own.
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
