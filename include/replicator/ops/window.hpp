// SPDX-License-Identifier: Apache-2.0
// Windows that slide over the two spatial axes of NCHW images, for convolution and pooling.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>

#include <replicator/core/error.hpp>
#include <replicator/core/shape.hpp>

namespace replicator {

// Height and width: {3, 1}. One number is both: .kernel = 3.
struct Extents2d : std::array<std::int64_t, 2> {
  constexpr Extents2d() : Extents2d{0, 0} {}
  template <std::integral Both>
  constexpr Extents2d(Both both) : Extents2d{static_cast<std::int64_t>(both), static_cast<std::int64_t>(both)} {}  // NOLINT: implicit on purpose
  constexpr Extents2d(std::int64_t height, std::int64_t width) : std::array<std::int64_t, 2>{height, width} {}
};

// Rows and columns added around an image. {1, 1}, or 1, adds one on every side. {{0, 1}, {0, 1}} adds one below and one at the right.
struct SpatialPadding {
  Extents2d low{};
  Extents2d high{};

  constexpr SpatialPadding() = default;
  template <std::integral Both>
  constexpr SpatialPadding(Both both) : low{both}, high{both} {}  // NOLINT: implicit on purpose
  constexpr SpatialPadding(std::int64_t height, std::int64_t width) : low{height, width}, high{height, width} {}
  constexpr SpatialPadding(Extents2d low_high_of_height, Extents2d low_high_of_width)
      : low{low_high_of_height[0], low_high_of_width[0]}, high{low_high_of_height[1], low_high_of_width[1]} {}

  friend bool operator==(const SpatialPadding&, const SpatialPadding&) = default;
};

namespace detail {
// Number of positions of a window along one axis. Throws BuildError where there is none.
inline std::int64_t window_positions(std::int64_t extent, std::int64_t window, std::int64_t stride,
                                     std::int64_t dilation, std::int64_t low, std::int64_t high) {
  if (window < 1 || extent < 1)
    throw BuildError{"asked for a window of " + std::to_string(window) + " over an extent of " + std::to_string(extent) + ": both start at 1"};
  if (stride < 1 || dilation < 1 || low < 0 || high < 0)
    throw BuildError{"asked for stride " + std::to_string(stride) + ", dilation " + std::to_string(dilation) +
                     " and padding " + std::to_string(low) + ", " + std::to_string(high) +
                     ": stride and dilation start at 1, padding at 0"};
  const std::int64_t reach = Shape::sum(Shape::product(dilation, window - 1), 1);
  const std::int64_t padded = Shape::sum(Shape::sum(low, extent), high);
  if (reach > padded)
    throw BuildError{"a window of " + std::to_string(window) +
                     (dilation > 1 ? " with dilation " + std::to_string(dilation) : "") +
                     " does not fit an extent of " + std::to_string(extent) + " with padding " + std::to_string(low) +
                     ", " + std::to_string(high) + ": take a smaller window or more padding"};
  return (padded - reach) / stride + 1;
}
}  // namespace detail

}  // namespace replicator
