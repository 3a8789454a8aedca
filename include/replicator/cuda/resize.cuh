// SPDX-License-Identifier: Apache-2.0
// The kernels of resizing and its transpose on GPUs, one thread per element of the result. An element is a sum over taps, row
// taps times column taps. It adds in the order of cpu/resize.hpp, so it gives its bits. Taps are computed where they are needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/divider_of.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/image_layout.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/resize.hpp>

namespace replicator::detail::cuda {

// Images as planes: x before resizing, and y after it. A pixel has `pixel` elements.
struct ResizeExtents {
  std::int64_t x[2], y[2], pixel;
  bool nearest;
  Divider by_pixel, by_rows, by_columns;  // rows and columns of the result
};

// The taps along an axis that make pixel i of y.
struct ResizeTaps {
  std::int64_t at[2];
  double weight[2];
  int count;
};
inline __device__ ResizeTaps taps_of(const ResizeExtents& e, int axis, std::int64_t i) {
  const auto in = static_cast<double>(e.x[axis]), out = static_cast<double>(e.y[axis]);
  // Half a step above i in / out, so that rounding cannot reach another whole number. It is exact below 2^51.
  if (e.nearest) return {{static_cast<std::int64_t>(quotient(plus(times(static_cast<double>(i), in), 0.5), out)), 0}, {1, 0}, 1};
  const double centre = minus(quotient(times(plus(static_cast<double>(i), 0.5), in), out), 0.5);
  const double inside = centre > 0 ? centre : 0;
  const auto low = static_cast<std::int64_t>(inside);
  const double share = minus(inside, static_cast<double>(low));
  if (share == 0 || low + 1 == e.x[axis]) return {{low, 0}, {1, 0}, 1};
  return {{low, low + 1}, {minus(1.0, share), share}, 2};
}

// Calls f(at, weight) for each tap along an axis that makes pixel i of the result, in ascending order.
template <bool transpose, class F>
__device__ void for_each_tap(const ResizeExtents& e, int axis, std::int64_t i, F f) {
  if constexpr (!transpose) {
    const ResizeTaps taps = taps_of(e, axis, i);
    for (int t = 0; t < taps.count; ++t) f(taps.at[t], taps.weight[t]);
  } else {
    // Pixels of y between the centres of pixels i - 1 and i + 1 of x, and one more on either side.
    const double scale = static_cast<double>(e.y[axis]) / static_cast<double>(e.x[axis]);
    const double from = static_cast<double>(i - 1) * scale - 1, to = static_cast<double>(i + 2) * scale + 1;
    const std::int64_t first = from > 0 ? static_cast<std::int64_t>(from) : 0;
    const std::int64_t end = to < static_cast<double>(e.y[axis]) ? static_cast<std::int64_t>(to) : e.y[axis];
    for (std::int64_t at = first; at < end; ++at) {
      const ResizeTaps taps = taps_of(e, axis, at);
      for (int t = 0; t < taps.count; ++t)
        if (taps.at[t] == i) f(at, taps.weight[t]);
    }
  }
}

// Numbers of elements, rows and columns on both sides fit type I.
template <bool transpose, class I, class Stored>
__global__ void resample(const __grid_constant__ ResizeExtents e, std::int64_t elements, const Stored* in, Stored* out) {
  using T = compute_of<Stored>;
  const std::int64_t rows = transpose ? e.x[0] : e.y[0], columns = transpose ? e.x[1] : e.y[1];
  const std::int64_t in_rows = transpose ? e.y[0] : e.x[0], in_columns = transpose ? e.y[1] : e.x[1];
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) {
    const I place = quotient_by(e.by_pixel, static_cast<I>(i)), line = quotient_by(e.by_columns, place), image = quotient_by(e.by_rows, line);
    const std::int64_t column = place - line * columns, row = line - image * rows;
    const Stored* const plane = in + image * in_rows * in_columns * e.pixel + (i - place * e.pixel);
    T sum = -T{};
    bool made = !transpose;  // a pixel of the transpose that no other was made from is plus zero
    for_each_tap<transpose>(e, 0, row, [&](std::int64_t r, double row_weight) {
      T part = -T{};
      for_each_tap<transpose>(e, 1, column, [&](std::int64_t c, double weight) {
        made = true;
        part = plus(part, times(static_cast<T>(weight), value_of(plane[(r * in_columns + c) * e.pixel])));
      });
      sum = plus(sum, times(static_cast<T>(row_weight), part));
    });
    out[i] = stored<Stored>(made ? sum : T{});
  }
}

template <bool transpose, class Stored>
class ResizeExecutable final : public Executable {
 public:
  ResizeExecutable(const ResizeExtents& extents, ImageLayout layout, const KernelRequest& request)
      : extents_{extents}, elements_{request.outputs[0].shape.elements()}, most_{std::max(elements_, request.inputs[0].shape.elements())} {
    input_layouts = {layout.of(request.inputs[0].shape)};
    output_layouts = {layout.of(request.outputs[0].shape)};
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    if (elements_ == 0) return;
    const cudaStream_t stream = stream_of(launch.stream);
    const unsigned blocks = blocks_for(elements_, block_threads);
    const auto* const in = reinterpret_cast<const Stored*>(launch.inputs[0]);
    auto* const out = reinterpret_cast<Stored*>(launch.outputs[0]);
    if (fits_32_bits(most_)) resample<transpose, std::int32_t><<<blocks, block_threads, 0, stream>>>(extents_, elements_, in, out);
    else resample<transpose, std::int64_t><<<blocks, block_threads, 0, stream>>>(extents_, elements_, in, out);
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  ResizeExtents extents_;
  std::int64_t elements_, most_;  // of the result, and of the larger side
};

// The result has the layout in which the input is offered.
template <class Op, bool transpose>
std::unique_ptr<Executable> make_resize(const KernelRequest& request) {
  const Shape& in = request.inputs[0].shape;
  const Shape& out = request.outputs[0].shape;
  const Shape& x = transpose ? out : in;
  const Shape& y = transpose ? in : out;
  const ImageLayout layout = image_layout(request.offered[0], in);
  const std::int64_t pixel = layout.pixel(x);
  const bool nearest = request.operation.get<Op>()->interpolation == Interpolation::nearest;
  const ResizeExtents extents{{x[2], x[3]}, {y[2], y[3]}, pixel, nearest, divider_of(pixel), divider_of(out[2]), divider_of(out[3])};
  switch (request.outputs[0].dtype) {
    case DType::float32: return std::make_unique<ResizeExecutable<transpose, float>>(extents, layout, request);
    case DType::float64: return std::make_unique<ResizeExecutable<transpose, double>>(extents, layout, request);
    case DType::bfloat16: return std::make_unique<ResizeExecutable<transpose, Bfloat16Word>>(extents, layout, request);
    default: return nullptr;
  }
}

inline constexpr Kernel resize_kernel{"cuda resize", &make_resize<Resize, false>};
inline constexpr Kernel resize_transpose_kernel{"cuda resize transpose", &make_resize<ResizeTranspose, true>};

inline const bool resize_registered = register_kernel<Resize>(DeviceKind::cuda, KernelTier::reference, &resize_kernel) &&
                                      register_kernel<ResizeTranspose>(DeviceKind::cuda, KernelTier::reference, &resize_transpose_kernel);

}  // namespace replicator::detail::cuda
