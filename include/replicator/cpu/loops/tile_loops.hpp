// SPDX-License-Identifier: Apache-2.0
// Primitive loops over tiles, one per scalar operation, element type and instruction level. Every loop runs over whole groups of
// 16 elements, so each element takes the same vector instructions wherever it lies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <replicator/core/dtype.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/loops/exponential_avx2.hpp>
#include <replicator/cpu/loops/vector_math.hpp>
#include <replicator/graph/expression.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::detail::cpu {

// Number of elements in a group. The counts given to loops are multiples of it.
inline constexpr std::int64_t tile_group = 16;

// The instructions that loops may use. Hosts get equal bits only at equal levels.
enum class InstructionLevel : std::uint8_t {
  baseline,
  avx2,
  avx512
};

constexpr std::string_view name_of(InstructionLevel level) {
  constexpr std::string_view names[] = {processor_name, "avx2", "avx512"};
  return names[static_cast<std::size_t>(level)];
}

// The best level that this machine has.
inline InstructionLevel instruction_level() {
  static const InstructionLevel level = has_avx512()         ? InstructionLevel::avx512
                                        : has_avx2_and_fma() ? InstructionLevel::avx2
                                                             : InstructionLevel::baseline;
  return level;
}

// The scalar operations, and pairs of them that one loop does. A pair rounds twice, so it gives the same bits with one pass less.
enum class TileOp : std::uint8_t {
  first_pair = static_cast<std::uint8_t>(ScalarOp::multiply_add) + 1,
  multiply_then_add = first_pair,  // a * b + c
  multiply_then_subtract,          // a * b - c
  subtract_product,                // c - a * b
  subtract_then_multiply,          // (a - b) * c
  add_then_add,                    // (a + b) + c
  multiply_then_multiply,          // (a * b) * c
  add_then_multiply,               // (a + b) * c
  less_then_multiply,              // (a < b) * c
  add_then_rectify,                // rectify(a + b)
  subtract_then_square,            // (a - b) * (a - b)
  subtract_then_exponential,       // exp(a - b)
  rectify_by,                      // a <= 0 ? 0 : b
  sigmoid,                         // (a < 0 ? z : 1) / (1 + z), where z = exp(-abs(a))
  count
};
inline constexpr std::size_t tile_ops = static_cast<std::size_t>(TileOp::count);

constexpr int operands_of(TileOp op) {
  if (op == TileOp::sigmoid) return 1;
  if (op >= TileOp::first_pair) return op >= TileOp::add_then_rectify ? 2 : 3;
  return operands_of(static_cast<ScalarOp>(op));
}

// Whether a loop computes for longer than memory needs to bring its operands.
constexpr bool computes_function(TileOp op) {
  const auto scalar = static_cast<ScalarOp>(op);
  return (scalar >= ScalarOp::exponential && scalar <= ScalarOp::cosine) || scalar == ScalarOp::power || op == TileOp::sigmoid ||
         op == TileOp::subtract_then_exponential;
}

// Where a loop finds an operand. The next group of 16 elements is `step` bytes further, or 0 where all groups are the same.
struct TileOperand {
  const std::byte* data = nullptr;
  std::int64_t step = 0;
  // Of loops in row_loops.hpp: `data` has one element for each row of `run` elements. The loop begins `inside` elements behind the
  // beginning of a row, and needs `count` elements in all.
  std::int64_t run = 0, inside = 0, count = 0;

  const float* floats() const { return reinterpret_cast<const float*>(data); }
  std::int64_t float_step() const { return step / static_cast<std::int64_t>(sizeof(float)); }
};

// Runs over `n` elements, a multiple of 16. `out` is contiguous, and may lie exactly where one of the operands does.
using TileLoop = void (*)(void* out, const TileOperand& a, const TileOperand& b, const TileOperand& c, std::int64_t n);

