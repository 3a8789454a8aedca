// SPDX-License-Identifier: Apache-2.0
// Reference kernels of convolution on GPUs: plain loops, one thread per element of the result. They run what
// cudnn_convolution.cuh does not take. They add terms in the order of cpu/convolution.hpp with its roundings, so they give its bits.
#pragma once

#include <cstdint>
#include <memory>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/convolution_shapes.hpp>

namespace replicator::detail::cuda {

// ConvolutionShapes as an argument of kernels: x [images, inputs * groups, x[0], x[1]], w [outputs * groups, inputs, w[0], w[1]],
// y [images, outputs * groups, y[0], y[1]].
struct ConvolutionExtents {
  std::int64_t images, groups, inputs, outputs;
  std::int64_t x[2], w[2], y[2], stride[2], padding[2], dilation[2];
};

inline ConvolutionExtents convolution_extents(const ConvolutionShapes& s) {
  const std::int64_t groups = s.options.groups;
  ConvolutionExtents e{s.x[0], groups, s.w[1], s.w[0] / groups, {}, {}, {}, {}, {}, {}};
  for (std::size_t i = 0; i < 2; ++i) {
    e.x[i] = s.x[i + 2];
    e.w[i] = s.w[i + 2];
    e.y[i] = s.y[i + 2];
    e.stride[i] = s.options.stride[i];
    e.padding[i] = s.options.padding.low[i];
    e.dilation[i] = s.options.dilation[i];
  }
  return e;
}

// The row (or column) of x that tap k reads for row `at` of y. It may lie outside.
__device__ inline std::int64_t tapped(const ConvolutionExtents& e, int axis, std::int64_t at, std::int64_t k) {
  return at * e.stride[axis] + k * e.dilation[axis] - e.padding[axis];
}
// The row (or column) of y that reads row `at` of x by tap k, or -1 if none does.
__device__ inline std::int64_t tapping(const ConvolutionExtents& e, int axis, std::int64_t at, std::int64_t k) {
  const std::int64_t reach = at - k * e.dilation[axis] + e.padding[axis];
  if (reach < 0 || reach % e.stride[axis] != 0) return -1;
  return reach / e.stride[axis] < e.y[axis] ? reach / e.stride[axis] : -1;
}
__device__ inline bool inside(std::int64_t at, std::int64_t extent) { return at >= 0 && at < extent; }

// Each of these computes element `i` of its result, in row-major order.
struct ConvolutionForward {
  template <class Stored>
  __device__ static compute_of<Stored> element(const ConvolutionExtents& e, std::int64_t i, const Stored* x, const Stored* w) {
    const std::int64_t column = i % e.y[1], row = i / e.y[1] % e.y[0], plane = i / e.y[1] / e.y[0];
    const std::int64_t o = plane % (e.outputs * e.groups), image = plane / (e.outputs * e.groups), group = o / e.outputs;
    compute_of<Stored> sum{};
    for (std::int64_t c = 0; c < e.inputs; ++c)
      for (std::int64_t kh = 0; kh < e.w[0]; ++kh)
        for (std::int64_t kw = 0; kw < e.w[1]; ++kw) {
          const std::int64_t r = tapped(e, 0, row, kh), s = tapped(e, 1, column, kw);
          if (!inside(r, e.x[0]) || !inside(s, e.x[1])) continue;
          const auto weight = value_of(w[((o * e.inputs + c) * e.w[0] + kh) * e.w[1] + kw]);
          const auto pixel = value_of(x[(((image * e.groups + group) * e.inputs + c) * e.x[0] + r) * e.x[1] + s]);
          sum = plus(sum, times(weight, pixel));
        }
    return sum;
  }
};

struct ConvolutionToData {
  template <class Stored>
  __device__ static compute_of<Stored> element(const ConvolutionExtents& e, std::int64_t i, const Stored* dy, const Stored* w) {
    const std::int64_t column = i % e.x[1], row = i / e.x[1] % e.x[0], plane = i / e.x[1] / e.x[0];
    const std::int64_t c = plane % e.inputs, group = plane / e.inputs % e.groups, image = plane / e.inputs / e.groups;
    compute_of<Stored> sum{};
    for (std::int64_t o = group * e.outputs; o < (group + 1) * e.outputs; ++o)
      for (std::int64_t kh = 0; kh < e.w[0]; ++kh)
        for (std::int64_t kw = 0; kw < e.w[1]; ++kw) {
          const std::int64_t r = tapping(e, 0, row, kh), s = tapping(e, 1, column, kw);
          if (r < 0 || s < 0) continue;
          const auto weight = value_of(w[((o * e.inputs + c) * e.w[0] + kh) * e.w[1] + kw]);
          const auto upstream = value_of(dy[((image * e.groups * e.outputs + o) * e.y[0] + r) * e.y[1] + s]);
          sum = plus(sum, times(weight, upstream));
        }
    return sum;
  }
};

// Sums rows first, as the CPU does.
struct ConvolutionToWeights {
  template <class Stored>
  __device__ static compute_of<Stored> element(const ConvolutionExtents& e, std::int64_t i, const Stored* x, const Stored* dy) {
    const std::int64_t kw = i % e.w[1], kh = i / e.w[1] % e.w[0], channels = i / e.w[1] / e.w[0];
    const std::int64_t c = channels % e.inputs, o = channels / e.inputs, group = o / e.outputs;
    compute_of<Stored> sum{};
    for (std::int64_t image = 0; image < e.images; ++image)
      for (std::int64_t row = 0; row < e.y[0]; ++row) {
        const std::int64_t r = tapped(e, 0, row, kh);
        if (!inside(r, e.x[0])) continue;
        compute_of<Stored> part{};
        for (std::int64_t column = 0; column < e.y[1]; ++column) {
          const std::int64_t s = tapped(e, 1, column, kw);
          if (!inside(s, e.x[1])) continue;
          const auto pixel = value_of(x[(((image * e.groups + group) * e.inputs + c) * e.x[0] + r) * e.x[1] + s]);
          part = plus(part, times(pixel, value_of(dy[((image * e.groups * e.outputs + o) * e.y[0] + row) * e.y[1] + column])));
        }
        sum = plus(sum, part);
      }
    return sum;
  }
};

template <class Loop, class Stored>
__global__ void convolve(const __grid_constant__ ConvolutionExtents extents, std::int64_t elements, const Stored* a, const Stored* b, Stored* out) {
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) out[i] = stored<Stored>(Loop::element(extents, i, a, b));
}

