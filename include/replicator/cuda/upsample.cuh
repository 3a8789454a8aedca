// SPDX-License-Identifier: Apache-2.0
// The kernels of up-sampling and its transpose on GPUs, one thread per element of the result. An element is a sum over taps, row
// taps times column taps. It adds in the order of cpu/upsample.hpp, so it gives its bits. Taps are computed where they are needed.
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
#include <replicator/ops/upsample.hpp>

namespace replicator::detail::cuda {

// Images as planes: `small` before up-sampling, and `factors` times as large after it. A pixel has `pixel` elements.
struct UpsampleExtents {
  std::int64_t small[2], factors[2], pixel;
  bool nearest;
  Divider by_pixel, by_rows, by_columns;  // rows and columns of the result
  Divider by_factors[2];
};

// The taps along an axis that make pixel i of the large image.
struct UpsampleTaps {
  std::int64_t at[2];
  double weight[2];
  int count;
};
template <class I>
__device__ UpsampleTaps taps_of(const UpsampleExtents& e, int axis, std::int64_t i) {
  if (e.nearest) return {{quotient_by(e.by_factors[axis], static_cast<I>(i)), 0}, {1, 0}, 1};
  const double centre = minus(quotient(plus(static_cast<double>(i), 0.5), static_cast<double>(e.factors[axis])), 0.5);
  const double inside = centre > 0 ? centre : 0;
  const auto low = static_cast<std::int64_t>(inside);
  const double share = minus(inside, static_cast<double>(low));
  if (share == 0 || low + 1 == e.small[axis]) return {{low, 0}, {1, 0}, 1};
  return {{low, low + 1}, {minus(1.0, share), share}, 2};
}

// Calls f(at, weight) for each tap along an axis that makes pixel i of the result, in ascending order.
template <bool transpose, class I, class F>
__device__ void for_each_tap(const UpsampleExtents& e, int axis, std::int64_t i, F f) {
  if constexpr (!transpose) {
    const UpsampleTaps taps = taps_of<I>(e, axis, i);
    for (int t = 0; t < taps.count; ++t) f(taps.at[t], taps.weight[t]);
  } else {
    const std::int64_t factor = e.factors[axis], first = i > 0 ? (i - 1) * factor : 0;
    const std::int64_t end = i + 2 < e.small[axis] ? (i + 2) * factor : e.small[axis] * factor;
    for (std::int64_t large = first; large < end; ++large) {
      const UpsampleTaps taps = taps_of<I>(e, axis, large);
      for (int t = 0; t < taps.count; ++t)
        if (taps.at[t] == i) f(large, taps.weight[t]);
    }
  }
}

// Numbers of elements, rows and columns on both sides fit type I.
template <bool transpose, class I, class Stored>
__global__ void resample(const __grid_constant__ UpsampleExtents e, std::int64_t elements, const Stored* in, Stored* out) {
  using T = compute_of<Stored>;
  const std::int64_t rows = transpose ? e.small[0] : e.small[0] * e.factors[0], columns = transpose ? e.small[1] : e.small[1] * e.factors[1];
  const std::int64_t in_rows = transpose ? e.small[0] * e.factors[0] : e.small[0], in_columns = transpose ? e.small[1] * e.factors[1] : e.small[1];
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) {
    const I place = quotient_by(e.by_pixel, static_cast<I>(i)), line = quotient_by(e.by_columns, place), image = quotient_by(e.by_rows, line);
    const std::int64_t column = place - line * columns, row = line - image * rows;
    const Stored* const plane = in + image * in_rows * in_columns * e.pixel + (i - place * e.pixel);
    T sum = -T{};
    for_each_tap<transpose, I>(e, 0, row, [&](std::int64_t r, double row_weight) {
      T part = -T{};
      for_each_tap<transpose, I>(e, 1, column, [&](std::int64_t c, double weight) {
        part = plus(part, times(static_cast<T>(weight), value_of(plane[(r * in_columns + c) * e.pixel])));
      });
      sum = plus(sum, times(static_cast<T>(row_weight), part));
    });
    out[i] = stored<Stored>(sum);
  }
}

template <bool transpose, class Stored>
class UpsampleExecutable final : public Executable {
 public:
  UpsampleExecutable(const UpsampleExtents& extents, ImageLayout layout, const KernelRequest& request)
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
  UpsampleExtents extents_;
  std::int64_t elements_, most_;  // of the result, and of the larger side
};

// The result has the layout in which the input is offered.
template <class Op, bool transpose>
std::unique_ptr<Executable> make_upsample(const KernelRequest& request) {
  const auto& options = request.operation.get<Op>()->options;
  const Shape& small = transpose ? request.outputs[0].shape : request.inputs[0].shape;
  const ImageLayout layout = image_layout(request.offered[0], request.inputs[0].shape);
  const Shape& result = request.outputs[0].shape;
  const UpsampleExtents extents{{small[2], small[3]}, {options.factors[0], options.factors[1]}, layout.pixel(small), options.interpolation == Interpolation::nearest, divider_of(layout.pixel(small)), divider_of(result[2]), divider_of(result[3]), {divider_of(options.factors[0]), divider_of(options.factors[1])}};
  switch (request.outputs[0].dtype) {
    case DType::float32: return std::make_unique<UpsampleExecutable<transpose, float>>(extents, layout, request);
    case DType::float64: return std::make_unique<UpsampleExecutable<transpose, double>>(extents, layout, request);
    case DType::bfloat16: return std::make_unique<UpsampleExecutable<transpose, Bfloat16Word>>(extents, layout, request);
    default: return nullptr;
  }
}

inline constexpr Kernel upsample_kernel{"cuda upsample", &make_upsample<Upsample, false>};
inline constexpr Kernel upsample_transpose_kernel{"cuda upsample transpose", &make_upsample<UpsampleTranspose, true>};

inline const bool upsample_registered = register_kernel<Upsample>(DeviceKind::cuda, KernelTier::reference, &upsample_kernel) &&
                                        register_kernel<UpsampleTranspose>(DeviceKind::cuda, KernelTier::reference, &upsample_transpose_kernel);

}  // namespace replicator::detail::cuda
