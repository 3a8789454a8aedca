// SPDX-License-Identifier: Apache-2.0
// The floating-point and OpenMP settings of threads that run kernels, and a self-test of how the program was compiled.
#pragma once

#include <omp.h>

#include <bit>
#include <cstdint>
#include <string>

#include <replicator/core/error.hpp>
#include <replicator/core/processor.hpp>

#if defined(__FAST_MATH__)
#error "replicator promises equal bits on every placement: compile without -ffast-math (and -Ofast)"
#endif

namespace replicator::detail::cpu {

// Sets the environment of the calling thread while it lives. The thread rounds to nearest, masks floating-point traps, and opens
// OpenMP teams of `threads` threads. Denormals are exact: flush-to-zero and denormals-are-zero are off, even if a loaded
// -ffast-math library has set them.
//
// The destructor restores the settings from before. Destroy it on the thread that made it, in reverse order.
class KernelEnvironment {
 public:
  explicit KernelEnvironment(int threads)
      : saved_mode_{floating_point_mode()}, saved_threads_{omp_get_max_threads()}, saved_dynamic_{omp_get_dynamic()} {
    set_floating_point_mode(plain_arithmetic);
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
  }
  KernelEnvironment(const KernelEnvironment&) = delete;
  KernelEnvironment& operator=(const KernelEnvironment&) = delete;
  ~KernelEnvironment() {
    omp_set_num_threads(saved_threads_);
    omp_set_dynamic(saved_dynamic_);
    set_floating_point_mode(saved_mode_);
  }

 private:
  FloatingPointMode saved_mode_;
  int saved_threads_;
  int saved_dynamic_;
};

namespace detail {

// The operands are volatile, so that the compiler cannot know their values. The first function is compiled for FMA, as kernels
// are. If it were contracted, the low part of the product would appear.
using Unknown = const volatile double&;
[[gnu::noinline, REPLICATOR_AVX2_FMA]] inline double product_minus_fma(Unknown a, Unknown b, Unknown c) { return a * b - c; }
[[gnu::noinline]] inline double product_minus(Unknown a, Unknown b, Unknown c) { return a * b - c; }
[[gnu::noinline]] inline double reassociated(Unknown a, Unknown b) {
  const double x = a, y = b;
  return (x + y) - x;
}
[[gnu::noinline]] inline bool is_number(Unknown a) {
  const double x = a;
  return x == x;
}
[[gnu::noinline]] inline double half(Unknown a) { return a * 0.5; }

}  // namespace detail

// Checks, in the calling thread, that arithmetic was compiled and runs as equal bits need it. Throws BuildError.
inline void self_test() {
  const auto require = [](bool holds, const char* what, const char* mend) {
    if (!holds) throw BuildError{std::string{"this program cannot promise equal bits: "} + what + ": " + mend};
  };
  const volatile double a = 1.0 + 0x1p-30, rounded = 1.0 + 0x1p-29;  // a * a is `rounded` + 2^-60
  const volatile double one = 1.0, tiny = 0x1p-60, smallest = 0x1p-1022, not_a_number = __builtin_nan("");
  require(detail::product_minus(a, a, rounded) == 0 && (!has_avx2_and_fma() || detail::product_minus_fma(a, a, rounded) == 0),
          "a * b - c was contracted to one rounding", "compile every file with -ffp-contract=off (the CMake target sets it)");
  require(detail::reassociated(one, tiny) == 0 && !detail::is_number(not_a_number),
          "additions were reassociated or NaN was assumed away", "compile without -ffast-math, -Ofast and -funsafe-math-optimizations");
  // Compares the bits: where denormals are zero, a comparison of the values finds nothing wrong.
  require(std::bit_cast<std::uint64_t>(detail::half(smallest)) == std::uint64_t{1} << 51, "denormals are flushed to zero",
          "run kernels under a KernelEnvironment, and load no library built with -ffast-math");
}

}  // namespace replicator::detail::cpu
