// SPDX-License-Identifier: Apache-2.0
// Transposed convolution ("deconvolution"): the transpose in x of the convolution with the same options. It is the operation
// ConvolutionBackwardData, so all its derivatives exist.
#pragma once

#include <source_location>
#include <string>

#include <replicator/ops/convolution.hpp>
#include <replicator/ops/movement/reshape.hpp>

namespace replicator {

struct ConvolutionTransposeOptions {
  Extents2d stride{1, 1};
  SpatialPadding padding{};        // removed around the result
  Extents2d output_padding{0, 0};  // rows and columns added below and at the right; a stride does not determine them
  Extents2d dilation{1, 1};
  std::int64_t groups = 1;
};

namespace detail {

inline void require_transposed_channels(const Shape& x, const Shape& w, std::int64_t groups) {
  if (x.rank() != 4 || w.rank() != 4)
    throw BuildError{"x must be [N, C, H, W] and the weights [C, O / groups, KH, KW]; found " + x.text() + " and " +
                     w.text()};
  if (x[1] != w[0])
    throw BuildError{"x has " + std::to_string(x[1]) + " channels, but the weights " + w.text() + " take " +
                     std::to_string(w[0])};
  if (groups < 1 || w[0] % groups != 0)
    throw BuildError{"the weights " + w.text() + " have " + std::to_string(w[0]) + " input channels, which " +
                     std::to_string(groups) + " groups do not divide"};
}

// The extent of the result along spatial axis i (0 or 1). Throws BuildError.
inline std::int64_t transposed_extent(const Shape& x, const Shape& w, const ConvolutionTransposeOptions& o,
                                      std::size_t i) {
  const std::int64_t extent = x[i + 2], window = w[i + 2], low = o.padding.low[i], high = o.padding.high[i];
  if (o.stride[i] < 1 || o.dilation[i] < 1 || low < 0 || high < 0 || extent < 1 || window < 1)
    throw BuildError{"asked for stride " + std::to_string(o.stride[i]) + ", dilation " + std::to_string(o.dilation[i]) +
                     ", padding " + std::to_string(low) + ", " + std::to_string(high) + " and a window of " +
                     std::to_string(window) + " over an extent of " + std::to_string(extent) +
                     ": all start at 1, padding at 0"};
  if (o.output_padding[i] < 0 || o.output_padding[i] >= o.stride[i])
    throw BuildError{"asked for output padding " + std::to_string(o.output_padding[i]) + " with stride " +
                     std::to_string(o.stride[i]) +
                     ": it must be at least 0 and less than the stride; for more, take away less high padding"};
  const std::int64_t whole = Shape::sum(Shape::sum(Shape::product(extent - 1, o.stride[i]), Shape::product(o.dilation[i], window - 1)), 1 + o.output_padding[i]);
  if (Shape::sum(low, high) >= whole)
    throw BuildError{"a padding of " + std::to_string(low) + ", " + std::to_string(high) + " leaves nothing of " +
                     std::to_string(whole) + " rows or columns: take less padding"};
  return whole - low - high;
}

inline AnyTensor convolution_transpose_node(AnyTensor x, AnyTensor w, const ConvolutionTransposeOptions& o,
                                            Location where) {
  const Shape result = at_line("convolution_transpose", where, [&] {
    require_transposed_channels(x.shape(), w.shape(), o.groups);
    return Shape{x.shape()[0], w.shape()[1] * o.groups, transposed_extent(x.shape(), w.shape(), o, 0),
                 transposed_extent(x.shape(), w.shape(), o, 1)};
  });
  const ConvolutionOptions options{o.stride, o.padding, o.dilation, o.groups};
  return product_node(ConvolutionBackwardData{options, result}, x, w, where);
}

}  // namespace detail

// x [N, C, H, W], w [C, O / groups, KH, KW] -> [N, O, OH, OW],
// OH = (H - 1) stride - padding + dilation (KH - 1) + output_padding + 1: PyTorch's conv_transpose2d.
// By default there is no padding, stride 1, dilation 1 and one group. Throws BuildError where the extents do not fit.
// Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016.
template <Element T>
Tensor<T> convolution_transpose(Tensor<T> x, Tensor<T> w, ConvolutionTransposeOptions options = {},
                                std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::convolution_transpose_node(x, w, options, where)};
}

// The same plus bias [O].
template <Element T>
Tensor<T> convolution_transpose(Tensor<T> x, Tensor<T> w, Tensor<T> bias, ConvolutionTransposeOptions options = {},
                                std::source_location where = std::source_location::current()) {
  const AnyTensor y = detail::convolution_transpose_node(x, w, options, where);
  const std::int64_t channels = y.shape()[1];
  if (!(bias.shape() == Shape{channels}))
    throw BuildError{"convolution_transpose at " + Location{where}.text() + ": the weights " + w.shape().text() +
                     " in " + std::to_string(options.groups) + " groups need a bias " + Shape{channels}.text() +
                     ", found " + bias.shape().text()};
  return Tensor<T>{apply(detail::ScalarOp::add, {y, reshape(bias, {channels, 1, 1}, where)}, where)};
}

}  // namespace replicator