template <class Loop, class Stored>
class ConvolutionLoops final : public Executable {
 public:
  ConvolutionLoops(const ConvolutionShapes& shapes, std::int64_t elements) : extents_{convolution_extents(shapes)}, elements_{elements} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    if (elements_ == 0) return;
    convolve<Loop, Stored><<<blocks_for(elements_, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
        extents_, elements_, reinterpret_cast<const Stored*>(launch.inputs[0]), reinterpret_cast<const Stored*>(launch.inputs[1]),
        reinterpret_cast<Stored*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  ConvolutionExtents extents_;
  std::int64_t elements_;
};

template <class Op, class Loop>
std::unique_ptr<Executable> make_convolution_loops(const KernelRequest& request) {
  const auto shapes = shapes_of(*request.operation.get<Op>(), request);
  const auto make = [&]<class Stored>() -> std::unique_ptr<Executable> {
    return std::make_unique<ConvolutionLoops<Loop, Stored>>(shapes, request.outputs[0].shape.elements());
  };
  switch (request.outputs[0].dtype) {
    case DType::float32: return make.template operator()<float>();
    case DType::float64: return make.template operator()<double>();
    case DType::int32: return make.template operator()<std::int32_t>();
    case DType::bfloat16: return make.template operator()<Bfloat16Word>();
    default: return nullptr;
  }
}

inline constexpr Kernel convolution_loops{"cuda convolution loops", &make_convolution_loops<Convolution, ConvolutionForward>};
inline constexpr Kernel convolution_data_loops{"cuda convolution loops", &make_convolution_loops<ConvolutionBackwardData, ConvolutionToData>};
inline constexpr Kernel convolution_weights_loops{"cuda convolution loops",
                                                  &make_convolution_loops<ConvolutionBackwardWeights, ConvolutionToWeights>};

inline const bool convolution_registered =
    register_kernel<Convolution>(DeviceKind::cuda, KernelTier::reference, &convolution_loops) &&
    register_kernel<ConvolutionBackwardData>(DeviceKind::cuda, KernelTier::reference, &convolution_data_loops) &&
    register_kernel<ConvolutionBackwardWeights>(DeviceKind::cuda, KernelTier::reference, &convolution_weights_loops);

}  // namespace replicator::detail::cuda
