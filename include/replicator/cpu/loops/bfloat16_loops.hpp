// SPDX-License-Identifier: Apache-2.0
// Tile loops of float arithmetic for AVX-512 that read operands and write results as bfloat16 in memory. They give the bits of
// separate conversions, with fewer passes through the cache. The other levels convert in loops of their own.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include <replicator/core/dtype.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/lanes.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

// Which operands of a loop are bfloat16 in memory, and whether its result is.
struct StoredOperands {
  bool a = false, b = false, c = false, out = false;
};

namespace detail {

// a <= 0 ? 0 : b
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes rectify_lanes(FloatLanes a, FloatLanes b) {
  return reinterpret_cast<FloatLanes>(reinterpret_cast<WordLanes>(b) & ~reinterpret_cast<WordLanes>(a <= 0));
}

// The operations that have such loops: those of layers in bfloat16. The list is short because each loop costs compile time.
constexpr bool has_lanes(TileOp op) {
  using enum ScalarOp;
  constexpr TileOp offered[] = {static_cast<TileOp>(add), static_cast<TileOp>(subtract), static_cast<TileOp>(multiply), static_cast<TileOp>(rectify),
                                TileOp::multiply_then_add, TileOp::subtract_then_multiply, TileOp::add_then_add, TileOp::add_then_rectify,
                                TileOp::subtract_then_square, TileOp::rectify_by};
  return std::find(std::begin(offered), std::end(offered), op) != std::end(offered);
}
constexpr bool has_lanes(TileOp op, StoredOperands stored) {
  if (!has_lanes(op) || !(stored.a || stored.b || stored.c || stored.out)) return false;
  const int operands = operands_of(op);
  return operands == 3 ? !stored.b && !(stored.a && stored.c) : !stored.c && (operands == 2 || !stored.b);
}

// Computes apply_op (tile_loops.hpp) for a group of elements.
template <TileOp op>
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes apply_lanes(FloatLanes a, [[maybe_unused]] FloatLanes b, [[maybe_unused]] FloatLanes c) {
  constexpr auto scalar = static_cast<ScalarOp>(op);
  if constexpr (op == TileOp::multiply_then_add) return a * b + c;
  else if constexpr (op == TileOp::subtract_then_multiply) return (a - b) * c;
  else if constexpr (op == TileOp::add_then_add) return (a + b) + c;
  else if constexpr (op == TileOp::add_then_rectify) return rectify_lanes(a + b, a + b);
  else if constexpr (op == TileOp::subtract_then_square) return (a - b) * (a - b);
  else if constexpr (op == TileOp::rectify_by) return rectify_lanes(a, b);
  else if constexpr (scalar == ScalarOp::add) return a + b;
  else if constexpr (scalar == ScalarOp::subtract) return a - b;
  else if constexpr (scalar == ScalarOp::multiply) return a * b;
  else {
    static_assert(scalar == ScalarOp::rectify);
    return rectify_lanes(a, a);
  }
}

template <TileOp op, class A, class B, class C, class Out>
[[REPLICATOR_AVX512]] void lanes_loop(void* out, const TileOperand& a, const TileOperand& b, const TileOperand& c, std::int64_t n) {
  constexpr std::size_t group = tile_group * sizeof(Out);
  auto* to = static_cast<std::byte*>(out);
  const std::byte *at_a = a.data, *at_b = b.data, *at_c = c.data;
  const std::int64_t step_a = a.step, step_b = b.step, step_c = c.step;
  for (std::byte* const end = to + n / tile_group * static_cast<std::int64_t>(group); to != end; to += group, at_a += step_a, at_b += step_b, at_c += step_c) {
    const FloatLanes x = load_lanes(at_a, A{});
    FloatLanes y = x, z = x;
    if constexpr (operands_of(op) > 1) y = load_lanes(at_b, B{});
    if constexpr (operands_of(op) > 2) z = load_lanes(at_c, C{});
    store_lanes(to, apply_lanes<op>(x, y, z), Out{});
  }
}

inline constexpr std::size_t storages = 16;
constexpr std::size_t index_of(TileOp op, StoredOperands stored) {
  return static_cast<std::size_t>(op) * storages + (stored.a + 2u * stored.b + 4u * stored.c + 8u * stored.out);
}
constexpr StoredOperands storage_of(std::size_t index) { return {index % 2 != 0, index / 2 % 2 != 0, index / 4 % 2 != 0, index / 8 % 2 != 0}; }

template <class Rounded, TileOp op, std::size_t storage>
constexpr TileLoop lanes_loop_of() {
  constexpr StoredOperands stored = storage_of(storage);
  if constexpr (!has_lanes(op, stored)) return nullptr;
  else
    return &lanes_loop<op, std::conditional_t<stored.a, bfloat16, float>, std::conditional_t<stored.b, bfloat16, float>,
                       std::conditional_t<stored.c, bfloat16, float>, std::conditional_t<stored.out, Rounded, float>>;
}
template <class Rounded, std::size_t... index>
constexpr std::array<TileLoop, sizeof...(index)> make_lanes_table(std::index_sequence<index...>) {
  return {lanes_loop_of<Rounded, static_cast<TileOp>(index / storages), index % storages>()...};
}
template <class Rounded>
inline constexpr auto lanes_table = make_lanes_table<Rounded>(std::make_index_sequence<tile_ops * storages>{});

}  // namespace detail

// The loop of `op` on floats where `stored` says which are bfloat16 in memory. Null where there is none. With `stored.out`, the
// result may lie exactly in the memory of an operand that is stored as bfloat16 too.
inline TileLoop bfloat16_loop(TileOp op, StoredOperands stored, InstructionLevel level) {
  if (level != InstructionLevel::avx512) return nullptr;
  const std::size_t index = detail::index_of(op, stored);
  return detail::rounds_by_instruction() ? detail::lanes_table<detail::RoundedByInstruction>[index] : detail::lanes_table<bfloat16>[index];
}

}  // namespace replicator::detail::cpu
