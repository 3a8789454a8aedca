// SPDX-License-Identifier: Apache-2.0
// Chooses the part of a picture that is used for training or evaluation.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <replicator/core/philox.hpp>
#include <replicator/data/pictures/resample.hpp>

namespace replicator::data::detail {

struct Crop {
  Axis rows;
  Axis columns;
};

// The rectangle at (top, left), in whole pixels. Nothing outside of it is read.
inline Crop crop_at(std::int64_t top, std::int64_t left, std::int64_t height, std::int64_t width) {
  return {{static_cast<double>(top), static_cast<double>(height), top, top + height, 0, 0},
          {static_cast<double>(left), static_cast<double>(width), left, left + width, 0, 0}};
}

// low * (high / low)^u for u uniform in [0, 1). It uses only square roots, which IEEE 754 rounds exactly. So the bits
// are the same on every machine; libm's exp and log do not promise that.
inline double log_uniform(PhiloxStream& random, double low, double high) {
  double value = low, factor = high / low;
  for (std::uint32_t bits = random.next(); bits != 0; bits <<= 1) {
    factor = std::sqrt(factor);
    if (bits & 0x80000000u) value *= factor;
  }
  return value;
}

inline std::int64_t below(PhiloxStream& random, std::int64_t count) {
  return static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(count)));
}

// A rectangle with a random share `scale` of the area and a random aspect `ratio` (width / height). Drawn as by
// torchvision's RandomResizedCrop: ten tries, then the largest centred rectangle of an allowed ratio.
inline Crop random_resized_crop(PhiloxStream& random, std::int64_t height, std::int64_t width,
                                std::array<float, 2> scale, std::array<float, 2> ratio) {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double share = scale[0] + (double{scale[1]} - scale[0]) * random.uniform();
    const double aspect = log_uniform(random, ratio[0], ratio[1]);
    const std::int64_t w = std::llround(std::sqrt(area * share * aspect));
    const std::int64_t h = std::llround(std::sqrt(area * share / aspect));
    if (w > 0 && w <= width && h > 0 && h <= height) {
      const std::int64_t top = below(random, height - h + 1);
      return crop_at(top, below(random, width - w + 1), h, w);
    }
  }
  std::int64_t w = width, h = height;
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  if (aspect < ratio[0]) h = std::llround(static_cast<double>(w) / ratio[0]);
  if (aspect > ratio[1]) w = std::llround(static_cast<double>(h) * ratio[1]);
  return crop_at((height - h) / 2, (width - w) / 2, h, w);
}

// Resizes the shorter side to `resize` pixels and cuts out_height x out_width of those from the middle.
inline Crop center_crop(std::int64_t height, std::int64_t width, std::int64_t resize, std::int64_t out_height,
                        std::int64_t out_width) {
  const std::int64_t shorter = height < width ? height : width;
  const std::int64_t tall = resize * height / shorter, wide = resize * width / shorter;
  const double y = static_cast<double>(height) / static_cast<double>(tall);
  const double x = static_cast<double>(width) / static_cast<double>(wide);
  const auto middle = [](std::int64_t room) { return static_cast<double>((room + 1) / 2); };
  return {{middle(tall - out_height) * y, static_cast<double>(out_height) * y, 0, height, 0, 0},
          {middle(wide - out_width) * x, static_cast<double>(out_width) * x, 0, width, 0, 0}};
}

// The same crop of the picture reduced to 1/shrink of its size; `height` and `width` are the reduced extents.
inline Crop shrunk(Crop crop, int shrink, std::int64_t height, std::int64_t width) {
  const auto scale = [&](Axis& axis, std::int64_t extent) {
    axis.begin /= shrink;
    axis.length /= shrink;
    axis.low /= shrink;
    axis.high = (axis.high + shrink - 1) / shrink;
    if (axis.high > extent) axis.high = extent;
  };
  scale(crop.rows, height);
  scale(crop.columns, width);
  return crop;
}

}  // namespace replicator::data::detail
