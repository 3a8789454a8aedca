// SPDX-License-Identifier: Apache-2.0
// Pooling on images as they lie (cpu/image_layout.hpp). The channels of a pixel are taken 8 at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cpu/image_layout.hpp>
#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/parallel.hpp>
#include <replicator/cpu/tiles.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/pooling.hpp>

namespace replicator::cpu {

namespace detail {

struct PoolingView {
  PoolingOptions options;
  std::int64_t first = 0, last = 0;  // planes
  std::int64_t pixel = 1;
  Extents2d x{}, y{};
};

// The rows and columns of a window that lie in the image.
struct ClippedWindow {
  std::int64_t row_begin, row_end, column_begin, column_end;
  std::int64_t count() const { return (row_end - row_begin) * (column_end - column_begin); }
};
[[gnu::always_inline]] inline ClippedWindow clip(const PoolingView& v, std::int64_t r, std::int64_t c) {
  const auto& o = v.options;
  const std::int64_t row = r * o.stride[0] - o.padding.low[0], column = c * o.stride[1] - o.padding.low[1];
  return {std::max<std::int64_t>(row, 0), std::min(row + o.window[0], v.x[0]), std::max<std::int64_t>(column, 0),
          std::min(column + o.window[1], v.x[1])};
}

// Calls f(plane of x, window, y) for every window and group of `lanes` channels; both are offsets in elements.
template <std::int64_t lanes, class F>
[[gnu::always_inline]] inline void for_each_window(const PoolingView& v, F f) {
  for (std::int64_t plane = v.first; plane < v.last; ++plane)
    for (std::int64_t lane = 0; lane < v.pixel; lane += lanes)
      for (std::int64_t r = 0; r < v.y[0]; ++r)
        for (std::int64_t c = 0; c < v.y[1]; ++c)
          f(plane * v.x[0] * v.x[1] * v.pixel + lane, clip(v, r, c),
            ((plane * v.y[0] + r) * v.y[1] + c) * v.pixel + lane);
}

// Calls f(offset in x, number) for every pixel of a window in row-major order.
template <class F>
[[gnu::always_inline]] inline void for_each_pixel(const PoolingView& v, std::int64_t plane, const ClippedWindow& w,
                                                  F f) {
  std::int64_t number = 0;
  for (std::int64_t row = w.row_begin; row < w.row_end; ++row)
    for (std::int64_t column = w.column_begin; column < w.column_end; ++column)
      f(plane + (row * v.x[1] + column) * v.pixel, number++);
}

template <class T>
[[gnu::always_inline]] inline void clear(const PoolingView& v, T* dx) {
  const std::int64_t plane = v.x[0] * v.x[1] * v.pixel;
  std::fill(dx + v.first * plane, dx + v.last * plane, T{});
}

// condition ? yes : no, by masks where that lets the lanes be one vector.
template <std::int64_t lanes, class T>
[[gnu::always_inline]] inline T take(bool condition, T yes, T no) {
  if constexpr (lanes == 1)
    return condition ? yes : no;
  else
    return vector_math::choose(condition, yes, no);
}

// The maximum of a window in each lane, and which pixel holds it: the first that does (the last of several NaN).
template <class T, std::int64_t lanes>
struct WindowMaximum {
  using Index = typename vector_math::BitsOf<T>::type;
  T value[lanes];
  Index at[lanes];

