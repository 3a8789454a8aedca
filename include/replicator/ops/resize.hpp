// SPDX-License-Identifier: Apache-2.0
// Resizes NCHW images. A pixel of the result is the nearest pixel of the input, or lies linearly between the nearest ones.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/ops/window.hpp>

namespace replicator {

enum class Interpolation : std::uint8_t {
  nearest,   // y[i] = x[floor(i in / out)], for an axis of `in` pixels that gets `out`
  bilinear,  // between the centres of pixels, as PyTorch's align_corners=false; constant beyond the outermost centres
};
// Gives "nearest" or "bilinear".
constexpr std::string_view name_of(Interpolation interpolation) {
  return interpolation == Interpolation::nearest ? "nearest" : "bilinear";
}

namespace detail {
inline void require_images(const TensorType& x, const Extents2d& size) {
  if (x.shape.rank() != 4) throw BuildError{"x must be [N, C, H, W], found " + x.text()};
  if (size[0] < 1 || size[1] < 1 || x.shape[2] < 1 || x.shape[3] < 1)
    throw BuildError{"asked for " + std::to_string(size[0]) + " rows and " + std::to_string(size[1]) + " columns of " + x.text() +
                     ": both images need at least one of each"};
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  if (const Shape y{x.shape[0], x.shape[1], size[0], size[1]}; y.too_large() || size[0] > most || size[1] > most)
    throw BuildError{y.too_large() ? y.too_large_text() : "asked for images " + y.text() + ": an image has at most 2^31 - 1 rows and columns"};
}
inline std::vector<TensorType> resized_type(const TensorType& x, const Extents2d& size) {
  if (!is_floating(x.dtype)) throw BuildError{"x must be of a floating type, found " + x.text()};
  require_images(x, size);
  return {{x.dtype, {x.shape[0], x.shape[1], size[0], size[1]}}};
}
}  // namespace detail

// This operation is linear in x [N, C, H, W], and gives [N, C, size[0], size[1]].
struct Resize {
  static constexpr std::string_view name = "resize";
  Extents2d size{1, 1};
  Interpolation interpolation = Interpolation::nearest;

  template <class V>
  void describe(V& v) const {
    v("size", size);
    v("interpolation", interpolation);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return detail::resized_type(inputs[0], size); }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// The transpose: each element of dy goes back to the pixels that it was made from, with the same weights. `size` is that of the
// image before resizing, so of the result.
struct ResizeTranspose {
  static constexpr std::string_view name = "resize_transpose";
  Extents2d size{1, 1};
  Interpolation interpolation = Interpolation::nearest;

  template <class V>
  void describe(V& v) const {
    v("size", size);
    v("interpolation", interpolation);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return detail::resized_type(inputs[0], size); }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    const Shape& dy = at.inputs[0].shape();
    return {compute(at.graph, Resize{{dy[2], dy[3]}, interpolation}, {at.upstream[0]}, at.where)};
  }
};

inline std::vector<AnyTensor> Resize::gradient(const GradientContext& at) const {
  const Shape& x = at.inputs[0].shape();
  return {compute(at.graph, ResizeTranspose{{x[2], x[3]}, interpolation}, {at.upstream[0]}, at.where)};
}

namespace detail {
// The nearest pixels, for types without a kernel of Resize.
template <Element T>
Tensor<T> take_nearest_pixels(Tensor<T> x, const Extents2d& size, std::source_location where) {
  for (const std::size_t axis : {std::size_t{2}, std::size_t{3}}) {
    const std::int64_t in = x.shape()[axis], out = size[axis - 2];
    Array<std::int64_t> from{Shape{out}};
    for (std::int64_t i = 0; i < out; ++i) from[i] = i * in / out;
    x = gather(x, constant(x.graph(), std::move(from), where), static_cast<std::int64_t>(axis), where);
  }
  return x;
}
template <Element T>
Tensor<T> resize_node(std::string_view what, Tensor<T> x, const Extents2d& size, Interpolation interpolation, std::source_location where) {
  if constexpr (FloatingElement<T>) {
    return Tensor<T>{compute(x.graph(), Resize{size, interpolation}, {x}, where)};
  } else {
    at_line(what, where, [&] {
      if (interpolation != Interpolation::nearest)
        throw BuildError{"asked for " + std::string{name_of(interpolation)} + " interpolation of " + x.any().type().text() +
                         ": cast it to a floating type with rp::cast, or take the nearest"};
      require_images(x.any().type(), size);
    });
    return take_nearest_pixels(x, size, where);
  }
}
}  // namespace detail

// x [N, C, H, W] -> [N, C, size[0], size[1]], larger or smaller. Bilinear interpolation takes two pixels per axis, so an image
// should be made smaller by at most a factor of two at once; pooling averages more. Integers and bool can only take the nearest.
// Throws BuildError for bilinear interpolation of these, for an image without pixels, and where x is not a batch of images.
template <Element T>
Tensor<T> resize(Tensor<T> x, Extents2d size, Interpolation interpolation = Interpolation::nearest,
                 std::source_location where = std::source_location::current()) {
  return detail::resize_node("resize", x, size, interpolation, where);
}

// x [N, C, H, W] -> [N, C, H factors[0], W factors[1]]. Throws BuildError for a factor below 1, and as resize does.
template <Element T>
Tensor<T> upsample(Tensor<T> x, Extents2d factors, Interpolation interpolation = Interpolation::nearest,
                   std::source_location where = std::source_location::current()) {
  const auto size = detail::at_line("upsample", where, [&]() -> Extents2d {
    if (x.shape().rank() != 4) throw BuildError{"x must be [N, C, H, W], found " + x.any().type().text()};
    if (factors[0] < 1 || factors[1] < 1)
      throw BuildError{"asked for the factors " + std::to_string(factors[0]) + " and " + std::to_string(factors[1]) + ": both must be at least 1"};
    return {Shape::product(x.shape()[2], factors[0]), Shape::product(x.shape()[3], factors[1])};
  });
  return detail::resize_node("upsample", x, size, interpolation, where);
}

}  // namespace replicator
