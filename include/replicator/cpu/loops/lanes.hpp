// SPDX-License-Identifier: Apache-2.0
// A group of tile_group elements as one AVX-512 vector, loaded from and stored to float or bfloat16 memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <replicator/core/dtype.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu::detail {

using FloatLanes = float __attribute__((vector_size(64)));
using WordLanes = std::uint32_t __attribute__((vector_size(64)));
using HalfLanes = std::uint16_t __attribute__((vector_size(32)));
static_assert(sizeof(FloatLanes) == tile_group * sizeof(float) && sizeof(HalfLanes) == tile_group * sizeof(bfloat16));

// Halves become words, and the lower halves of words become halves. Where elements of two sizes meet, compilers take vectors of
// half the width and three times the instructions, so AVX-512 has intrinsics here.
#if defined(__x86_64__)
[[REPLICATOR_AVX512, gnu::always_inline]] inline WordLanes widened(HalfLanes half) {
  return reinterpret_cast<WordLanes>(_mm512_maskz_cvtepu16_epi32(all_lanes, reinterpret_cast<__m256i>(half)));
}
[[REPLICATOR_AVX512, gnu::always_inline]] inline HalfLanes narrowed(WordLanes words) {
  return reinterpret_cast<HalfLanes>(_mm512_maskz_cvtepi32_epi16(all_lanes, reinterpret_cast<__m512i>(words)));
}
#else
inline WordLanes widened(HalfLanes half) { return __builtin_convertvector(half, WordLanes); }
inline HalfLanes narrowed(WordLanes words) { return __builtin_convertvector(words, HalfLanes); }
#endif

// bfloat16_value of a group at once.
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes load_lanes(const std::byte* from, bfloat16) {
  HalfLanes half;
  std::memcpy(&half, from, sizeof half);
  return reinterpret_cast<FloatLanes>(widened(half) << 16);
}
[[REPLICATOR_AVX512, gnu::always_inline]] inline FloatLanes load_lanes(const std::byte* from, float) {
  FloatLanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}
// bfloat16_bits of a group.
[[REPLICATOR_AVX512, gnu::always_inline]] inline void store_lanes(std::byte* to, FloatLanes lanes, bfloat16) {
  const auto bits = reinterpret_cast<WordLanes>(lanes);
  const auto is_nan = reinterpret_cast<WordLanes>((bits & 0x7fffffff) > 0x7f800000);
  const WordLanes rounded = bits + 0x7fff + (bits >> 16 & 1);
  const WordLanes chosen = ((bits | 0x400000) & is_nan) | (rounded & ~is_nan);
  const HalfLanes half = narrowed(chosen >> 16);
  std::memcpy(to, &half, sizeof half);
}
// Selects bfloat16_bits by the processor's own instruction, where it has one.
struct RoundedByInstruction {
  std::uint16_t bits;
};
#if defined(__x86_64__)
// The same bits. The instruction takes subnormal numbers for zeros. So groups that have some, which are rare, are rounded without
// it. Both instructions are assembly: the callers are compiled for AVX-512F alone, and no compiler inlines an intrinsic of
// AVX-512DQ or AVX-512BF16 there.
[[REPLICATOR_AVX512, gnu::always_inline]] inline void store_lanes(std::byte* to, FloatLanes lanes, RoundedByInstruction) {
  std::uint32_t subnormal;
  asm("vfpclassps $0x20, %1, %%k1\n\tkmovw %%k1, %0"
      : "=r"(subnormal)
      : "v"(lanes)
      : "k1");
  if (__builtin_expect(subnormal != 0, 0)) return store_lanes(to, lanes, bfloat16{});
  HalfLanes half;
  asm("vcvtneps2bf16 %1, %0"
      : "=v"(half)
      : "v"(lanes));
  std::memcpy(to, &half, sizeof half);
}
inline bool rounds_by_instruction() {
  static const bool does = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq");
  return does;
}
#else
inline void store_lanes(std::byte* to, FloatLanes lanes, RoundedByInstruction) { store_lanes(to, lanes, bfloat16{}); }
constexpr bool rounds_by_instruction() { return false; }
#endif
[[REPLICATOR_AVX512, gnu::always_inline]] inline void store_lanes(std::byte* to, FloatLanes lanes, float) { std::memcpy(to, &lanes, sizeof lanes); }

}  // namespace replicator::detail::cpu::detail
