// SPDX-License-Identifier: Apache-2.0
// Curves as a picture.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>

namespace example {

namespace rp = replicator;

// Points in the order in which they are joined; one alone is a dot.
struct Curve {
  std::vector<double> x, y;
  std::array<std::uint8_t, 3> colour{31, 119, 180};
};

struct LinePlotOptions {
  std::int64_t width = 640, height = 400;  // pixels
  double low = 0, high = 1;                // of y: what is at the lower and the upper edge; beyond both is cut off
};

namespace detail {

class LinePlot {
 public:
  LinePlot(std::span<const Curve> curves, const LinePlotOptions& o) : o_{o}, pixels_{rp::Shape{o.height, o.width, 3}} {
    std::fill_n(pixels_.data(), pixels_.size(), std::uint8_t{255});
    bool any = false;
    for (const auto& curve : curves)
      for (const double x : curve.x) {
        first_ = any ? std::min(first_, x) : x;
        last_ = any ? std::max(last_, x) : x;
        any = true;
      }
    if (!(last_ > first_)) last_ = first_ + 1;
    axes();
    for (const auto& curve : curves)
      for (std::size_t i = 0; i < curve.x.size(); ++i) {
        const auto from = i > 0 ? i - 1 : 0;
        line(column(curve.x[from]), row(curve.y[from]), column(curve.x[i]), row(curve.y[i]), curve.colour);
      }
  }
  rp::Array<std::uint8_t> pixels() && { return std::move(pixels_); }

 private:
  using Colour = std::array<std::uint8_t, 3>;
  static constexpr std::int64_t left = 64, right = 24, top = 16, bottom = 32;

  double column(double x) const { return left + (x - first_) / (last_ - first_) * static_cast<double>(o_.width - left - right); }
  double row(double y) const {
    const double share = (std::clamp(y, o_.low, o_.high) - o_.low) / (o_.high - o_.low);
    return static_cast<double>(o_.height - bottom) - share * static_cast<double>(o_.height - top - bottom);
  }
  void dot(std::int64_t x, std::int64_t y, const Colour& colour) {
    if (x < 0 || y < 0 || x >= o_.width || y >= o_.height) return;
    std::copy(colour.begin(), colour.end(), pixels_.data() + (y * o_.width + x) * 3);
  }
  // Two pixels wide.
  void line(double x0, double y0, double x1, double y1, const Colour& colour) {
    const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(2 * std::max(std::abs(x1 - x0), std::abs(y1 - y0)))));
    for (std::int64_t i = 0; i <= count; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(count);
      const auto x = static_cast<std::int64_t>(std::lround(x0 + share * (x1 - x0)));
      const auto y = static_cast<std::int64_t>(std::lround(y0 + share * (y1 - y0)));
      for (int dx = 0; dx < 2; ++dx)
        for (int dy = 0; dy < 2; ++dy) dot(x + dx, y + dy, colour);
    }
  }
  // Five grid lines each way, with their numbers.
  void axes() {
    for (int i = 0; i <= 4; ++i) {
      const double x = first_ + (last_ - first_) * i / 4, y = o_.low + (o_.high - o_.low) * i / 4;
      const auto at_x = static_cast<std::int64_t>(std::lround(column(x))), at_y = static_cast<std::int64_t>(std::lround(row(y)));
      for (std::int64_t k = top; k <= o_.height - bottom; ++k) dot(at_x, k, {220, 220, 220});
      for (std::int64_t k = left; k <= o_.width - right; ++k) dot(k, at_y, {220, 220, 220});
      const auto of_x = text_of(x), of_y = text_of(y);
      write(of_x, at_x - width_of(of_x) / 2, o_.height - bottom + 8);
      write(of_y, left - 8 - width_of(of_y), at_y - 5);
    }
  }
  static std::string text_of(double value) {
    char text[32];
    const double size = std::abs(value);
    std::snprintf(text, sizeof text, size >= 1000 && size < 1e6 ? "%.0f" : "%.4g", value);
    return text;
  }
  static constexpr std::int64_t width_of(std::string_view text) { return static_cast<std::int64_t>(text.size()) * 8; }

  // Letters of 3 x 5 squares of 2 pixels: the bits of a row, from the upper left.
  static constexpr std::string_view letters = "0123456789.-+e";
  static constexpr std::array<std::uint16_t, 14> shapes{0b111101101101111, 0b010110010010111, 0b111001111100111, 0b111001111001111, 0b101101111001001,
                                                        0b111100111001111, 0b111100111101111, 0b111001010010010, 0b111101111101111, 0b111101111001111,
                                                        0b000000000000010, 0b000000111000000, 0b000010111010000, 0b000111111100111};
  void write(std::string_view text, std::int64_t x, std::int64_t y) {
    for (const char letter : text) {
      const auto at = letters.find(letter);
      for (int bit = 0; at != std::string_view::npos && bit < 15; ++bit)
        for (int pixel = 0; pixel < 4 && (shapes[at] >> (14 - bit) & 1) != 0; ++pixel)
          dot(x + bit % 3 * 2 + pixel % 2, y + bit / 3 * 2 + pixel / 2, {60, 60, 60});
      x += 8;
    }
  }

  LinePlotOptions o_;
  rp::Array<std::uint8_t> pixels_;
  double first_ = 0, last_ = 1;
};

}  // namespace detail

// Curves over a grid with numbers -> [height, width, 3] in 8 bits, for write_png; x reaches from the least to the greatest. Throws BuildError for
// curves whose x and y differ in number, values that are not finite, pictures below 160 x 100 and low >= high.
inline rp::Array<std::uint8_t> line_plot(std::span<const Curve> curves, const LinePlotOptions& options = {}) {
  if (options.width < 160 || options.height < 100 || !(options.low < options.high))
    throw rp::BuildError{"a plot has at least 160 x 100 pixels, and low < high; found " + std::to_string(options.width) + " x " +
                         std::to_string(options.height) + ", " + std::to_string(options.low) + " and " + std::to_string(options.high)};
  for (const auto& curve : curves) {
    const auto finite = [](const std::vector<double>& all) { return std::all_of(all.begin(), all.end(), [](double v) { return std::isfinite(v); }); };
    if (curve.x.size() != curve.y.size() || !finite(curve.x) || !finite(curve.y))
      throw rp::BuildError{"a curve needs as many x as y, all finite; found " + std::to_string(curve.x.size()) + " and " +
                           std::to_string(curve.y.size())};
  }
  return detail::LinePlot{curves, options}.pixels();
}

}  // namespace example
