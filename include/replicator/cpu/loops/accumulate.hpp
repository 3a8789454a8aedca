// SPDX-License-Identifier: Apache-2.0
// Inner loops of reductions on the CPU: lanes that accumulate rows, and the tree that folds the lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <replicator/core/dtype.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/loops/lanes.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/loops/unit_loops.hpp>
#include <replicator/cpu/loops/unit_loops_avx2.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::detail::cpu {

// The loops for one kind of reduction and one element type.
struct AccumulateLoops {
  // For every row r in turn: lanes[j] = lanes[j] (+) rows[r * width + j].
  void (*accumulate)(void* lanes, const void* rows, std::int64_t width, std::int64_t count) = nullptr;
  // The same for rows that are stored as bfloat16. Null where such rows have to be widened first.
  void (*accumulate_stored)(void* lanes, const void* rows, std::int64_t width, std::int64_t count) = nullptr;
  // For j < width: lanes[j] = a balanced tree over lanes[j + p width], p < parts. `parts` is a power of two.
  void (*fold)(void* lanes, std::int64_t width, std::int64_t parts) = nullptr;
  void (*clear)(void* lanes, std::int64_t count) = nullptr;  // sets lanes to the identity
  // Reduces `count` rows of `unit` contiguous float32 elements, one behind the other, each to one result, by 16, 32 or 64 lanes.
  // Gives the bits of accumulate and fold. Null where there is no such loop; the second is for rows stored as bfloat16.
  void (*reduce_units)(float* results, const std::byte* rows, std::int64_t unit, std::int64_t count, std::int64_t lanes) = nullptr;
  void (*reduce_stored_units)(float* results, const std::byte* rows, std::int64_t unit, std::int64_t count, std::int64_t lanes) = nullptr;
  // The same over the products of two such arrays, summed. Each product is rounded before it is added.
  void (*sum_product_units)(float* results, const float* a, const float* b, std::int64_t unit, std::int64_t count, std::int64_t lanes) = nullptr;
};

namespace detail {

// If one of the elements is NaN the result is NaN, in any order.
template <ReduceKind kind, class T>
[[gnu::always_inline]] inline T combine(T a, T b) {
  if constexpr (kind == ReduceKind::sum) return plus(a, b);
  else if constexpr (kind == ReduceKind::min) return vector_math::choose((b < a) | (b != b), b, a);
  else return vector_math::choose((a < b) | (b != b), b, a);
}

template <ReduceKind kind, class T>
[[gnu::always_inline]] inline void accumulate_loop(void* to, const void* from, std::int64_t width, std::int64_t count) {
  T* lanes = static_cast<T*>(to);
  const T* x = static_cast<const T*>(from);
  constexpr std::int64_t usual = 64;
  if (width == usual)  // four rows at a time: the lanes pass through memory less often, and the order is the same
    for (; count >= 4; count -= 4, x += 4 * usual) {
      REPLICATOR_VECTOR_LOOP
      for (std::int64_t j = 0; j < usual; ++j)
        lanes[j] = combine<kind>(
            combine<kind>(combine<kind>(combine<kind>(lanes[j], x[j]), x[usual + j]), x[2 * usual + j]), x[3 * usual + j]);
    }
  for (; count > 0; --count, x += width) {
    std::int64_t i = 0;
    for (; i + tile_group <= width; i += tile_group) {
      REPLICATOR_VECTOR_LOOP
      for (std::int64_t j = 0; j < tile_group; ++j) lanes[i + j] = combine<kind>(lanes[i + j], x[i + j]);
    }
    for (; i < width; ++i) lanes[i] = combine<kind>(lanes[i], x[i]);
  }
}

template <ReduceKind kind, class T>
[[gnu::always_inline]] inline void fold_loop(void* to, std::int64_t width, std::int64_t parts) {
  T* lanes = static_cast<T*>(to);
  for (parts /= 2; parts > 0; parts /= 2) accumulate_loop<kind, T>(lanes, lanes + parts * width, parts * width, 1);
}

template <ReduceKind kind, class T>
void clear_loop(void* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i] = identity<kind, T>();
}

