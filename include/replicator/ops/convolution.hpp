// SPDX-License-Identifier: Apache-2.0
// Two-dimensional convolution (cross-correlation) of NCHW images with OIHW weights, in groups.
//
//   y = C(x, w)   dx = D(dy, w)   dw = W(x, dy)
//
// C is bilinear, and D and W are its transposes in x and in w. The derivatives of each are the other two, so gradients of any
// order need no other operation.
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/mixed_precision.hpp>
#include <replicator/ops/window.hpp>

namespace replicator {

struct ConvolutionOptions {
  Extents2d stride{1, 1};    // rows and columns from one window to the next
  SpatialPadding padding{};  // with zeros
  Extents2d dilation{1, 1};  // from one weight of a window to the next
  std::int64_t groups = 1;   // groups of input channels, each seen by its own output channels

  template <class V>
  void describe(V& v) const {
    v("stride", stride);
    v("padding_low", padding.low);
    v("padding_high", padding.high);
    v("dilation", dilation);
    v("groups", groups);
  }
  friend bool operator==(const ConvolutionOptions&, const ConvolutionOptions&) = default;
};

namespace detail {
inline void require_convolution_channels(const Shape& x, const Shape& w, std::int64_t groups) {
  if (x.rank() != 4 || w.rank() != 4)
    throw BuildError{"x must be [N, C, H, W] and the weights [O, C / groups, KH, KW]; found " + x.text() + " and " +
                     w.text()};
  if (groups < 1 || w[0] % groups != 0)
    throw BuildError{"the weights " + w.text() + " have " + std::to_string(w[0]) + " output channels, which " +
                     std::to_string(groups) + " groups do not divide"};
  if (x[1] != w[1] * groups)
    throw BuildError{"x has " + std::to_string(x[1]) + " channels, but the weights " + w.text() + " with groups " +
                     std::to_string(groups) + " take " + std::to_string(w[1] * groups)};
}

// The shape of y. Throws BuildError.
inline Shape convolution_shape(const Shape& x, const Shape& w, const ConvolutionOptions& o) {
  require_convolution_channels(x, w, o.groups);
  Shape y{x[0], w[0]};
  for (std::size_t i = 0; i < 2; ++i)
    y.push_back(window_positions(x[i + 2], w[i + 2], o.stride[i], o.dilation[i], o.padding.low[i], o.padding.high[i]));
  return y;
}

inline void require_convolution_upstream(const Shape& x, const Shape& w, const Shape& dy, const ConvolutionOptions& o) {
  if (const Shape y = convolution_shape(x, w, o); !(y == dy))
    throw BuildError{"x " + x.text() + " and weights " + w.text() + " give " + y.text() + ", found " + dy.text()};
}

// Number of arithmetic operations: a product and a sum for each weight that an element of y meets.
inline double convolution_work(const Shape& y, const Shape& w) {
  return 2.0 * static_cast<double>(y.elements()) * static_cast<double>(w[1] * w[2] * w[3]);
}

inline DType require_convolution_dtype(std::span<const TensorType> inputs) {
  const DType dtype = inputs[0].dtype;
  if (inputs[1].dtype != dtype || !(is_floating(dtype) || dtype == DType::int32))
    throw BuildError{"found " + inputs[0].text() + " and " + inputs[1].text() +
                     ": both must be float32, float64, bfloat16 or int32"};
  return dtype;
}
}  // namespace detail

// C: the inputs are x and w.
struct Convolution {
  static constexpr std::string_view name = "convolution";
  ConvolutionOptions options;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const DType dtype = detail::require_convolution_dtype(inputs);
    return {{dtype, detail::convolution_shape(inputs[0].shape, inputs[1].shape, options)}};
  }
  double work(std::span<const TensorType> inputs) const {
    return detail::convolution_work(detail::convolution_shape(inputs[0].shape, inputs[1].shape, options), inputs[1].shape);
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// D: the inputs are dy and w. `x` is the shape of the result, which a stride does not determine.
struct ConvolutionBackwardData {
  static constexpr std::string_view name = "convolution_backward_data";
  ConvolutionOptions options;
  Shape x;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
    v("x", x);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const DType dtype = detail::require_convolution_dtype(inputs);
    detail::require_convolution_upstream(x, inputs[1].shape, inputs[0].shape, options);
    return {{dtype, x}};
  }
  double work(std::span<const TensorType> inputs) const { return detail::convolution_work(inputs[0].shape, inputs[1].shape); }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// W: the inputs are x and dy. `w` is the shape of the result.
struct ConvolutionBackwardWeights {
  static constexpr std::string_view name = "convolution_backward_weights";
  ConvolutionOptions options;
  Shape w;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
    v("w", w);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const DType dtype = detail::require_convolution_dtype(inputs);
    detail::require_convolution_upstream(inputs[0].shape, w, inputs[1].shape, options);
    return {{dtype, w}};
  }
  double work(std::span<const TensorType> inputs) const { return detail::convolution_work(inputs[1].shape, w); }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

inline std::vector<AnyTensor> Convolution::gradient(const GradientContext& at) const {
  const auto& x = at.inputs[0];
  const auto& w = at.inputs[1];
  std::vector<AnyTensor> result(2);
  if (at.wanted[0])
    result[0] = compute(at.graph, ConvolutionBackwardData{options, x.shape()}, {at.upstream[0], w}, at.where);
  if (at.wanted[1])
    result[1] = compute(at.graph, ConvolutionBackwardWeights{options, w.shape()}, {x, at.upstream[0]}, at.where);
  return result;
}

inline std::vector<AnyTensor> ConvolutionBackwardData::gradient(const GradientContext& at) const {
  const auto& dy = at.inputs[0];
  const auto& w = at.inputs[1];
  std::vector<AnyTensor> result(2);
  if (at.wanted[0]) result[0] = compute(at.graph, Convolution{options}, {at.upstream[0], w}, at.where);
  if (at.wanted[1])
    result[1] = compute(at.graph, ConvolutionBackwardWeights{options, w.shape()}, {at.upstream[0], dy}, at.where);
  return result;
}

inline std::vector<AnyTensor> ConvolutionBackwardWeights::gradient(const GradientContext& at) const {
  const auto& x = at.inputs[0];
  const auto& dy = at.inputs[1];
  std::vector<AnyTensor> result(2);
  if (at.wanted[0])
    result[0] = compute(at.graph, ConvolutionBackwardData{options, x.shape()}, {dy, at.upstream[0]}, at.where);
  if (at.wanted[1]) result[1] = compute(at.graph, Convolution{options}, {x, at.upstream[0]}, at.where);
  return result;
}

// x [N, C, H, W], w [O, C / groups, KH, KW] -> [N, O, OH, OW], OH = (H + padding - dilation (KH - 1) - 1) / stride + 1.
// By default there is no padding, stride 1, dilation 1 and one group. Throws BuildError where the extents do not fit.
template <Element T>
Tensor<T> convolution(Tensor<T> x, Tensor<T> w, ConvolutionOptions options = {},
                      std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::product_node(Convolution{options}, x, w, where)};
}

// The same plus bias [O].
template <Element T>
Tensor<T> convolution(Tensor<T> x, Tensor<T> w, Tensor<T> bias, ConvolutionOptions options = {},
                      std::source_location where = std::source_location::current()) {
  const AnyTensor y = detail::product_node(Convolution{options}, x, w, where);
  if (!(bias.shape() == Shape{w.shape()[0]}))
    throw BuildError{"convolution at " + Location{where}.text() + ": the weights " + w.shape().text() +
                     " need a bias " + Shape{w.shape()[0]}.text() + ", found " + bias.shape().text()};
  return Tensor<T>{apply(detail::ScalarOp::add, {y, reshape(bias, {w.shape()[0], 1, 1}, where)}, where)};
}

}  // namespace replicator
