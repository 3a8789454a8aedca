// SPDX-License-Identifier: Apache-2.0
// Inner loops of pooling on the CPU. Each runs over the windows of one row, in the type of computation. It takes 8 or 16 channels
// of a pixel at a time where it can.
#pragma once

#include <algorithm>
#include <cstdint>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/loops/vector_math.hpp>
#include <replicator/ops/pooling.hpp>

namespace replicator::detail::cpu::detail {

// The positions [begin, end) along an axis.
struct PoolingSpan {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Planes of x[0] by x[1] pixels that are pooled to y[0] by y[1] pixels. A pixel has `pixel` elements.
struct PooledPlanes {
  PoolingOptions options;
  Extents2d x{}, y{};
  std::int64_t pixel = 1;

  // The positions of x along an axis that the window at `position` covers.
  [[gnu::always_inline]] PoolingSpan window(std::size_t axis, std::int64_t position) const {
    const std::int64_t first = position * options.stride[axis] - options.padding.low[axis];
    return {std::max<std::int64_t>(first, 0), std::min(first + options.window[axis], x[axis])};
  }
};

// The rows of x that the windows of a row of y cover, at least one. `begin` says where each begins, in elements.
struct CoveredRows {
  const std::int64_t* begin;
  std::int64_t count;
};

// Calls f(columns of x, channel, offset in the row of y) for every window and group of `lanes` channels.
template <std::int64_t lanes, class F>
[[gnu::always_inline]] inline void for_each_window(const PooledPlanes& p, F f) {
  const std::int64_t pixel = p.pixel, windows = p.y[1];
  for (std::int64_t channel = 0; channel < pixel; channel += lanes)
    for (std::int64_t c = 0; c < windows; ++c) f(p.window(1, c), channel, c * pixel + channel);
}

// Calls f(offset in x, number) for every pixel of a window in row-major order.
template <class F>
[[gnu::always_inline]] inline void for_each_pixel(const PooledPlanes& p, const CoveredRows& rows, const PoolingSpan& columns, std::int64_t channel, F f) {
  const std::int64_t pixel = p.pixel, first = columns.begin * pixel + channel, length = columns.size() * pixel;
  std::int64_t number = 0, row = 0;
  do {
    std::int64_t i = rows.begin[row] + first;
    const std::int64_t end = i + length;
    do f(i, number++);
    while ((i += pixel) != end);
  } while (++row != rows.count);
}

// condition ? yes : no. Uses masks where they let the lanes be one vector.
template <std::int64_t lanes, class T>
[[gnu::always_inline]] inline T take(bool condition, T yes, T no) {
  if constexpr (lanes == 1) return condition ? yes : no;
  else return vector_math::choose(condition, yes, no);
}

// The maximum of a window in each lane, and the number of the first pixel that holds it (the last of several NaN).
template <class T, std::int64_t lanes>
struct WindowMaximum {
  using Index = typename vector_math::BitsOf<T>::type;
  T value[lanes];
  Index at[lanes];

  [[gnu::always_inline]] void find(const PooledPlanes& p, const CoveredRows& rows, const PoolingSpan& columns, std::int64_t channel, const T* x) {
    const std::int64_t first = rows.begin[0] + columns.begin * p.pixel + channel;
    for (std::int64_t j = 0; j < lanes; ++j) {
      value[j] = x[first + j];
      at[j] = 0;
    }
    for_each_pixel(
        p, rows, columns, channel, [&](std::int64_t i, std::int64_t number) __attribute__((always_inline)) {
          const auto here = static_cast<Index>(number);
          for (std::int64_t j = 0; j < lanes; ++j) {
            const T candidate = x[i + j];
            const bool better = (candidate > value[j]) | (candidate != candidate);
            value[j] = take<lanes>(better, candidate, value[j]);
            at[j] = take<lanes>(better, here, at[j]);
          }
        });
  }
};

template <class T>
[[gnu::always_inline]] inline T divisor(const PooledPlanes& p, const CoveredRows& rows, const PoolingSpan& columns) {
  const auto& o = p.options;
  return static_cast<T>(o.count_include_pad ? o.window[0] * o.window[1] : rows.count * columns.size());
}

// The loops on inputs a and b. Each tensor is the covered rows of x, or one row of y. Outputs that are added to are cleared
// before the first window.
struct MaxPoolLoop {
  static constexpr bool a_is_x = true, b_is_x = true, out_is_x = false;
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PooledPlanes& p, const CoveredRows& rows, const T* x, const T*, T* y) {
    for_each_window<lanes>(
        p, [&](const PoolingSpan& columns, std::int64_t channel, std::int64_t out) __attribute__((always_inline)) {
          WindowMaximum<T, lanes> maximum{};
          maximum.find(p, rows, columns, channel, x);
          for (std::int64_t j = 0; j < lanes; ++j) y[out + j] = maximum.value[j];
        });
  }
};

struct MaxPoolSpreadLoop {
  static constexpr bool a_is_x = true, b_is_x = false, out_is_x = true;
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PooledPlanes& p, const CoveredRows& rows, const T* x, const T* dy, T* dx) {
    for_each_window<lanes>(
        p, [&](const PoolingSpan& columns, std::int64_t channel, std::int64_t out) __attribute__((always_inline)) {
          WindowMaximum<T, lanes> maximum{};
          maximum.find(p, rows, columns, channel, x);
          T upstream[lanes];
          for (std::int64_t j = 0; j < lanes; ++j) upstream[j] = dy[out + j];
          for_each_pixel(
              p, rows, columns, channel, [&](std::int64_t i, std::int64_t number) __attribute__((always_inline)) {
                const auto here = static_cast<typename WindowMaximum<T, lanes>::Index>(number);
                for (std::int64_t j = 0; j < lanes; ++j) dx[i + j] += take<lanes>(maximum.at[j] == here, upstream[j], T{});
              });
        });
  }
};