template <ReduceKind kind, class T>
void accumulate_baseline(void* lanes, const void* rows, std::int64_t width, std::int64_t count) {
  accumulate_loop<kind, T>(lanes, rows, width, count);
}
template <ReduceKind kind, class T>
void fold_baseline(void* lanes, std::int64_t width, std::int64_t parts) {
  fold_loop<kind, T>(lanes, width, parts);
}
template <ReduceKind kind, class T>
[[REPLICATOR_AVX2]] void accumulate_avx2(void* lanes, const void* rows, std::int64_t width, std::int64_t count) {
  accumulate_loop<kind, T>(lanes, rows, width, count);
}
template <ReduceKind kind, class T>
[[REPLICATOR_AVX512]] void accumulate_avx512(void* lanes, const void* rows, std::int64_t width, std::int64_t count) {
  accumulate_loop<kind, T>(lanes, rows, width, count);
}
#if defined(__x86_64__)

// lane += x. If both are NaN, the lane's NaN stays: see avx2::add_to.
// clang-format off
[[REPLICATOR_AVX512, gnu::always_inline]] inline void add_to(FloatLanes& lanes, const FloatLanes& x) { asm("vaddps %1, %0, %0" : "+v"(lanes) : "v"(x)); }
[[REPLICATOR_AVX512, gnu::always_inline]] inline void add_to(float& lane, float x) { asm("vaddss %1, %0, %0" : "+v"(lane) : "v"(x)); }
// clang-format on

// Sums rows of a strip that is `sizeof...(i)` vectors wide. Its lanes stay in registers for all rows, which lie `width` elements apart.
template <std::size_t... i>
[[REPLICATOR_AVX2, gnu::always_inline]] inline void sum_strip(float* lanes, const float* x, std::int64_t width, std::int64_t count, std::index_sequence<i...>) {
  const StoredRow<float> before{reinterpret_cast<const std::byte*>(lanes)};
  avx2::EightFloats sums[] = {avx2::load_eight(before, 8 * i)...};
  for (; count > 0; --count, x += width) {
    const StoredRow<float> row{reinterpret_cast<const std::byte*>(x)};
    (avx2::add_to(sums[i], avx2::load_eight(row, 8 * i)), ...);
  }
  (_mm256_storeu_ps(lanes + 8 * i, reinterpret_cast<__m256>(sums[i])), ...);
}
// Sums rows. The order of additions is accumulate_loop's.
[[REPLICATOR_AVX2]] inline void sum_avx2(void* to, const void* rows, std::int64_t width, std::int64_t count) {
  float* lanes = static_cast<float*>(to);
  const float* x = static_cast<const float*>(rows);
  std::int64_t left = width;
  for (; left >= 64; left -= 64, lanes += 64, x += 64) sum_strip(lanes, x, width, count, std::make_index_sequence<8>{});
  if (left >= 32) sum_strip(lanes, x, width, count, std::make_index_sequence<4>{}), left -= 32, lanes += 32, x += 32;
  for (; left >= 8; left -= 8, lanes += 8, x += 8) sum_strip(lanes, x, width, count, std::make_index_sequence<1>{});
  if (left == 0) return;
  for (; count > 0; --count, x += width)
    for (std::int64_t i = 0; i < left; ++i) avx2::add_to(lanes[i], x[i]);
}

