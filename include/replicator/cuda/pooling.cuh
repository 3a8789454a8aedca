// SPDX-License-Identifier: Apache-2.0
// Kernels of pooling on GPUs. They run where a program has no cuDNN, for gradients of maxima, and for what cudnn_pooling.cuh
// does not take. They walk windows in the order of cpu/loops/pooling_loops.hpp, so they give its bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/divider_of.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/image_layout.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/rtc/storage.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/pooling.hpp>

namespace replicator::detail::cuda {

// Images as planes of x[0] by x[1] pixels, which are pooled to y[0] by y[1] pixels. A pixel has `pixel` elements, which threads
// take in groups. Coordinates are of type I: 32 bits where no image has 2^31 elements, else 64.
template <class I>
struct PoolingExtents {
  I x[2], y[2], window[2], stride[2], padding[2], pixel;
  Divider by_x[2], by_y[2], by_stride[2], by_groups;
  bool count_include_pad;
};

// Where a group of elements lies: its plane, pixel, and first channel.
template <class I>
struct PoolingPosition {
  I plane, row, column, channel;
};
// Of group `i` of the images with these extents.
template <int lanes, class I>
__device__ PoolingPosition<I> position_of(const PoolingExtents<I>& e, const I (&extents)[2], const Divider (&by)[2], I i) {
  const I pixel = quotient_by(e.by_groups, i), line = quotient_by(by[1], pixel), plane = quotient_by(by[0], line);
  return {plane, line - plane * extents[0], pixel - line * extents[1], (i - pixel * (e.pixel / lanes)) * lanes};
}

// The part of a window that lies in the image.
template <class I>
struct PoolingWindow {
  I first[2];  // of the whole window, also where that is padding
  I begin[2], end[2];
};
template <class I>
__device__ PoolingWindow<I> window_at(const PoolingExtents<I>& e, I row, I column) {
  const I at[2] = {row, column};
  PoolingWindow<I> w;
  for (int i = 0; i < 2; ++i) {
    const I first = at[i] * e.stride[i] - e.padding[i];
    w.first[i] = first;
    w.begin[i] = first < 0 ? 0 : first;
    w.end[i] = first + e.window[i] < e.x[i] ? first + e.window[i] : e.x[i];
  }
  return w;
}

// The positions [first, end) along an axis of the windows that hold row (or column) `at`.
template <class I>
struct PoolingSpan {
  I first, end;
};
template <class I>
__device__ PoolingSpan<I> windows_with(const PoolingExtents<I>& e, int axis, I at) {
  const I last = at + e.padding[axis], first = last - e.window[axis] + 1;
  const I end = quotient_by(e.by_stride[axis], last) + 1;
  return {first <= 0 ? 0 : quotient_by(e.by_stride[axis], static_cast<I>(first + e.stride[axis] - 1)), end < e.y[axis] ? end : e.y[axis]};
}

// The maxima of a window in `lanes` channels, and their places: the number of a pixel in the whole window. Of equal elements
// the first one counts, of several NaN the last one.
template <class T, int lanes>
struct WindowMaxima {
  T value[lanes]{};
  std::int32_t place[lanes]{};

