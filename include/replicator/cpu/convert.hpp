// SPDX-License-Identifier: Apache-2.0
// Loops that convert tiles between element types.
#pragma once

#include <cstdint>
#include <type_traits>

#include <replicator/core/dtype.hpp>
#include <replicator/cpu/tiles.hpp>

namespace replicator::cpu {

namespace detail {

// Floating to integer truncates; to uint8 the truncated value wraps around; to bool: not zero. A bool in memory is a byte.
template <class From, class To>
[[gnu::always_inline]] inline auto convert_element(From x) {
  if constexpr (std::is_same_v<To, bool>) return static_cast<std::uint8_t>(x != 0 ? 1 : 0);
  else if constexpr (std::is_same_v<To, std::uint8_t>) return static_cast<std::uint8_t>(static_cast<std::int32_t>(x));
  else return static_cast<To>(x);
}

template <class From, class To>
void convert_loop(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  using Read = std::conditional_t<std::is_same_v<From, bool>, std::uint8_t, From>;
  using Written = std::conditional_t<std::is_same_v<To, bool>, std::uint8_t, To>;
  auto* o = static_cast<Written*>(out);
  const std::byte* at = a.data;
  for (Written* const end = o + n; o != end; o += tile_group, at += a.step) {
    const auto* x = reinterpret_cast<const Read*>(at);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < tile_group; ++j) o[j] = convert_element<Read, To>(x[j]);
  }
}

template <class From>
TileLoop convert_loop_from(DType to) {
  return visit_dtype(to, [&]<class To>() -> TileLoop { return &convert_loop<From, To>; });
}

}  // namespace detail

// The loop that converts elements; also between equal types, where it copies. Not for an output that overlaps the input.
inline TileLoop conversion_loop(DType from, DType to) {
  return visit_dtype(from, [to]<class From>() -> TileLoop { return detail::convert_loop_from<From>(to); });
}

}  // namespace replicator::cpu