  [[gnu::always_inline]] void find(const PoolingView& v, const T* x, std::int64_t plane, const ClippedWindow& w) {
    for (std::int64_t j = 0; j < lanes; ++j) {
      value[j] = x[plane + (w.row_begin * v.x[1] + w.column_begin) * v.pixel + j];
      at[j] = 0;
    }
    for_each_pixel(
        v, plane, w, [&](std::int64_t i, std::int64_t number) __attribute__((always_inline)) {
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

// The loops: inputs a and b, output.
struct MaxPoolLoop {
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PoolingView& v, const T* x, const T*, T* y) {
    for_each_window<lanes>(
        v, [&](std::int64_t plane, const ClippedWindow& w, std::int64_t out) __attribute__((always_inline)) {
          WindowMaximum<T, lanes> maximum{};
          maximum.find(v, x, plane, w);
          for (std::int64_t j = 0; j < lanes; ++j) y[out + j] = maximum.value[j];
        });
  }
};

struct MaxPoolSpreadLoop {
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PoolingView& v, const T* x, const T* dy, T* dx) {
    clear(v, dx);
    for_each_window<lanes>(
        v, [&](std::int64_t plane, const ClippedWindow& w, std::int64_t out) __attribute__((always_inline)) {
          WindowMaximum<T, lanes> maximum{};
          maximum.find(v, x, plane, w);
          T upstream[lanes];
          for (std::int64_t j = 0; j < lanes; ++j) upstream[j] = dy[out + j];
          for_each_pixel(
              v, plane, w, [&](std::int64_t i, std::int64_t number) __attribute__((always_inline)) {
                const auto here = static_cast<typename WindowMaximum<T, lanes>::Index>(number);
                for (std::int64_t j = 0; j < lanes; ++j)
                  dx[i + j] += take<lanes>(maximum.at[j] == here, upstream[j], T{});
              });
        });
  }
};

struct MaxPoolPickLoop {
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PoolingView& v, const T* x, const T* u, T* y) {
    for_each_window<lanes>(
        v, [&](std::int64_t plane, const ClippedWindow& w, std::int64_t out) __attribute__((always_inline)) {
          WindowMaximum<T, lanes> maximum{};
          maximum.find(v, x, plane, w);
          T picked[lanes]{};
          for_each_pixel(
              v, plane, w, [&](std::int64_t i, std::int64_t number) __attribute__((always_inline)) {
                const auto here = static_cast<typename WindowMaximum<T, lanes>::Index>(number);
                for (std::int64_t j = 0; j < lanes; ++j)
                  picked[j] = take<lanes>(maximum.at[j] == here, u[i + j], picked[j]);
              });
          for (std::int64_t j = 0; j < lanes; ++j) y[out + j] = picked[j];
        });
  }
};

template <class T>
[[gnu::always_inline]] inline T divisor(const PoolingView& v, const ClippedWindow& w) {
  return static_cast<T>(v.options.count_include_pad ? v.options.window[0] * v.options.window[1] : w.count());
}

struct AveragePoolLoop {
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PoolingView& v, const T* x, const T*, T* y) {
    for_each_window<lanes>(
        v, [&](std::int64_t plane, const ClippedWindow& w, std::int64_t out) __attribute__((always_inline)) {
          T sum[lanes]{};
          for_each_pixel(
              v, plane, w, [&](std::int64_t i, std::int64_t) __attribute__((always_inline)) {
                for (std::int64_t j = 0; j < lanes; ++j) sum[j] += x[i + j];
              });
          const T count = divisor<T>(v, w);
          for (std::int64_t j = 0; j < lanes; ++j) y[out + j] = sum[j] / count;
        });
  }
};

struct AveragePoolTransposeLoop {
  template <std::int64_t lanes, class T>
  [[gnu::always_inline]] static void run(const PoolingView& v, const T* dy, const T*, T* dx) {
    clear(v, dx);
    for_each_window<lanes>(
        v, [&](std::int64_t plane, const ClippedWindow& w, std::int64_t out) __attribute__((always_inline)) {
          T share[lanes];
          const T count = divisor<T>(v, w);
          for (std::int64_t j = 0; j < lanes; ++j) share[j] = dy[out + j] / count;
          for_each_pixel(
              v, plane, w, [&](std::int64_t i, std::int64_t) __attribute__((always_inline)) {
                for (std::int64_t j = 0; j < lanes; ++j) dx[i + j] += share[j];
              });
        });
  }
};

template <class T>
using PoolingLoop = void (*)(const PoolingView&, const T*, const T*, T*);

template <class Loop, std::int64_t lanes, class T>
[[gnu::flatten]] void pooling_baseline(const PoolingView& v, const T* a, const T* b, T* out) {
  Loop::template run<lanes>(v, a, b, out);
}
template <class Loop, std::int64_t lanes, class T>
[[gnu::flatten, gnu::target("avx2")]] void pooling_avx2(const PoolingView& v, const T* a, const T* b, T* out) {
  Loop::template run<lanes>(v, a, b, out);
}
template <class Loop, std::int64_t lanes, class T>
[[gnu::flatten, gnu::target("avx512f")]] void pooling_avx512(const PoolingView& v, const T* a, const T* b, T* out) {
  Loop::template run<lanes>(v, a, b, out);
}

template <class Loop, class T>
PoolingLoop<T> pooling_loop(std::int64_t pixel) {
  const InstructionLevel level = instruction_level();
  if (pixel % 8 != 0) return &pooling_baseline<Loop, 1, T>;
  if (level == InstructionLevel::baseline) return &pooling_baseline<Loop, 8, T>;
  if constexpr (sizeof(T) == 4)
    if (level == InstructionLevel::avx512 && pixel % 16 == 0) return &pooling_avx512<Loop, 16, T>;
  return &pooling_avx2<Loop, 8, T>;
}

template <class T>
class PoolingLoops final : public Executable {
 public:
  PoolingLoops(const PoolingView& view, PoolingLoop<T> loop, int threads)
      : view_{view}, loop_{loop}, threads_{threads} {}
  void run(const Launch& launch) const override {
    const T* second = input_layouts.size() > 1 ? reinterpret_cast<const T*>(launch.inputs[1]) : nullptr;
    parallel_for(threads_, view_.last, [&](int, std::int64_t first, std::int64_t last) {
      PoolingView part = view_;
      part.first = first;
      part.last = last;
      loop_(part, reinterpret_cast<const T*>(launch.inputs[0]), second, reinterpret_cast<T*>(launch.outputs[0]));
    });
  }