namespace detail {

constexpr bool needs_floating(ScalarOp op) {
  return op == ScalarOp::square_root || (op >= ScalarOp::exponential && op <= ScalarOp::cosine);
}

// Integers wrap around.
template <class T, class F>
[[gnu::always_inline]] inline T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}
template <class T>
[[gnu::always_inline]] inline T plus(T a, T b) {
  return wrapping(
      a, b, [](auto x, auto y) __attribute__((always_inline)) { return x + y; });
}
template <class T>
[[gnu::always_inline]] inline T minus(T a, T b) {
  return wrapping(
      a, b, [](auto x, auto y) __attribute__((always_inline)) { return x - y; });
}
template <class T>
[[gnu::always_inline]] inline T times(T a, T b) {
  return wrapping(
      a, b, [](auto x, auto y) __attribute__((always_inline)) { return x * y; });
}

// Truncates. Division by zero gives 0. The lowest integer divided by -1 wraps around.
template <class T>
inline T integer_quotient(T a, T b) {
  if (b == 0) return 0;
  return b == -1 ? minus(T(0), a) : static_cast<T>(a / b);
}
// Negative exponents give 0, except for the bases 1 and -1.
template <class T>
inline T integer_power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T(1) : base == -1 ? (exponent & 1 ? T(-1) : T(1))
                                                         : T(0);
  T result = 1;
  for (T e = exponent; e > 0; e >>= 1, base = times(base, base))
    if (e & 1) result = times(result, base);
  return result;
}

// A shift by a negative number, or by all bits and more, leaves none of them.
template <class T>
[[gnu::always_inline]] inline T shifted_left(T a, T b) {
  constexpr T last = 8 * sizeof(T) - 1;
  const auto moved = static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << (b & last));
  return (b & last) == b ? moved : T(0);
}
template <class T>
[[gnu::always_inline]] inline T shifted_right(T a, T b) {
  constexpr T last = 8 * sizeof(T) - 1;
  return static_cast<T>(a >> ((b & last) == b ? b : last));
}

template <ScalarOp op, class T>
[[gnu::always_inline]] inline T apply_unary(T a) {
  namespace vm = vector_math;
  if constexpr (op == ScalarOp::negate) {
    if constexpr (std::is_integral_v<T>) return minus(T(0), a);
    else return -a;
  } else if constexpr (op == ScalarOp::absolute) {
    if constexpr (std::is_integral_v<T>) return a < 0 ? minus(T(0), a) : a;
    else return vm::magnitude(a);
  } else if constexpr (op == ScalarOp::sign) {
    return vm::choose(a > 0, T(1), T(0)) - vm::choose(a < 0, T(1), T(0));
  } else if constexpr (op == ScalarOp::floor) {
    if constexpr (std::is_integral_v<T>) return a;
    else return vm::floor(a);
  } else if constexpr (op == ScalarOp::rectify) {
    return a <= 0 ? T(0) : a;
  } else if constexpr (op == ScalarOp::logical_not) {
    return a == 0 ? T(1) : T(0);
  } else if constexpr (op == ScalarOp::exponential) {
    return vm::exp(a);
  } else if constexpr (op == ScalarOp::logarithm) {
    return vm::log(a);
  } else if constexpr (op == ScalarOp::hyperbolic_tangent) {
    return vm::tanh(a);
  } else if constexpr (op == ScalarOp::error_function) {
    return vm::erf(a);
  } else if constexpr (op == ScalarOp::sine) {
    return vm::sin(a);
  } else {
    static_assert(op == ScalarOp::cosine);
    return vm::cos(a);
  }
}

