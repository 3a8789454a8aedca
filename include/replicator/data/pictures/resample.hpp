// SPDX-License-Identifier: Apache-2.0
// Bilinear resampling of pictures into normalised float32 planes, with antialiasing when they shrink.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace replicator::data::detail {

// A picture of interleaved RGBX bytes. Rows have no gaps; `slack` readable bytes follow the last row.
struct Picture {
  static constexpr std::size_t slack = 64;

  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> bytes;

  void resize(std::int64_t h, std::int64_t w) {
    height = h;
    width = w;
    bytes.resize(static_cast<std::size_t>(4 * h * w) + slack);
  }
};

// One axis of a resampling. The interval [begin, begin + length) of the source becomes `count` samples; nothing outside
// of [low, high) is read. Then all samples move by `shift`: result i is sample i + shift, or black outside of [0,
// count).
struct Axis {
  double begin = 0;
  double length = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t count = 0;
  std::int64_t shift = 0;
};

// For each sample, the first source pixel and the weights: a triangle as wide as a sample of the coarser side.
class Taps {
 public:
  void compute(const Axis& axis) {
    const double scale = axis.length / static_cast<double>(axis.count);
    const double support = std::max(scale, 1.0);
    width_ = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
    first_.assign(static_cast<std::size_t>(axis.count), 0);
    size_.assign(static_cast<std::size_t>(axis.count), 0);
    weights_.assign(static_cast<std::size_t>(axis.count) * width_, 0.0f);
    for (std::size_t i = 0; i < first_.size(); ++i) {
      const double center = axis.begin + (static_cast<double>(i) + 0.5) * scale;
      const auto from = std::max(axis.low, static_cast<std::int64_t>(std::floor(center - support + 0.5)));
      const auto to = std::min(axis.high, static_cast<std::int64_t>(std::floor(center + support + 0.5)));
      double sum = 0;
      for (std::int64_t x = from; x < to; ++x) sum += triangle((static_cast<double>(x) + 0.5 - center) / support);
      for (std::int64_t x = from; x < to; ++x)
        weights_[i * width_ + static_cast<std::size_t>(x - from)] =
            static_cast<float>(triangle((static_cast<double>(x) + 0.5 - center) / support) / sum);
      first_[i] = from;
      size_[i] = to - from;
    }
  }
  std::int64_t first(std::int64_t i) const { return first_[static_cast<std::size_t>(i)]; }
  std::int64_t size(std::int64_t i) const { return size_[static_cast<std::size_t>(i)]; }
  const float* weights(std::int64_t i) const { return weights_.data() + static_cast<std::size_t>(i) * width_; }

 private:
  static double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

  std::size_t width_ = 0;
  std::vector<std::int64_t> first_;
  std::vector<std::int64_t> size_;
  std::vector<float> weights_;
};

// value = byte * gain[c] + offset[c]. The fourth entry completes a vector and is unused.
struct Normalisation {
  std::array<float, 4> gain{};
  std::array<float, 4> offset{};
};

// Reuses its memory between pictures.
class Resampler {
 public:
  // Writes [3, rows.count, columns.count] to `out`. `mirror` swaps left and right at the end.
  void operator()(const Picture& picture, const Axis& rows, const Axis& columns, bool mirror,
                  const Normalisation& normalisation, float* out) {
    vertical_.compute(rows);
    horizontal_.compute(columns);
    for (std::int64_t y = 0; y < rows.count; ++y) {
      const std::int64_t source = y + rows.shift;
      const bool inside = source >= 0 && source < rows.count;
      if (inside) blend_rows(picture, source, columns);
      float* const row = out + y * columns.count;
      write_row(inside, columns, normalisation, rows.count * columns.count, mirror ? row + columns.count - 1 : row,
                mirror ? -1 : 1);
    }
  }

 private:
  using Pixel = std::array<float, 4>;
  static constexpr std::int64_t tile = 64;  // floats; a constant trip count lets compilers use vectors at -O2

  // Blends the source rows for result row `y`, columns [low, high).
  void blend_rows(const Picture& picture, std::int64_t y, const Axis& columns) {
    const std::int64_t tiles = (4 * (columns.high - columns.low) + tile - 1) / tile;
    row_.assign(static_cast<std::size_t>(tiles * tile), 0.0f);
    for (std::int64_t tap = 0; tap < vertical_.size(y); ++tap) {
      const float weight = vertical_.weights(y)[tap];
      if (weight == 0) continue;
      const std::uint8_t* from = picture.bytes.data() + 4 * ((vertical_.first(y) + tap) * picture.width + columns.low);
      for (std::int64_t i = 0; i < tiles; ++i) add_tile(row_.data() + i * tile, from + i * tile, weight);
    }
  }
  static void add_tile(float* __restrict to, const std::uint8_t* __restrict from, float weight) {
    for (std::int64_t i = 0; i < tile; ++i) to[i] += weight * static_cast<float>(from[i]);
  }

  // Writes to `to`, `to` + step, ... in each of the three planes.
  void write_row(bool inside, const Axis& columns, const Normalisation& normalisation, std::int64_t plane, float* to,
                 std::int64_t step) const {
    const Normalisation n = normalisation;
    for (std::int64_t x = 0; x < columns.count; ++x, to += step) {
      const std::int64_t from = x + columns.shift;
      Pixel pixel{};
      if (inside && from >= 0 && from < columns.count) pixel = blend_pixels(from, columns.low);
      for (std::size_t c = 0; c < 4; ++c) pixel[c] = pixel[c] * n.gain[c] + n.offset[c];
      to[0] = pixel[0];
      to[plane] = pixel[1];
      to[2 * plane] = pixel[2];
    }
  }

  Pixel blend_pixels(std::int64_t x, std::int64_t low) const {
    Pixel sum{};
    const float* pixel = row_.data() + 4 * (horizontal_.first(x) - low);
    const float* weights = horizontal_.weights(x);
    for (std::int64_t tap = 0; tap < horizontal_.size(x); ++tap, pixel += 4)
      for (std::size_t c = 0; c < 4; ++c) sum[c] += weights[tap] * pixel[c];
    return sum;
  }

  Taps vertical_;
  Taps horizontal_;
  std::vector<float> row_;
};

}  // namespace replicator::data::detail