// The same on AVX-512, of rows that are stored as float32 or bfloat16. Four registers hold a strip.
template <class Stored>
[[REPLICATOR_AVX512, gnu::always_inline]] inline void sum_rows(std::byte* lanes, const std::byte* x, std::int64_t width, std::int64_t count) {
  constexpr std::size_t group = tile_group * sizeof(Stored), floats = tile_group * sizeof(float);
  const std::size_t row = static_cast<std::size_t>(width) * sizeof(Stored);
  std::int64_t left = width;
  for (; left >= 4 * tile_group; left -= 4 * tile_group, lanes += 4 * floats, x += 4 * group) {
    // Four variables, because an array would lie in memory.
    FloatLanes a = load_lanes(lanes, float{}), b = load_lanes(lanes + floats, float{});
    FloatLanes c = load_lanes(lanes + 2 * floats, float{}), d = load_lanes(lanes + 3 * floats, float{});
    const std::byte* at = x;
    for (std::int64_t r = 0; r < count; ++r, at += row) {
      add_to(a, load_lanes(at, Stored{})), add_to(b, load_lanes(at + group, Stored{}));
      add_to(c, load_lanes(at + 2 * group, Stored{})), add_to(d, load_lanes(at + 3 * group, Stored{}));
    }
    store_lanes(lanes, a, float{}), store_lanes(lanes + floats, b, float{});
    store_lanes(lanes + 2 * floats, c, float{}), store_lanes(lanes + 3 * floats, d, float{});
  }
  if (left == 0) return;
  for (; count > 0; --count, x += row) {
    std::int64_t i = 0;
    for (; i + tile_group <= left; i += tile_group) {
      auto* const lane = lanes + static_cast<std::size_t>(i) * sizeof(float);
      FloatLanes sum = load_lanes(lane, float{});
      add_to(sum, load_lanes(x + static_cast<std::size_t>(i) * sizeof(Stored), Stored{}));
      store_lanes(lane, sum, float{});
    }
    for (; i < left; ++i) add_to(reinterpret_cast<float*>(lanes)[i], static_cast<float>(reinterpret_cast<const Stored*>(x)[i]));
  }
}
[[REPLICATOR_AVX512]] inline void sum_avx512(void* lanes, const void* rows, std::int64_t width, std::int64_t count) {
  sum_rows<float>(static_cast<std::byte*>(lanes), static_cast<const std::byte*>(rows), width, count);
}
[[REPLICATOR_AVX512]] inline void sum_stored_avx512(void* lanes, const void* rows, std::int64_t width, std::int64_t count) {
  sum_rows<bfloat16>(static_cast<std::byte*>(lanes), static_cast<const std::byte*>(rows), width, count);
}
// The fold of reduce_units for one kept element; fold_baseline otherwise.
template <ReduceKind kind, auto fold_unit>
void fold_one_or_more(void* lanes, std::int64_t width, std::int64_t parts) {
  if (width == 1 && parts >= tile_group && parts <= 4 * tile_group) fold_unit(static_cast<float*>(lanes), parts);
  else fold_baseline<kind, float>(lanes, width, parts);
}

template <ReduceKind kind>
void take_float_loops(AccumulateLoops& loops, InstructionLevel level) {
  if (level == InstructionLevel::avx512) {
    loops.accumulate = kind == ReduceKind::sum ? &sum_avx512 : &accumulate_avx512<kind, float>;
    if (kind == ReduceKind::sum) loops.accumulate_stored = &sum_stored_avx512, loops.sum_product_units = &sum_product_units;
    loops.fold = &fold_one_or_more<kind, &fold_unit<kind>>;
    loops.reduce_units = &reduce_units<kind, float>;
    loops.reduce_stored_units = &reduce_units<kind, bfloat16>;
  }
  if (level == InstructionLevel::avx2) {
    if (kind == ReduceKind::sum) loops.accumulate = &sum_avx2, loops.sum_product_units = &avx2::sum_product_units;
    loops.fold = &fold_one_or_more<kind, &avx2::fold_unit<kind>>;
    loops.reduce_units = &avx2::reduce_units<kind>;
  }
}

#else

template <ReduceKind kind>
void take_float_loops(AccumulateLoops&, InstructionLevel) {}

#endif

template <ReduceKind kind, class T>
AccumulateLoops accumulate_loops_of(InstructionLevel level) {
  AccumulateLoops loops{&accumulate_baseline<kind, T>, nullptr, &fold_baseline<kind, T>, &clear_loop<kind, T>};
  if constexpr (std::is_same_v<T, float>) take_float_loops<kind>(loops, level);
  if constexpr (std::is_floating_point_v<T>) {
    if (level != InstructionLevel::baseline && loops.accumulate == &accumulate_baseline<kind, T>)
      loops.accumulate = &accumulate_avx2<kind, T>;
  }
  return loops;
}
template <class T>
AccumulateLoops accumulate_loops_of(ReduceKind kind, InstructionLevel level) {
  switch (kind) {
    case ReduceKind::sum: return accumulate_loops_of<ReduceKind::sum, T>(level);
    case ReduceKind::min: return accumulate_loops_of<ReduceKind::min, T>(level);
    case ReduceKind::max: break;
  }
  return accumulate_loops_of<ReduceKind::max, T>(level);
}

}  // namespace detail

inline AccumulateLoops accumulate_loops(DType compute, ReduceKind kind, InstructionLevel level) {
  switch (compute) {
    case DType::float32: return detail::accumulate_loops_of<float>(kind, level);
    case DType::float64: return detail::accumulate_loops_of<double>(kind, level);
    case DType::int32: return detail::accumulate_loops_of<std::int32_t>(kind, level);
    default: return detail::accumulate_loops_of<std::int64_t>(kind, level);
  }
}

}  // namespace replicator::detail::cpu
