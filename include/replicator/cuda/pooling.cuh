// SPDX-License-Identifier: Apache-2.0
// Kernels of pooling on GPUs, one thread per element of the result. They run where a program has no cuDNN, for gradients of
// maxima, and for what cudnn_pooling.cuh does not take. They walk windows in the order of cpu/loops/pooling_loops.hpp, so they give its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/image_layout.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/pooling.hpp>

namespace replicator::detail::cuda {

// Images as planes of x[0] by x[1] pixels, which are pooled to y[0] by y[1] pixels. A pixel has `pixel` elements.
struct PoolingExtents {
  std::int64_t x[2], y[2], window[2], stride[2], padding[2], pixel;
  bool count_include_pad;
};

// The part of a window that lies in the image.
struct PoolingWindow {
  std::int64_t begin[2], end[2];
};
__device__ inline PoolingWindow window_at(const PoolingExtents& e, std::int64_t row, std::int64_t column) {
  const std::int64_t at[2] = {row, column};
  PoolingWindow w;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t first = at[i] * e.stride[i] - e.padding[i];
    w.begin[i] = first < 0 ? 0 : first;
    w.end[i] = first + e.window[i] < e.x[i] ? first + e.window[i] : e.x[i];
  }
  return w;
}

// The positions [first, end) along an axis of the windows that hold row (or column) `at`.
struct PoolingSpan {
  std::int64_t first, end;
};
__device__ inline PoolingSpan windows_with(const PoolingExtents& e, int axis, std::int64_t at) {
  const std::int64_t last = at + e.padding[axis], first = last - e.window[axis] + 1, stride = e.stride[axis];
  const std::int64_t end = last / stride + 1;
  return {first <= 0 ? 0 : (first + stride - 1) / stride, end < e.y[axis] ? end : e.y[axis]};
}

// The pixel of its plane in which a window has its maximum: the first of equal ones, the last of several NaN.
template <class Stored>
__device__ std::int64_t place_of_maximum(const PoolingExtents& e, const PoolingWindow& w, const Stored* plane) {
  std::int64_t best = w.begin[0] * e.x[1] + w.begin[1];
  auto value = value_of(plane[best * e.pixel]);
  for (std::int64_t row = w.begin[0]; row < w.end[0]; ++row)
    for (std::int64_t column = w.begin[1]; column < w.end[1]; ++column) {
      const auto candidate = value_of(plane[(row * e.x[1] + column) * e.pixel]);
      if (!(candidate > value) && candidate == candidate) continue;
      value = candidate;
      best = row * e.x[1] + column;
    }
  return best;
}

template <class T>
__device__ T divisor(const PoolingExtents& e, const PoolingWindow& w) {
  return static_cast<T>(e.count_include_pad ? e.window[0] * e.window[1] : (w.end[0] - w.begin[0]) * (w.end[1] - w.begin[1]));
}

// The inputs and the position of one element of the result.
template <class A, class B>
struct PoolingPlace {
  const A* a;  // planes of the inputs, from this element's channel on
  const B* b;
  std::int64_t row, column;
};

// Each computes one element of its result. The result has the shape of x (over_x) or of y. a_is_x and b_is_x say it of the inputs.
struct MaxPoolKernel {
  static constexpr bool over_x = false, a_is_x = true, b_is_x = true;
  template <class A, class B>
  __device__ static compute_of<A> element(const PoolingExtents& e, const PoolingPlace<A, B>& at) {
    return value_of(at.a[place_of_maximum(e, window_at(e, at.row, at.column), at.a) * e.pixel]);
  }
};
struct MaxPoolPickKernel {
  static constexpr bool over_x = false, a_is_x = true, b_is_x = true;
  template <class A, class B>
  __device__ static compute_of<A> element(const PoolingExtents& e, const PoolingPlace<A, B>& at) {
    return value_of(at.b[place_of_maximum(e, window_at(e, at.row, at.column), at.a) * e.pixel]);
  }
};
struct MaxPoolSpreadKernel {
  static constexpr bool over_x = true, a_is_x = true, b_is_x = false;
  template <class A, class B>
  __device__ static compute_of<A> element(const PoolingExtents& e, const PoolingPlace<A, B>& at) {
    const PoolingSpan rows = windows_with(e, 0, at.row), columns = windows_with(e, 1, at.column);
    compute_of<A> sum{};
    for (std::int64_t r = rows.first; r < rows.end; ++r)
      for (std::int64_t c = columns.first; c < columns.end; ++c)
        if (place_of_maximum(e, window_at(e, r, c), at.a) == at.row * e.x[1] + at.column)
          sum = plus(sum, value_of(at.b[(r * e.y[1] + c) * e.pixel]));
    return sum;
  }
};
struct AveragePoolKernel {
  static constexpr bool over_x = false, a_is_x = true, b_is_x = true;
  template <class A, class B>
  __device__ static compute_of<A> element(const PoolingExtents& e, const PoolingPlace<A, B>& at) {
    const PoolingWindow w = window_at(e, at.row, at.column);
    compute_of<A> sum{};
    for (std::int64_t row = w.begin[0]; row < w.end[0]; ++row)
      for (std::int64_t column = w.begin[1]; column < w.end[1]; ++column)
        sum = plus(sum, value_of(at.a[(row * e.x[1] + column) * e.pixel]));
    return quotient(sum, divisor<compute_of<A>>(e, w));
  }
};
struct AveragePoolTransposeKernel {
  static constexpr bool over_x = true, a_is_x = false, b_is_x = false;
  template <class A, class B>
  __device__ static compute_of<A> element(const PoolingExtents& e, const PoolingPlace<A, B>& at) {
    const PoolingSpan rows = windows_with(e, 0, at.row), columns = windows_with(e, 1, at.column);
    compute_of<A> sum{};
    for (std::int64_t r = rows.first; r < rows.end; ++r)
      for (std::int64_t c = columns.first; c < columns.end; ++c)
        sum = plus(sum, quotient(value_of(at.a[(r * e.y[1] + c) * e.pixel]), divisor<compute_of<A>>(e, window_at(e, r, c))));
    return sum;
  }
};