template <ScalarOp op, class T>
[[gnu::always_inline]] inline T apply_binary(T a, T b) {
  if constexpr (op == ScalarOp::add) return plus(a, b);
  else if constexpr (op == ScalarOp::subtract) return minus(a, b);
  else if constexpr (op == ScalarOp::multiply) return times(a, b);
  else if constexpr (op == ScalarOp::divide && std::is_integral_v<T>) return integer_quotient(a, b);
  else if constexpr (op == ScalarOp::divide) return a / b;
  else if constexpr (op == ScalarOp::minimum) return b < a ? b : a;
  else if constexpr (op == ScalarOp::maximum) return a < b ? b : a;
  else if constexpr (op == ScalarOp::power && std::is_integral_v<T>) return integer_power(a, b);
  else if constexpr (op == ScalarOp::power) return vector_math::pow(a, b);
  else if constexpr (op == ScalarOp::less) return a < b ? T(1) : T(0);
  else if constexpr (op == ScalarOp::less_equal) return a <= b ? T(1) : T(0);
  else if constexpr (op == ScalarOp::equal) return a == b ? T(1) : T(0);
  else if constexpr (op == ScalarOp::bit_and) return a & b;
  else if constexpr (op == ScalarOp::bit_or) return a | b;
  else if constexpr (op == ScalarOp::bit_exclusive_or) return a ^ b;
  else if constexpr (op == ScalarOp::shift_left) return shifted_left(a, b);
  else if constexpr (op == ScalarOp::shift_right) return shifted_right(a, b);
  else if constexpr (op == ScalarOp::logical_and) return ((a != 0) & (b != 0)) ? T(1) : T(0);
  else {
    static_assert(op == ScalarOp::logical_or);
    return ((a != 0) | (b != 0)) ? T(1) : T(0);
  }
}

template <class T>
[[gnu::always_inline]] inline T fused_multiply_add(T a, T b, T c) {
  if constexpr (std::is_same_v<T, float>) return __builtin_fmaf(a, b, c);
  else if constexpr (std::is_same_v<T, double>) return __builtin_fma(a, b, c);
  else return plus(times(a, b), c);
}

// Only float has this loop. It gives the bits of the single operations.
template <class T>
[[gnu::always_inline]] inline T sigmoid(T a) {
  if constexpr (std::is_same_v<T, float>) {
    const float z = vector_math::exp(-vector_math::magnitude(a));
    return vector_math::choose(a < 0, z, 1.0f) / (1.0f + z);
  } else {
    return a;
  }
}