struct MaxPoolPickLoop {
  static constexpr bool a_is_x = true, b_is_x = true, out_is_x = false;
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PooledPlanes& p, const CoveredRows& rows, const T* x, const T* u, T* y) {
    for_each_window<lanes>(
        p, [&](const PoolingSpan& columns, std::int64_t channel, std::int64_t out) __attribute__((always_inline)) {
          WindowMaximum<T, lanes> maximum{};
          maximum.find(p, rows, columns, channel, x);
          T picked[lanes]{};
          for_each_pixel(
              p, rows, columns, channel, [&](std::int64_t i, std::int64_t number) __attribute__((always_inline)) {
                const auto here = static_cast<typename WindowMaximum<T, lanes>::Index>(number);
                for (std::int64_t j = 0; j < lanes; ++j) picked[j] = take<lanes>(maximum.at[j] == here, u[i + j], picked[j]);
              });
          for (std::int64_t j = 0; j < lanes; ++j) y[out + j] = picked[j];
        });
  }
};

struct AveragePoolLoop {
  static constexpr bool a_is_x = true, b_is_x = true, out_is_x = false;
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PooledPlanes& p, const CoveredRows& rows, const T* x, const T*, T* y) {
    for_each_window<lanes>(
        p, [&](const PoolingSpan& columns, std::int64_t channel, std::int64_t out) __attribute__((always_inline)) {
          T sum[lanes]{};
          for_each_pixel(
              p, rows, columns, channel, [&](std::int64_t i, std::int64_t) __attribute__((always_inline)) {
                for (std::int64_t j = 0; j < lanes; ++j) sum[j] += x[i + j];
              });
          const T count = divisor<T>(p, rows, columns);
          for (std::int64_t j = 0; j < lanes; ++j) y[out + j] = sum[j] / count;
        });
  }
};

struct AveragePoolTransposeLoop {
  static constexpr bool a_is_x = false, b_is_x = false, out_is_x = true;
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PooledPlanes& p, const CoveredRows& rows, const T* dy, const T*, T* dx) {
    for_each_window<lanes>(
        p, [&](const PoolingSpan& columns, std::int64_t channel, std::int64_t out) __attribute__((always_inline)) {
          T share[lanes];
          const T count = divisor<T>(p, rows, columns);
          for (std::int64_t j = 0; j < lanes; ++j) share[j] = dy[out + j] / count;
          for_each_pixel(
              p, rows, columns, channel, [&](std::int64_t i, std::int64_t) __attribute__((always_inline)) {
                for (std::int64_t j = 0; j < lanes; ++j) dx[i + j] += share[j];
              });
        });
  }
};

// a, b and out point to elements of T.
using PoolingLoop = void (*)(const PooledPlanes&, const CoveredRows&, const void* a, const void* b, void* out);

template <class Loop, std::int64_t lanes, class T>
[[gnu::flatten]] void pooling_baseline(const PooledPlanes& p, const CoveredRows& rows, const void* a, const void* b, void* out) {
  Loop::template run<lanes>(p, rows, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out));
}
template <class Loop, std::int64_t lanes, class T>
[[gnu::flatten, REPLICATOR_AVX2]] void pooling_avx2(const PooledPlanes& p, const CoveredRows& rows, const void* a, const void* b, void* out) {
  Loop::template run<lanes>(p, rows, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out));
}
template <class Loop, std::int64_t lanes, class T>
[[gnu::flatten, REPLICATOR_AVX512]] void pooling_avx512(const PooledPlanes& p, const CoveredRows& rows, const void* a, const void* b, void* out) {
  Loop::template run<lanes>(p, rows, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out));
}

template <class Loop, class T>
PoolingLoop pooling_loop(std::int64_t pixel) {
  const InstructionLevel level = instruction_level();
  if (pixel % 8 != 0) return &pooling_baseline<Loop, 1, T>;
  if (level == InstructionLevel::baseline) return &pooling_baseline<Loop, 8, T>;
  if constexpr (sizeof(T) == 4)
    if (level == InstructionLevel::avx512 && pixel % 16 == 0) return &pooling_avx512<Loop, 16, T>;
  return &pooling_avx2<Loop, 8, T>;
}

}  // namespace replicator::detail::cpu::detail