// For inputs that are stored as A and B.
template <class Loop, class A, class B>
__global__ void pool(const __grid_constant__ PoolingExtents e, std::int64_t elements, const A* a, const B* b, A* out) {
  const std::int64_t* own = Loop::over_x ? e.x : e.y;
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) {
    const std::int64_t place = i / e.pixel, channel = i - place * e.pixel, plane = place / own[1] / own[0];
    const std::int64_t of_x = plane * e.x[0] * e.x[1] * e.pixel + channel, of_y = plane * e.y[0] * e.y[1] * e.pixel + channel;
    const PoolingPlace<A, B> at{a + (Loop::a_is_x ? of_x : of_y), b + (Loop::b_is_x ? of_x : of_y), place / own[1] % own[0], place % own[1]};
    out[i] = stored<A>(Loop::element(e, at));
  }
}

template <class Loop, class A, class B = A>
class PoolingExecutable final : public Executable {
 public:
  PoolingExecutable(const PoolingExtents& extents, ImageLayout layout, const KernelRequest& request)
      : extents_{extents}, elements_{request.outputs[0].shape.elements()} {
    for (const auto& input : request.inputs) input_layouts.push_back(layout.of(input.shape));
    output_layouts = {layout.of(request.outputs[0].shape)};
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    if (elements_ == 0) return;
    const std::byte* second = launch.inputs[input_layouts.size() - 1];
    pool<Loop><<<blocks_for(elements_, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
        extents_, elements_, reinterpret_cast<const A*>(launch.inputs[0]), reinterpret_cast<const B*>(second), reinterpret_cast<A*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  PoolingExtents extents_;
  std::int64_t elements_;
};

// All images have the layout in which input 0 is offered. `x` is the larger image and `y` the pooled one.
template <class Op, class Loop>
std::unique_ptr<Executable> make_pooling(const KernelRequest& request) {
  const auto& options = request.operation.get<Op>()->options;
  const Shape& x = Loop::a_is_x ? request.inputs[0].shape : request.outputs[0].shape;
  const Shape& y = !Loop::over_x ? request.outputs[0].shape : request.inputs.back().shape;
  const ImageLayout layout = image_layout(request.offered[0], request.inputs[0].shape);
  PoolingExtents e{};
  e.pixel = layout.pixel(x);
  for (std::size_t i = 0; i < 2; ++i) {
    e.x[i] = x[i + 2];
    e.y[i] = y[i + 2];
    e.window[i] = options.window[i];
    e.stride[i] = options.stride[i];
    e.padding[i] = options.padding.low[i];
  }
  e.count_include_pad = options.count_include_pad;
  if constexpr (Loop::over_x && Loop::a_is_x)
    if (request.inputs[0].dtype != request.inputs[1].dtype) return std::make_unique<PoolingExecutable<Loop, Bfloat16Word, float>>(e, layout, request);
  switch (request.outputs[0].dtype) {
    case DType::float32: return std::make_unique<PoolingExecutable<Loop, float>>(e, layout, request);
    case DType::float64: return std::make_unique<PoolingExecutable<Loop, double>>(e, layout, request);
    case DType::bfloat16: return std::make_unique<PoolingExecutable<Loop, Bfloat16Word>>(e, layout, request);
    default: return nullptr;
  }
}

inline constexpr Kernel max_pool_kernel{"cuda max pool", &make_pooling<MaxPool, MaxPoolKernel>};
inline constexpr Kernel max_pool_spread_kernel{"cuda max pool spread", &make_pooling<MaxPoolSpread, MaxPoolSpreadKernel>};
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