 private:
  PoolingView view_;
  PoolingLoop<T> loop_;
  int threads_;
};

// All images are taken and given in the layout in which input 0 is offered.
template <class Loop, class T>
std::unique_ptr<Executable> make_pooling_loops(const PoolingOptions& options, const Shape& x, const Shape& y,
                                               const KernelRequest& request) {
  const ImageLayout layout = image_layout(request.offered[0], request.inputs[0].shape);
  const PoolingView view{options, 0, layout.planes(x), layout.pixel(x), {x[2], x[3]}, {y[2], y[3]}};
  auto result = std::make_unique<PoolingLoops<T>>(view, pooling_loop<Loop, T>(view.pixel), request.threads);
  for (const auto& input : request.inputs) result->input_layouts.push_back(layout.of(input.shape));
  result->output_layouts = {layout.of(request.outputs[0].shape)};
  result->in_place = {-1};
  return result;
}

template <class Loop>
std::unique_ptr<Executable> make_pooling(const PoolingOptions& options, const Shape& x, const Shape& y,
                                         const KernelRequest& request) {
  if (request.outputs[0].dtype == DType::float32) return make_pooling_loops<Loop, float>(options, x, y, request);
  if (request.outputs[0].dtype == DType::float64) return make_pooling_loops<Loop, double>(options, x, y, request);
  return nullptr;
}

inline std::unique_ptr<Executable> make_max_pool(const KernelRequest& r) {
  if (r.outputs[0].dtype == DType::bfloat16) return in_float32(r, &make_max_pool);
  return make_pooling<MaxPoolLoop>(r.operation.get<MaxPool>()->options, r.inputs[0].shape, r.outputs[0].shape, r);
}
inline std::unique_ptr<Executable> make_max_pool_spread(const KernelRequest& r) {
  if (r.outputs[0].dtype == DType::bfloat16) return in_float32(r, &make_max_pool_spread);
  return make_pooling<MaxPoolSpreadLoop>(r.operation.get<MaxPoolSpread>()->options, r.inputs[0].shape,
                                         r.inputs[1].shape, r);
}
inline std::unique_ptr<Executable> make_max_pool_pick(const KernelRequest& r) {
  if (r.outputs[0].dtype == DType::bfloat16) return in_float32(r, &make_max_pool_pick);
  return make_pooling<MaxPoolPickLoop>(r.operation.get<MaxPoolPick>()->options, r.inputs[0].shape, r.outputs[0].shape,
                                       r);
}
inline std::unique_ptr<Executable> make_average_pool(const KernelRequest& r) {
  if (r.outputs[0].dtype == DType::bfloat16) return in_float32(r, &make_average_pool);
  return make_pooling<AveragePoolLoop>(r.operation.get<AveragePool>()->options, r.inputs[0].shape, r.outputs[0].shape,
                                       r);
}
inline std::unique_ptr<Executable> make_average_pool_transpose(const KernelRequest& r) {
  if (r.outputs[0].dtype == DType::bfloat16) return in_float32(r, &make_average_pool_transpose);
  return make_pooling<AveragePoolTransposeLoop>(r.operation.get<AveragePoolTranspose>()->options, r.outputs[0].shape,
                                                r.inputs[0].shape, r);
}

}  // namespace detail

inline constexpr Kernel max_pool_loops{"max pool loops", &detail::make_max_pool};
inline constexpr Kernel max_pool_spread_loops{"max pool spread loops", &detail::make_max_pool_spread};
inline constexpr Kernel max_pool_pick_loops{"max pool pick loops", &detail::make_max_pool_pick};
inline constexpr Kernel average_pool_loops{"average pool loops", &detail::make_average_pool};
inline constexpr Kernel average_pool_transpose_loops{"average pool transpose loops",
                                                     &detail::make_average_pool_transpose};

inline const bool pooling_loops_registered =
    register_kernel<MaxPool>(DeviceKind::cpu, KernelTier::reference, &max_pool_loops) &&
    register_kernel<MaxPoolSpread>(DeviceKind::cpu, KernelTier::reference, &max_pool_spread_loops) &&
    register_kernel<MaxPoolPick>(DeviceKind::cpu, KernelTier::reference, &max_pool_pick_loops) &&
    register_kernel<AveragePool>(DeviceKind::cpu, KernelTier::reference, &average_pool_loops) &&
    register_kernel<AveragePoolTranspose>(DeviceKind::cpu, KernelTier::reference, &average_pool_transpose_loops);

}  // namespace replicator::cpu