  template <class I, class Stored>
  __device__ void find(const PoolingExtents<I>& e, const PoolingWindow<I>& w, const Stored* plane) {
    bool any = false;
    for (I row = w.begin[0]; row < w.end[0]; ++row)
      for (I column = w.begin[1]; column < w.end[1]; ++column) {
        const auto number = static_cast<std::int32_t>((row - w.first[0]) * e.window[1] + (column - w.first[1]));
        const Lanes<Stored, lanes> loaded = lanes_at<lanes>(plane + (row * e.x[1] + column) * e.pixel);
        for (int j = 0; j < lanes; ++j) {
          const T candidate = value_of(loaded.at[j]);
          if (any && !(candidate > value[j]) && candidate == candidate) continue;
          value[j] = candidate;
          place[j] = number;
        }
        any = true;
      }
  }
};

template <class T, class I>
__device__ T divisor(const PoolingExtents<I>& e, const PoolingWindow<I>& w) {
  return static_cast<T>(e.count_include_pad ? e.window[0] * e.window[1] : (w.end[0] - w.begin[0]) * (w.end[1] - w.begin[1]));
}

// The inputs, from an element's plane and channel on, and its position.
template <class T, class I>
struct PoolingPlace {
  const T* a;
  const T* b;
  I row, column;
};

// Each computes one element of its result. The result has the shape of x (over_x) or of y. a_is_x and b_is_x say it of the inputs.
struct MaxPoolKernel {
  static constexpr bool over_x = false, a_is_x = true, b_is_x = true;
  template <class T, class I>
  __device__ static compute_of<T> element(const PoolingExtents<I>& e, const PoolingPlace<T, I>& at) {
    WindowMaxima<compute_of<T>, 1> maximum;
    maximum.find(e, window_at(e, at.row, at.column), at.a);
    return maximum.value[0];
  }
};
struct MaxPoolPickKernel {
  static constexpr bool over_x = false, a_is_x = true, b_is_x = true;
  template <class T, class I>
  __device__ static compute_of<T> element(const PoolingExtents<I>& e, const PoolingPlace<T, I>& at) {
    const auto w = window_at(e, at.row, at.column);
    WindowMaxima<compute_of<T>, 1> maximum;
    maximum.find(e, w, at.a);
    const I row = maximum.place[0] / e.window[1], column = maximum.place[0] - row * e.window[1];
    return value_of(at.b[((w.first[0] + row) * e.x[1] + w.first[1] + column) * e.pixel]);
  }
};
struct AveragePoolKernel {
  static constexpr bool over_x = false, a_is_x = true, b_is_x = true;
  template <class T, class I>
  __device__ static compute_of<T> element(const PoolingExtents<I>& e, const PoolingPlace<T, I>& at) {
    const auto w = window_at(e, at.row, at.column);
    compute_of<T> sum{};
    for (I row = w.begin[0]; row < w.end[0]; ++row)
      for (I column = w.begin[1]; column < w.end[1]; ++column)
        sum = plus(sum, value_of(at.a[(row * e.x[1] + column) * e.pixel]));
    return quotient(sum, divisor<compute_of<T>>(e, w));
  }
};
struct AveragePoolTransposeKernel {
  static constexpr bool over_x = true, a_is_x = false, b_is_x = false;
  template <class T, class I>
  __device__ static compute_of<T> element(const PoolingExtents<I>& e, const PoolingPlace<T, I>& at) {
    const auto rows = windows_with(e, 0, at.row), columns = windows_with(e, 1, at.column);
    compute_of<T> sum{};
    for (I r = rows.first; r < rows.end; ++r)
      for (I c = columns.first; c < columns.end; ++c)
        sum = plus(sum, quotient(value_of(at.a[(r * e.y[1] + c) * e.pixel]), divisor<compute_of<T>>(e, window_at(e, r, c))));
    return sum;
  }
};

template <class Loop, class I, class T>
__global__ void pool(const __grid_constant__ PoolingExtents<I> e, I elements, const T* a, const T* b, T* out) {
  for (long long i = first_element(); i < elements; i += element_stride()) {
    const auto at = Loop::over_x ? position_of<1>(e, e.x, e.by_x, static_cast<I>(i)) : position_of<1>(e, e.y, e.by_y, static_cast<I>(i));
    const I of_x = at.plane * e.x[0] * e.x[1] * e.pixel + at.channel, of_y = at.plane * e.y[0] * e.y[1] * e.pixel + at.channel;
    out[i] = stored<T>(Loop::element(e, PoolingPlace<T, I>{a + (Loop::a_is_x ? of_x : of_y), b + (Loop::b_is_x ? of_x : of_y), at.row, at.column}));
  }
}

// places[y] = which element of its window is the maximum.
template <int lanes, class I, class P, class A>
__global__ void find_maxima(const __grid_constant__ PoolingExtents<I> e, I groups, const A* x, P* places) {
  for (long long i = first_element(); i < groups; i += element_stride()) {
    const auto at = position_of<lanes>(e, e.y, e.by_y, static_cast<I>(i));
    WindowMaxima<compute_of<A>, lanes> maxima;
    maxima.find(e, window_at(e, at.row, at.column), x + (at.plane * e.x[0] * e.x[1] * e.pixel + at.channel));
    Lanes<P, lanes> found;
    for (int j = 0; j < lanes; ++j) found.at[j] = static_cast<P>(maxima.place[j]);
    *reinterpret_cast<Lanes<P, lanes>*>(places + i * lanes) = found;
  }
}
// dx = the sum of dy over the windows that have their maximum there, in ascending order.
template <int lanes, class I, class P, class A, class B>
__global__ void spread(const __grid_constant__ PoolingExtents<I> e, I groups, const P* places, const B* dy, A* dx) {
  for (long long i = first_element(); i < groups; i += element_stride()) {
    const auto at = position_of<lanes>(e, e.x, e.by_x, static_cast<I>(i));
    const auto rows = windows_with(e, 0, at.row), columns = windows_with(e, 1, at.column);
    compute_of<A> sum[lanes]{};
    for (I r = rows.first; r < rows.end; ++r)
      for (I c = columns.first; c < columns.end; ++c) {
        const I window = ((at.plane * e.y[0] + r) * e.y[1] + c) * e.pixel + at.channel;
        const auto here = static_cast<P>((at.row - (r * e.stride[0] - e.padding[0])) * e.window[1] + (at.column - (c * e.stride[1] - e.padding[1])));
        const Lanes<P, lanes> chosen = lanes_at<lanes>(places + window);
        const Lanes<B, lanes> upstream = lanes_at<lanes>(dy + window);
        for (int j = 0; j < lanes; ++j)
          if (chosen.at[j] == here) sum[j] = plus(sum[j], static_cast<compute_of<A>>(value_of(upstream.at[j])));
      }
    Lanes<A, lanes> result;
    for (int j = 0; j < lanes; ++j) result.at[j] = stored<A>(sum[j]);
    *reinterpret_cast<Lanes<A, lanes>*>(dx + i * lanes) = result;
  }
}

// All images have the layout in which input 0 is offered. `x` is the larger image and `y` the pooled one.
struct PoolingProblem {
  PoolingProblem(const PoolingOptions& o, Shape larger, Shape pooled, const KernelRequest& request)
      : options{o}, x{larger}, y{pooled}, layout{image_layout(request.offered[0], request.inputs[0].shape)} {}

