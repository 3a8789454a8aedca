// SPDX-License-Identifier: Apache-2.0
// Primitive loops of reductions: lanes that accumulate rows, and the tree that folds the lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <replicator/core/dtype.hpp>
#include <replicator/cpu/lanes.hpp>
#include <replicator/cpu/tiles.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::cpu {

// The loops of one kind of reduction on one element type.
struct AccumulateLoops {
  // lanes[j] = lanes[j] (+) rows[r * width + j] for every row r in turn
  void (*accumulate)(void* lanes, const void* rows, std::int64_t width, std::int64_t count) = nullptr;
  // The same, of rows that are stored as bfloat16; null where they have to be widened.
  void (*accumulate_stored)(void* lanes, const void* rows, std::int64_t width, std::int64_t count) = nullptr;
  // lanes[j] for j < width = a balanced tree over lanes[j + p width], p < parts; parts is a power of two
  void (*fold)(void* lanes, std::int64_t width, std::int64_t parts) = nullptr;
  void (*clear)(void* lanes, std::int64_t count) = nullptr;  // to the identity
};

namespace detail {

// A NaN among the elements gives NaN, whatever the order.
template <ReduceKind kind, class T>
[[gnu::always_inline]] inline T combine(T a, T b) {
  if constexpr (kind == ReduceKind::sum) return plus(a, b);
  else if constexpr (kind == ReduceKind::min) return vector_math::choose((b < a) | (b != b), b, a);
  else return vector_math::choose((a < b) | (b != b), b, a);
}

// Of a sum: minus zero, which leaves every number as it is.
template <ReduceKind kind, class T>
constexpr T identity() {
  using Limits = std::numeric_limits<T>;
  if constexpr (kind == ReduceKind::sum) return std::is_floating_point_v<T> ? -T(0) : T(0);
  else if constexpr (kind == ReduceKind::min) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  else return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

template <ReduceKind kind, class T>
[[gnu::always_inline]] inline void accumulate_loop(void* to, const void* from, std::int64_t width, std::int64_t count) {
  T* lanes = static_cast<T*>(to);
  const T* x = static_cast<const T*>(from);
  constexpr std::int64_t usual = 64;
  if (width == usual)  // four rows at a time: fewer trips of the lanes through memory, the same order
    for (; count >= 4; count -= 4, x += 4 * usual) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < usual; ++j)
        lanes[j] = combine<kind>(
            combine<kind>(combine<kind>(combine<kind>(lanes[j], x[j]), x[usual + j]), x[2 * usual + j]), x[3 * usual + j]);
    }
  for (; count > 0; --count, x += width) {
    std::int64_t i = 0;
    for (; i + tile_group <= width; i += tile_group) {
#pragma GCC ivdep
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
[[gnu::target("avx2")]] void accumulate_avx2(void* lanes, const void* rows, std::int64_t width, std::int64_t count) {
  accumulate_loop<kind, T>(lanes, rows, width, count);
}
template <ReduceKind kind, class T>
[[gnu::target("avx512f")]] void accumulate_avx512(void* lanes, const void* rows, std::int64_t width, std::int64_t count) {
  accumulate_loop<kind, T>(lanes, rows, width, count);
}
// Sixteen floats in a row, at any address: packed.
struct [[gnu::packed, gnu::may_alias]] SixteenFloats {
  float __attribute__((vector_size(64))) values;
};
// The usual 64 lanes stay in four registers for all rows; the order of additions is that of the loop.
[[gnu::target("avx512f")]] inline void sum_avx512(void* to, const void* from, std::int64_t width, std::int64_t count) {
  if (width != 64) return accumulate_avx512<ReduceKind::sum, float>(to, from, width, count);
  auto* lanes = static_cast<SixteenFloats*>(to);
  const auto* x = static_cast<const SixteenFloats*>(from);
  auto a = lanes[0].values, b = lanes[1].values, c = lanes[2].values, d = lanes[3].values;
  for (; count > 0; --count, x += 4) a += x[0].values, b += x[1].values, c += x[2].values, d += x[3].values;
  lanes[0].values = a, lanes[1].values = b, lanes[2].values = c, lanes[3].values = d;
}
// lanes += x. Of two NaN the lane's stays, however the loop is compiled: in C++ a compiler may exchange the operands.
[[gnu::target("avx512f"), gnu::always_inline]] inline void add_to(FloatLanes& lanes, const FloatLanes& x) { asm("vaddps %1, %0, %0" : "+v"(lanes) : "v"(x)); }
// The same of bfloat16, for any width.
[[gnu::target("avx512f")]] inline void sum_stored_avx512(void* to, const void* from, std::int64_t width, std::int64_t count) {
  constexpr std::size_t group = tile_group * sizeof(bfloat16);
  const auto* x = static_cast<const std::byte*>(from);
  if (width == 64) {
    auto* lanes = static_cast<SixteenFloats*>(to);
    auto a = lanes[0].values, b = lanes[1].values, c = lanes[2].values, d = lanes[3].values;
    for (; count > 0; --count, x += 4 * group) {
      add_to(a, load_lanes(x, bfloat16{})), add_to(b, load_lanes(x + group, bfloat16{}));
      add_to(c, load_lanes(x + 2 * group, bfloat16{})), add_to(d, load_lanes(x + 3 * group, bfloat16{}));
    }
    lanes[0].values = a, lanes[1].values = b, lanes[2].values = c, lanes[3].values = d;
  }
  for (; count > 0; --count) {
    auto* lane = static_cast<std::byte*>(to);
    std::int64_t left = width;
    FloatLanes sum{};
    for (; left >= tile_group; left -= tile_group, lane += sizeof sum, x += group) {
      std::memcpy(&sum, lane, sizeof sum);
      add_to(sum, load_lanes(x, bfloat16{}));
      std::memcpy(lane, &sum, sizeof sum);
    }
    const auto rest = static_cast<std::size_t>(left);
    std::byte last[group]{};
    std::memcpy(&sum, lane, rest * sizeof(float));
    std::memcpy(last, x, rest * sizeof(bfloat16));
    add_to(sum, load_lanes(last, bfloat16{}));
    std::memcpy(lane, &sum, rest * sizeof(float));
    x += rest * sizeof(bfloat16);
  }
}
template <ReduceKind kind, class T>
void fold_baseline(void* lanes, std::int64_t width, std::int64_t parts) {
  fold_loop<kind, T>(lanes, width, parts);
}

template <ReduceKind kind, class T>
AccumulateLoops accumulate_loops_of(InstructionLevel level) {
  AccumulateLoops loops{&accumulate_baseline<kind, T>, nullptr, &fold_baseline<kind, T>, &clear_loop<kind, T>};
  if constexpr (std::is_same_v<T, float>) {
    if (level == InstructionLevel::avx512 && kind == ReduceKind::sum) loops.accumulate_stored = &sum_stored_avx512;
    if (level == InstructionLevel::avx512) loops.accumulate = kind == ReduceKind::sum ? &sum_avx512 : &accumulate_avx512<kind, T>;
  }
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

}  // namespace replicator::cpu