template <std::size_t index, class T>
[[gnu::always_inline]] inline T apply_op([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c) {
  constexpr auto pair = static_cast<TileOp>(index);
  constexpr auto op = static_cast<ScalarOp>(index);
  if constexpr (pair == TileOp::multiply_then_add) return plus(times(a, b), c);
  else if constexpr (pair == TileOp::multiply_then_subtract) return minus(times(a, b), c);
  else if constexpr (pair == TileOp::subtract_product) return minus(c, times(a, b));
  else if constexpr (pair == TileOp::subtract_then_multiply) return times(minus(a, b), c);
  else if constexpr (pair == TileOp::add_then_add) return plus(plus(a, b), c);
  else if constexpr (pair == TileOp::multiply_then_multiply) return times(times(a, b), c);
  else if constexpr (pair == TileOp::add_then_multiply) return times(plus(a, b), c);
  else if constexpr (pair == TileOp::less_then_multiply) return times(vector_math::choose(a < b, T(1), T(0)), c);
  else if constexpr (pair == TileOp::add_then_rectify) return apply_unary<ScalarOp::rectify>(plus(a, b));
  else if constexpr (pair == TileOp::subtract_then_exponential) return vector_math::exp(minus(a, b));
  else if constexpr (pair == TileOp::subtract_then_square) return times(minus(a, b), minus(a, b));
  else if constexpr (pair == TileOp::rectify_by) return a <= 0 ? T(0) : b;
  else if constexpr (pair == TileOp::sigmoid) return sigmoid(a);
  else if constexpr (op == ScalarOp::select) return vector_math::choose(a != 0, b, c);
  else if constexpr (op == ScalarOp::multiply_add) return fused_multiply_add(a, b, c);
  else if constexpr (operands_of(op) == 1) return apply_unary<op>(a);
  else return apply_binary<op>(a, b);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"  // for the names of warnings that another compiler does not have
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wpass-failed"  // clang does not vectorise integer division and power, and fma without instructions for it
// `out` overlaps no other elements than those of its own place.
template <std::size_t index, class T>
struct TileBody {
  [[gnu::always_inline]] static void run(void* out, const TileOperand& a, const TileOperand& b, const TileOperand& c, std::int64_t n) {
    constexpr int operands = operands_of(static_cast<TileOp>(index));
    T* o = static_cast<T*>(out);
    const std::byte *at_a = a.data, *at_b = operands > 1 ? b.data : a.data, *at_c = operands > 2 ? c.data : a.data;
    const std::int64_t step_a = a.step, step_b = operands > 1 ? b.step : step_a, step_c = operands > 2 ? c.step : step_a;
    for (T* const end = o + n; o != end; o += tile_group, at_a += step_a, at_b += step_b, at_c += step_c) {
      const T *x = reinterpret_cast<const T*>(at_a), *y = reinterpret_cast<const T*>(at_b), *z = reinterpret_cast<const T*>(at_c);
      REPLICATOR_VECTOR_LOOP
      for (std::int64_t j = 0; j < tile_group; ++j) o[j] = apply_op<index>(x[j], y[j], z[j]);
    }
  }
};

// The loop with this body, at each instruction level.
template <class Body>
void loop_baseline(void* out, const TileOperand& a, const TileOperand& b, const TileOperand& c, std::int64_t n) {
  Body::run(out, a, b, c, n);
}
template <class Body>
[[REPLICATOR_AVX2_FMA]] void loop_avx2(void* out, const TileOperand& a, const TileOperand& b, const TileOperand& c, std::int64_t n) {
  Body::run(out, a, b, c, n);
}
template <class Body>
[[REPLICATOR_AVX512]] void loop_avx512(void* out, const TileOperand& a, const TileOperand& b, const TileOperand& c, std::int64_t n) {
  Body::run(out, a, b, c, n);
}
#pragma GCC diagnostic pop

// Square roots need vectors: a plain loop of sqrt() does not vectorise, because sqrt may set errno. The vector types do not
// depend on a template's parameter, because nvcc's front end refuses that.
using FloatVector = float __attribute__((vector_size(16)));
using DoubleVector = double __attribute__((vector_size(16)));
#if defined(__x86_64__)
inline FloatVector square_roots(FloatVector v) { return __builtin_ia32_sqrtps(v); }
inline DoubleVector square_roots(DoubleVector v) { return __builtin_ia32_sqrtpd(v); }
#else
inline FloatVector square_roots(FloatVector v) { return vsqrtq_f32(v); }
inline DoubleVector square_roots(DoubleVector v) { return vsqrtq_f64(v); }
#endif

template <class T, class Vector>
void loop_square_root(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  constexpr std::size_t group = tile_group * sizeof(T);
  for (std::int64_t i = 0; i < n / tile_group; ++i)
    for (std::size_t j = 0; j < group; j += sizeof(Vector)) {
      Vector v;
      std::memcpy(&v, a.data + i * a.step + j, sizeof(Vector));
      v = square_roots(v);
      std::memcpy(static_cast<std::byte*>(out) + static_cast<std::size_t>(i) * group + j, &v, sizeof(Vector));
    }
}

#if defined(__x86_64__)
// The mask of AVX-512 that selects all lanes. g++ 12 warns that an intrinsic without a mask reads an uninitialised value.
inline constexpr __mmask16 all_lanes = 0xffff;
// The mask of AVX2 that selects the first `lanes` of 8 lanes.
[[REPLICATOR_AVX2, gnu::always_inline]] inline __m256i first_lanes(std::int64_t lanes) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(lanes)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Square roots are correctly rounded at every width, so the bits are the same.
using WideFloatVector = float __attribute__((vector_size(32)));
[[REPLICATOR_AVX2_FMA]] inline void loop_square_root_avx2(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  auto* o = static_cast<float*>(out);
  for (std::int64_t i = 0; i < n; i += tile_group)
    for (std::int64_t j = 0; j < tile_group; j += 8) {
      WideFloatVector v;
      std::memcpy(&v, a.data + i / tile_group * a.step + j * 4, sizeof v);
      v = __builtin_ia32_sqrtps256(v);
      std::memcpy(o + i + j, &v, sizeof v);
    }
}

template <avx2::Exponential what>
void loop_exponential_avx2(void* out, const TileOperand& a, const TileOperand& b, const TileOperand&, std::int64_t n) {
  const TileOperand& second = what == avx2::Exponential::of_difference ? b : a;
  avx2::exponentials<what>(static_cast<float*>(out), a.floats(), a.float_step(), second.floats(), second.float_step(), n);
}
// The AVX2 loop of an operation that is written by hand, or null.
template <std::size_t index>
constexpr TileLoop written_avx2_loop() {
  if constexpr (index == static_cast<std::size_t>(ScalarOp::square_root)) return loop_square_root_avx2;
  else if constexpr (index == static_cast<std::size_t>(ScalarOp::exponential)) return loop_exponential_avx2<avx2::Exponential::of_x>;
  else if constexpr (index == static_cast<std::size_t>(TileOp::subtract_then_exponential)) return loop_exponential_avx2<avx2::Exponential::of_difference>;
  else if constexpr (index == static_cast<std::size_t>(TileOp::sigmoid)) return loop_exponential_avx2<avx2::Exponential::sigmoid>;
  else return nullptr;
}

[[REPLICATOR_AVX512]] inline void loop_square_root_avx512(void* out, const TileOperand& a, const TileOperand&, const TileOperand&, std::int64_t n) {
  auto* o = static_cast<float*>(out);
  for (std::int64_t i = 0; i < n; i += tile_group) {
    __m512 v;
    std::memcpy(&v, a.data + i / tile_group * a.step, sizeof v);
    v = _mm512_maskz_sqrt_ps(all_lanes, v);
    std::memcpy(o + i, &v, sizeof v);
  }
}

#else
inline constexpr TileLoop loop_square_root_avx512 = &loop_square_root<float, FloatVector>;
template <std::size_t index>
constexpr TileLoop written_avx2_loop() {
  return nullptr;
}
#endif

using TileTable = std::array<TileLoop, tile_ops>;

template <std::size_t index, class T, InstructionLevel level>
constexpr TileLoop tile_loop_of() {
  constexpr auto op = static_cast<ScalarOp>(index);
  constexpr bool pair = index >= static_cast<std::size_t>(TileOp::first_pair);
  if constexpr (op <= ScalarOp::constant || (std::is_integral_v<T> ? needs_floating(op) : needs_integers(op)) || (pair && !std::is_same_v<T, float>))
    return nullptr;
  else if constexpr (op == ScalarOp::square_root && std::is_same_v<T, float> && level == InstructionLevel::avx512) return loop_square_root_avx512;
  else if constexpr (std::is_same_v<T, float> && level == InstructionLevel::avx2 && written_avx2_loop<index>() != nullptr) return written_avx2_loop<index>();
  else if constexpr (op == ScalarOp::square_root)
    return &loop_square_root<T, std::conditional_t<std::is_same_v<T, float>, FloatVector, DoubleVector>>;
  else if constexpr (level == InstructionLevel::avx512) return &loop_avx512<TileBody<index, T>>;
  else if constexpr (level == InstructionLevel::avx2) return &loop_avx2<TileBody<index, T>>;
  else return &loop_baseline<TileBody<index, T>>;
}
template <class T, InstructionLevel level, std::size_t... index>
constexpr TileTable make_tile_table(std::index_sequence<index...>) {
  return {tile_loop_of<index, T, level>()...};
}
template <class T, InstructionLevel level>
inline constexpr TileTable tile_table = make_tile_table<T, level>(std::make_index_sequence<tile_ops>{});

}  // namespace detail

// The loop of `op` on elements of `compute`, or null where the operation is not defined on them. To keep compile times short,
// only float has pairs and AVX-512 loops, and integers have only baseline loops.
inline TileLoop tile_loop(DType compute, TileOp op, InstructionLevel level) {
  using enum InstructionLevel;
  const auto i = static_cast<std::size_t>(op);
  switch (compute) {
    case DType::float32:
      return level == avx512 ? detail::tile_table<float, avx512>[i]
             : level == avx2 ? detail::tile_table<float, avx2>[i]
                             : detail::tile_table<float, baseline>[i];
    case DType::float64: return level == baseline ? detail::tile_table<double, baseline>[i] : detail::tile_table<double, avx2>[i];
    case DType::int32: return detail::tile_table<std::int32_t, baseline>[i];
    default: return detail::tile_table<std::int64_t, baseline>[i];
  }
}

}  // namespace replicator::detail::cpu