  std::int64_t pixel() const { return layout.pixel(x); }
  bool is_small() const { return fits_32_bits(std::max({x.elements(), y.elements(), options.window[0] * options.window[1]})); }

  template <class I>
  PoolingExtents<I> extents(int lanes) const {
    PoolingExtents<I> e{};
    e.pixel = static_cast<I>(pixel());
    e.by_groups = divider_of(pixel() / lanes);
    for (std::size_t i = 0; i < 2; ++i) {
      e.x[i] = static_cast<I>(x[i + 2]);
      e.y[i] = static_cast<I>(y[i + 2]);
      e.window[i] = static_cast<I>(options.window[i]);
      e.stride[i] = static_cast<I>(options.stride[i]);
      e.padding[i] = static_cast<I>(options.padding.low[i]);
      e.by_x[i] = divider_of(x[i + 2]);
      e.by_y[i] = divider_of(y[i + 2]);
      e.by_stride[i] = divider_of(options.stride[i]);
    }
    e.count_include_pad = options.count_include_pad;
    return e;
  }

  PoolingOptions options;
  Shape x, y;
  ImageLayout layout;
};

template <class Loop, class I, class T>
class PoolingExecutable final : public Executable {
 public:
  PoolingExecutable(const PoolingProblem& problem, const KernelRequest& request)
      : extents_{problem.extents<I>(1)}, elements_{request.outputs[0].shape.elements()} {
    for (const auto& input : request.inputs) input_layouts.push_back(problem.layout.of(input.shape));
    output_layouts = {problem.layout.of(request.outputs[0].shape)};
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    if (elements_ == 0) return;
    const std::byte* second = launch.inputs[input_layouts.size() - 1];
    pool<Loop><<<blocks_for(elements_, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
        extents_, static_cast<I>(elements_), reinterpret_cast<const T*>(launch.inputs[0]), reinterpret_cast<const T*>(second),
        reinterpret_cast<T*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  PoolingExtents<I> extents_;
  std::int64_t elements_;
};

// Finds the place of each maximum first, in scratch memory, so that no element walks through the windows of its neighbours.
template <int lanes, class I, class P, class A, class B>
class MaxPoolSpreadExecutable final : public Executable {
 public:
  MaxPoolSpreadExecutable(const PoolingProblem& problem, const KernelRequest& request)
      : extents_{problem.extents<I>(lanes)}, of_x_{problem.x.elements() / lanes}, of_y_{problem.y.elements() / lanes} {
    for (const auto& input : request.inputs) input_layouts.push_back(problem.layout.of(input.shape));
    output_layouts = {problem.layout.of(request.outputs[0].shape)};
    in_place = {-1};
    scratch_bytes = static_cast<std::size_t>(problem.y.elements()) * sizeof(P);
  }
  void run(const Launch& launch) const override {
    if (of_x_ == 0) return;
    const cudaStream_t stream = stream_of(launch.stream);
    P* const places = reinterpret_cast<P*>(launch.scratch);
    if (of_y_ > 0)
      find_maxima<lanes><<<blocks_for(of_y_, block_threads), block_threads, 0, stream>>>(
          extents_, static_cast<I>(of_y_), reinterpret_cast<const A*>(launch.inputs[0]), places);
    spread<lanes><<<blocks_for(of_x_, block_threads), block_threads, 0, stream>>>(
        extents_, static_cast<I>(of_x_), static_cast<const P*>(places), reinterpret_cast<const B*>(launch.inputs[1]), reinterpret_cast<A*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  PoolingExtents<I> extents_;
  std::int64_t of_x_, of_y_;
};

template <class A, class B = A>
std::unique_ptr<Executable> make_spread(const PoolingProblem& p, const KernelRequest& request) {
  const bool small = p.is_small() && p.options.window[0] * p.options.window[1] <= 256;
  if (small && p.pixel() % 8 == 0) return std::make_unique<MaxPoolSpreadExecutable<8, std::int32_t, std::uint8_t, A, B>>(p, request);
  if (small) return std::make_unique<MaxPoolSpreadExecutable<1, std::int32_t, std::uint8_t, A, B>>(p, request);
  return std::make_unique<MaxPoolSpreadExecutable<1, std::int64_t, std::int32_t, A, B>>(p, request);
}
inline std::unique_ptr<Executable> make_max_pool_spread(const KernelRequest& request) {
  const PoolingProblem p{request.operation.get<MaxPoolSpread>()->options, request.inputs[0].shape, request.inputs[1].shape, request};
  if (request.inputs[0].dtype != request.inputs[1].dtype) return make_spread<Bfloat16Word, float>(p, request);
  switch (request.outputs[0].dtype) {
    case DType::float32: return make_spread<float>(p, request);
    case DType::float64: return make_spread<double>(p, request);
    case DType::bfloat16: return make_spread<Bfloat16Word>(p, request);
    default: return nullptr;
  }
}

template <class Op, class Loop>
std::unique_ptr<Executable> make_pooling(const KernelRequest& request) {
  const Shape& input = request.inputs[0].shape;
  const Shape& output = request.outputs[0].shape;
  const PoolingProblem p{request.operation.get<Op>()->options, Loop::over_x ? output : input, Loop::over_x ? input : output, request};
  const auto of_type = [&]<class T>(T) -> std::unique_ptr<Executable> {
    if (p.is_small()) return std::make_unique<PoolingExecutable<Loop, std::int32_t, T>>(p, request);
    return std::make_unique<PoolingExecutable<Loop, std::int64_t, T>>(p, request);
  };
  switch (request.outputs[0].dtype) {
    case DType::float32: return of_type(float{});
    case DType::float64: return of_type(double{});
    case DType::bfloat16: return of_type(Bfloat16Word{});
    default: return nullptr;
  }
}

inline constexpr Kernel max_pool_kernel{"cuda max pool", &make_pooling<MaxPool, MaxPoolKernel>};
inline constexpr Kernel max_pool_spread_kernel{"cuda max pool spread", &make_max_pool_spread};
inline constexpr Kernel max_pool_pick_kernel{"cuda max pool pick", &make_pooling<MaxPoolPick, MaxPoolPickKernel>};
inline constexpr Kernel average_pool_kernel{"cuda average pool", &make_pooling<AveragePool, AveragePoolKernel>};
inline constexpr Kernel average_pool_transpose_kernel{"cuda average pool transpose", &make_pooling<AveragePoolTranspose, AveragePoolTransposeKernel>};

inline const bool pooling_registered =
    register_kernel<MaxPool>(DeviceKind::cuda, KernelTier::reference, &max_pool_kernel) &&
    register_kernel<MaxPoolSpread>(DeviceKind::cuda, KernelTier::reference, &max_pool_spread_kernel) &&
    register_kernel<MaxPoolPick>(DeviceKind::cuda, KernelTier::reference, &max_pool_pick_kernel) &&
    register_kernel<AveragePool>(DeviceKind::cuda, KernelTier::reference, &average_pool_kernel) &&
    register_kernel<AveragePoolTranspose>(DeviceKind::cuda, KernelTier::reference, &average_pool_transpose_kernel);

}  // namespace replicator::detail::cuda
