// SPDX-License-Identifier: Apache-2.0
// What differs between processors: the instruction sets beyond the baseline, the floating-point mode, the hint of a busy wait. And
// what differs between compilers: how they are told to vectorise a loop. Everything else is C++ that every 64-bit processor compiles.
// On aarch64 the baseline already has vectors (NEON) and fused multiply-add.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#if defined(__x86_64__)
// Attributes of functions that are compiled for more than the baseline. Empty elsewhere, where nobody calls these functions.
#define REPLICATOR_AVX2 gnu::target("avx2")
#define REPLICATOR_AVX2_FMA gnu::target("avx2,fma")
#define REPLICATOR_AVX512 gnu::target("avx512f")
#elif defined(__aarch64__)
#define REPLICATOR_AVX2
#define REPLICATOR_AVX2_FMA
#define REPLICATOR_AVX512
#else
#error "replicator runs on x86-64 and aarch64"
#endif

// Stands before a loop of 16 iterations, or of a fixed multiple of 16, in which no iteration reads what another one writes. The compiler
// then vectorises the loop without checks at run time. clang has to be told not to unroll it first. It may take vectors of 16 elements:
// where registers are narrower, it uses several.
#if defined(__clang__)
#define REPLICATOR_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety) vectorize_width(16) interleave_count(1) unroll(disable)")
#else
#define REPLICATOR_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

namespace replicator::detail {

#if defined(__x86_64__)

inline constexpr std::string_view processor_name = "x86-64";
inline bool has_avx2() { return __builtin_cpu_supports("avx2"); }
inline bool has_avx2_and_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
inline bool has_avx512() { return __builtin_cpu_supports("avx512f"); }

// The instruction sets by which kernels are chosen, ours and the libraries'.
inline std::string instruction_set() {
  __builtin_cpu_init();
  std::string text;
  if (__builtin_cpu_supports("avx2")) text += "avx2 ";
  if (__builtin_cpu_supports("fma")) text += "fma ";
  if (__builtin_cpu_supports("avx512f")) text += "avx512f ";
  if (__builtin_cpu_supports("avx512bw")) text += "avx512bw ";
  if (__builtin_cpu_supports("avx512vnni")) text += "avx512vnni ";
  return text.empty() ? "baseline" : text.substr(0, text.size() - 1);
}

// The floating-point mode of the calling thread. The plain one rounds to nearest, keeps denormals and masks traps.
using FloatingPointMode = std::uint32_t;
inline constexpr FloatingPointMode plain_arithmetic = 0x1F80, flush_denormals = 0x8040;  // bits of MXCSR
inline FloatingPointMode floating_point_mode() { return __builtin_ia32_stmxcsr(); }
inline void set_floating_point_mode(FloatingPointMode mode) { __builtin_ia32_ldmxcsr(mode); }

inline void pause_briefly() { __builtin_ia32_pause(); }

#else

inline constexpr std::string_view processor_name = "aarch64";
constexpr bool has_avx2() { return false; }
constexpr bool has_avx2_and_fma() { return false; }
constexpr bool has_avx512() { return false; }

inline std::string instruction_set() { return "aarch64"; }

using FloatingPointMode = std::uint64_t;
inline constexpr FloatingPointMode plain_arithmetic = 0, flush_denormals = 1u << 24;  // bits of FPCR
inline FloatingPointMode floating_point_mode() {
  FloatingPointMode mode;
  asm volatile("mrs %0, fpcr"
               : "=r"(mode));
  return mode;
}
inline void set_floating_point_mode(FloatingPointMode mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }

inline void pause_briefly() { asm volatile("isb"); }

#endif

}  // namespace replicator::detail
