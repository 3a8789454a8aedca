// SPDX-License-Identifier: Apache-2.0
// Maxima and averages over windows of NCHW images, and their derivatives of any order:
//
//   y = max(x)          dx = spread(x, dy): each dy goes to the element of its window that has the maximum, the first one in row-major order
//   s = spread(x, dy)   ddy = pick(x, ds): takes ds at the same elements. Each of the two is the transpose of the other
//   y = average(x)      dx = the transpose of average, of dy
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/window.hpp>

namespace replicator {

struct PoolingOptions {
  Extents2d window{1, 1};
  Extents2d stride{0, 0};  // 0: as large as the window
  SpatialPadding padding{};
  bool count_include_pad = false;  // averages: divide by the whole window, not by its elements inside the image

  template <class V>
  void describe(V& v) const {
    v("window", window);
    v("stride", stride);
    v("padding_low", padding.low);
    v("padding_high", padding.high);
    v("count_include_pad", count_include_pad);
  }
};

namespace detail {
inline Shape pooled_shape(const Shape& x, const PoolingOptions& o) {
  if (x.rank() != 4) throw BuildError{"x must be [N, C, H, W], found " + x.text()};
  Shape y{x[0], x[1]};
  for (std::size_t i = 0; i < 2; ++i) {
    y.push_back(window_positions(x[i + 2], o.window[i], o.stride[i], 1, o.padding.low[i], o.padding.high[i]));
    if (o.padding.low[i] >= o.window[i] || o.padding.high[i] >= o.window[i])
      throw BuildError{"padding " + std::to_string(o.padding.low[i]) + ", " + std::to_string(o.padding.high[i]) +
                       " leaves windows of " + std::to_string(o.window[i]) + " without an element: take less"};
  }
  return y;
}
inline void require_floating(const TensorType& x) {
  if (!is_floating(x.dtype)) throw BuildError{"x must be of a floating type, found " + x.text() + ": cast it with rp::cast"};
}
// With `wider`, y may be float32 where x is bfloat16.
inline void require_pooled(const TensorType& x, const PoolingOptions& o, const TensorType& y, bool wider = false) {
  require_floating(x);
  const bool fits = x.dtype == y.dtype || (wider && x.dtype == DType::bfloat16 && y.dtype == DType::float32);
  if (const Shape shape = pooled_shape(x.shape, o); !(shape == y.shape) || !fits)
    throw BuildError{"x " + x.text() + " is pooled to " + shape.text() + ", found " + y.text()};
}
inline PoolingOptions with_stride(PoolingOptions o) {
  for (std::size_t i = 0; i < 2; ++i)
    if (o.stride[i] == 0) o.stride[i] = o.window[i];
  return o;
}
}  // namespace detail

// The maximum of each window. A NaN in the window wins.
struct MaxPool {
  static constexpr std::string_view name = "max_pool";
  static constexpr OfWidened of_widened = OfWidened::picks;
  PoolingOptions options;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    detail::require_floating(inputs[0]);
    return {{inputs[0].dtype, detail::pooled_shape(inputs[0].shape, options)}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// Inputs x, dy: dy at the element that gave the maximum, summed over the windows that chose it. The result has x's type. Where
// that is bfloat16, dy may be float32.
struct MaxPoolSpread {
  static constexpr std::string_view name = "max_pool_spread";
  static constexpr OfWidened of_widened = OfWidened::rounds;
  PoolingOptions options;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    detail::require_pooled(inputs[0], options, inputs[1], true);
    return {inputs[0]};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// Inputs x, u of one shape. For each window it gives the element of u at the place of x's maximum.
struct MaxPoolPick {
  static constexpr std::string_view name = "max_pool_pick";
  PoolingOptions options;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    detail::require_floating(inputs[0]);
    if (inputs[0] != inputs[1])
      throw BuildError{"found " + inputs[0].text() + " and " + inputs[1].text() + ", which must be equal"};
    return {{inputs[0].dtype, detail::pooled_shape(inputs[0].shape, options)}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    return {AnyTensor{}, compute(at.graph, MaxPoolSpread{options}, {at.inputs[0], at.upstream[0]}, at.where)};
  }
};

inline std::vector<AnyTensor> MaxPool::gradient(const GradientContext& at) const {
  return {compute(at.graph, MaxPoolSpread{options}, {at.inputs[0], at.upstream[0]}, at.where)};
}

inline std::vector<AnyTensor> MaxPoolSpread::gradient(const GradientContext& at) const {
  return {AnyTensor{}, converted(compute(at.graph, MaxPoolPick{options}, {at.inputs[0], at.upstream[0]}, at.where), at.inputs[1].dtype(), at.where)};
}

// The mean of each window.
struct AveragePool {
  static constexpr std::string_view name = "average_pool";
  PoolingOptions options;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    detail::require_floating(inputs[0]);
    return {{inputs[0].dtype, detail::pooled_shape(inputs[0].shape, options)}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// The transpose of AveragePool. The input is dy, and `x` is the shape of the result.
struct AveragePoolTranspose {
  static constexpr std::string_view name = "average_pool_transpose";
  PoolingOptions options;
  Shape x;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
    v("x", x);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    detail::require_pooled({inputs[0].dtype, x}, options, inputs[0]);
    return {{inputs[0].dtype, x}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    return {compute(at.graph, AveragePool{options}, {at.upstream[0]}, at.where)};
  }
};

inline std::vector<AnyTensor> AveragePool::gradient(const GradientContext& at) const {
  return {compute(at.graph, AveragePoolTranspose{options, at.inputs[0].shape()}, {at.upstream[0]}, at.where)};
}

// x [N, C, H, W] -> [N, C, OH, OW], OH = (H + padding - window) / stride + 1: the maximum of each window.
// Padding does not count. Also takes bool, uint8 and int32, through a floating type that holds all their values.
template <Element T>
Tensor<T> max_pool(Tensor<T> x, PoolingOptions options, std::source_location where = std::source_location::current()) {
  static_assert(!std::is_same_v<T, std::int64_t>,
                "replicator: max_pool takes no int64, for which no floating type is wide enough: cast to rp::Tensor<double> "
                "where the values are below 2^53, or to std::int32_t");
  if constexpr (FloatingElement<T>) {
    options.count_include_pad = false;
    return Tensor<T>{compute(x.graph(), MaxPool{detail::with_stride(options)}, {x}, where)};
  } else if constexpr (!std::is_same_v<T, std::int64_t>) {
    using Wide = std::conditional_t<std::is_same_v<T, std::int32_t>, double, float>;
    return cast<T>(max_pool(cast<Wide>(x, where), options, where), where);
  }
}

// The same with the mean of each window.
template <FloatingElement T>
Tensor<T> average_pool(Tensor<T> x, PoolingOptions options,
                       std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(x.graph(), AveragePool{detail::with_stride(options)}, {x}, where)};
}

// x [N, C, H, W] -> [N, C]: the mean over each channel of each image.
template <FloatingElement T>
Tensor<T> global_average_pool(Tensor<T> x, std::source_location where = std::source_location::current()) {
  const Shape shape = x.shape();
  if (shape.rank() != 4)
    throw BuildError{"global_average_pool at " + Location{where}.text() + ": x must be [N, C, H, W], found " +
                     shape.text()};
  detail::Expression e;
  e.compute = detail::compute_type(dtype_of<T>);
  e.inputs = 1;
  e.outputs = {e.input(0)};
  const AnyTensor any = x;
  const AnyTensor sum =
      reduce_node(x.graph(), ReduceKind::sum, std::move(e), {&any, 1}, shape, {2, 3}, dtype_of<T>, where);
  return Tensor<T>{apply(detail::ScalarOp::divide, sum, static_cast<double>(shape[2] * shape[3]), where)};
}

}  // namespace replicator
