// SPDX-License-Identifier: Apache-2.0
// Enlarges NCHW images by whole factors. Pixels are repeated, or interpolated linearly.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/window.hpp>

namespace replicator {

enum class Interpolation : std::uint8_t {
  nearest,   // y[i] = x[i / factor]
  bilinear,  // between the centres of pixels, as PyTorch's align_corners=false; constant beyond the outermost centres
};
// Gives "nearest" or "bilinear".
constexpr std::string_view name_of(Interpolation interpolation) {
  return interpolation == Interpolation::nearest ? "nearest" : "bilinear";
}

struct UpsampleOptions {
  Extents2d factors{1, 1};  // of rows and columns, at least 1
  Interpolation interpolation = Interpolation::nearest;

  template <class V>
  void describe(V& v) const {
    v("factors", factors);
    v("interpolation", interpolation);
  }
};

namespace detail {
inline void require_factors(const Extents2d& factors, const std::string& what = {}) {
  if (factors[0] < 1 || factors[1] < 1)
    throw BuildError{what + "asked for the factors " + std::to_string(factors[0]) + " and " + std::to_string(factors[1]) +
                     ": both must be at least 1"};
}
inline void require_upsampling(const TensorType& x, const Extents2d& factors) {
  if (x.shape.rank() != 4 || !is_floating(x.dtype))
    throw BuildError{"x must be [N, C, H, W] of a floating type, found " + x.text()};
  require_factors(factors);
}
}  // namespace detail

// This operation is linear in x.
struct Upsample {
  static constexpr std::string_view name = "upsample";
  UpsampleOptions options;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    detail::require_upsampling(inputs[0], options.factors);
    const Shape& x = inputs[0].shape;
    return {{inputs[0].dtype, {x[0], x[1], Shape::product(x[2], options.factors[0]), Shape::product(x[3], options.factors[1])}}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// The transpose: each element of dy goes back to the pixels that it was made from, with the same weights.
struct UpsampleTranspose {
  static constexpr std::string_view name = "upsample_transpose";
  UpsampleOptions options;

  template <class V>
  void describe(V& v) const {
    options.describe(v);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const Extents2d& factors = options.factors;
    detail::require_upsampling(inputs[0], factors);
    const Shape& dy = inputs[0].shape;
    if (dy[2] % factors[0] != 0 || dy[3] % factors[1] != 0)
      throw BuildError{"the factors " + std::to_string(factors[0]) + " and " + std::to_string(factors[1]) +
                       " do not divide the extents of " + inputs[0].text()};
    return {{inputs[0].dtype, {dy[0], dy[1], dy[2] / factors[0], dy[3] / factors[1]}}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    return {compute(at.graph, Upsample{options}, {at.upstream[0]}, at.where)};
  }
};

inline std::vector<AnyTensor> Upsample::gradient(const GradientContext& at) const {
  return {compute(at.graph, UpsampleTranspose{options}, {at.upstream[0]}, at.where)};
}

namespace detail {
// Repeats every pixel: [N, C, H, 1, W, 1] broadcast to [N, C, H, f, W, g].
template <Element T>
Tensor<T> repeat_pixels(Tensor<T> x, const Extents2d& factors, Location where) {
  const Shape s = x.shape();
  detail::Expression e;
  e.compute = compute_type(dtype_of<T>);
  e.inputs = 1;
  e.outputs = {e.input(0)};
  const AnyTensor apart = reshape(x, Shape{s[0], s[1], s[2], 1, s[3], 1}, where);
  const AnyTensor repeated =
      map_node(x.graph(), std::move(e), {&apart, 1}, Shape{s[0], s[1], s[2], factors[0], s[3], factors[1]}, dtype_of<T>, where);
  return Tensor<T>{reshape(repeated, Shape{s[0], s[1], s[2] * factors[0], s[3] * factors[1]}, where)};
}
}  // namespace detail

// x [N, C, H, W] -> [N, C, H factors[0], W factors[1]]. Integers and bool can only be repeated. Throws BuildError for bilinear
// interpolation of these, for a factor below 1, and where x is not a batch of images.
template <Element T>
Tensor<T> upsample(Tensor<T> x, Extents2d factors, Interpolation interpolation = Interpolation::nearest,
                   std::source_location where = std::source_location::current()) {
  if constexpr (FloatingElement<T>) {
    return Tensor<T>{compute(x.graph(), Upsample{{factors, interpolation}}, {x}, where)};
  } else {
    const std::string what = "upsample at " + Location{where}.text() + ": ";
    if (interpolation != Interpolation::nearest)
      throw BuildError{what + "asked for " + std::string{name_of(interpolation)} + " interpolation of " + x.any().type().text() +
                       ": cast it to a floating type with rp::cast, or take the nearest"};
    if (x.shape().rank() != 4) throw BuildError{what + "x must be [N, C, H, W], found " + x.any().type().text()};
    detail::require_factors(factors, what);
    return detail::repeat_pixels(x, factors, where);
  }
}

}  // namespace replicator
