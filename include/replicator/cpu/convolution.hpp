// SPDX-License-Identifier: Apache-2.0
// Reference kernels of convolution on the CPU: plain loops over row-major memory. float64 and int32 always run here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cpu/in_float32.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/convolution_shapes.hpp>

namespace replicator::detail::cpu {

namespace detail {

// The positions [first, last) of the window along an axis at which a tap reads inside the image.
struct TapRange {
  std::int64_t first = 0, last = 0;
};
inline TapRange tap_range(std::int64_t extent, std::int64_t positions, std::int64_t stride, std::int64_t offset) {
  const std::int64_t first = offset < 0 ? (-offset + stride - 1) / stride : 0;
  const std::int64_t last = extent - 1 - offset < 0 ? 0 : (extent - 1 - offset) / stride + 1;
  return {std::min(first, positions), std::max(std::min(last, positions), std::min(first, positions))};
}

// Calls row(x, w, y, count, stride) for every (image, output channel, input channel, tap, output row). x, w and y are offsets
// into the three tensors. Element i of the row pairs x[i * stride] and y[i] through the one weight w.
template <class F>
void for_each_row(const ConvolutionShapes& s, F&& row) {
  const auto& o = s.options;
  const std::int64_t outputs = s.w[0] / o.groups, inputs = s.w[1];
  for (std::int64_t n = 0; n < s.x[0]; ++n)
    for (std::int64_t oc = 0; oc < s.w[0]; ++oc)
      for (std::int64_t ic = 0; ic < inputs; ++ic) {
        const std::int64_t x_plane = (n * s.x[1] + oc / outputs * inputs + ic) * s.x[2] * s.x[3];
        const std::int64_t y_plane = (n * s.y[1] + oc) * s.y[2] * s.y[3];
        for (std::int64_t kh = 0; kh < s.w[2]; ++kh)
          for (std::int64_t kw = 0; kw < s.w[3]; ++kw) {
            const std::int64_t down = kh * o.dilation[0] - o.padding.low[0],
                               right = kw * o.dilation[1] - o.padding.low[1];
            const TapRange rows = tap_range(s.x[2], s.y[2], o.stride[0], down);
            const TapRange columns = tap_range(s.x[3], s.y[3], o.stride[1], right);
            const std::int64_t w = ((oc * inputs + ic) * s.w[2] + kh) * s.w[3] + kw;
            for (std::int64_t r = rows.first; r < rows.last; ++r)
              row(x_plane + (r * o.stride[0] + down) * s.x[3] + columns.first * o.stride[1] + right, w,
                  y_plane + r * s.y[3] + columns.first, columns.last - columns.first, o.stride[1]);
          }
      }
}

template <class T>
void convolve(const ConvolutionShapes& s, const T* x, const T* w, T* y) {
  std::fill(y, y + s.y.elements(), T{});
  for_each_row(s, [=](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t count, std::int64_t stride) {
    for (std::int64_t i = 0; i < count; ++i) y[yi + i] += w[wi] * x[xi + i * stride];
  });
}

template <class T>
void convolve_backward_data(const ConvolutionShapes& s, const T* dy, const T* w, T* dx) {
  std::fill(dx, dx + s.x.elements(), T{});
  for_each_row(s, [=](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t count, std::int64_t stride) {
    for (std::int64_t i = 0; i < count; ++i) dx[xi + i * stride] += w[wi] * dy[yi + i];
  });
}

template <class T>
void convolve_backward_weights(const ConvolutionShapes& s, const T* x, const T* dy, T* dw) {
  std::fill(dw, dw + s.w.elements(), T{});
  for_each_row(s, [=](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t count, std::int64_t stride) {
    T sum{};
    for (std::int64_t i = 0; i < count; ++i) sum += x[xi + i * stride] * dy[yi + i];
    dw[wi] += sum;
  });
}

template <class T>
using ConvolutionLoop = void (*)(const ConvolutionShapes&, const T*, const T*, T*);

template <class T>
class ConvolutionLoops final : public Executable {
 public:
  ConvolutionLoops(ConvolutionShapes shapes, ConvolutionLoop<T> loop) : shapes_{shapes}, loop_{loop} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    loop_(shapes_, reinterpret_cast<const T*>(launch.inputs[0]), reinterpret_cast<const T*>(launch.inputs[1]),
          reinterpret_cast<T*>(launch.outputs[0]));
  }

 private:
  ConvolutionShapes shapes_;
  ConvolutionLoop<T> loop_;
};

template <class T>
constexpr ConvolutionLoop<T> loop_of(const Convolution*) {
  return &convolve<T>;
}
template <class T>
constexpr ConvolutionLoop<T> loop_of(const ConvolutionBackwardData*) {
  return &convolve_backward_data<T>;
}
template <class T>
constexpr ConvolutionLoop<T> loop_of(const ConvolutionBackwardWeights*) {
  return &convolve_backward_weights<T>;
}

template <class Op>
std::unique_ptr<Executable> make_convolution_loops(const KernelRequest& request) {
  const Op* op = request.operation.get<Op>();
  const auto make = [&]<class T>() -> std::unique_ptr<Executable> {
    return std::make_unique<ConvolutionLoops<T>>(shapes_of(*op, request), loop_of<T>(op));
  };
  switch (request.outputs[0].dtype) {
    case DType::float32: return make.template operator()<float>();
    case DType::float64: return make.template operator()<double>();
    case DType::int32: return make.template operator()<std::int32_t>();
    case DType::bfloat16: return in_float32(request, &make_convolution_loops<Op>);
    default: return nullptr;
  }
}

}  // namespace detail

template <class Op>
inline constexpr Kernel convolution_loops{"convolution loops", &detail::make_convolution_loops<Op>};

inline const bool convolution_loops_registered =
    register_kernel<Convolution>(DeviceKind::cpu, KernelTier::reference, &convolution_loops<Convolution>) &&
    register_kernel<ConvolutionBackwardData>(DeviceKind::cpu, KernelTier::reference,
                                             &convolution_loops<ConvolutionBackwardData>) &&
    register_kernel<ConvolutionBackwardWeights>(DeviceKind::cpu, KernelTier::reference,
                                                &convolution_loops<ConvolutionBackwardWeights>);

}  // namespace replicator::detail::cpu
