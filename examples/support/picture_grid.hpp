// SPDX-License-Identifier: Apache-2.0
// Many pictures as one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <replicator/core/array.hpp>

namespace example {

namespace rp = replicator;

struct PictureGridOptions {
  std::int64_t columns = 8;
  float low = 0;            // what is black
  float high = 1;           // what is white; beyond both is cut off
  std::int64_t margin = 2;  // white pixels around each picture
};

// Pictures [N, C, H, W], C being 1 or 3, side by side, row after row -> [rows (H + margin) + margin, columns (W + margin) + margin, C] in
// 8 bits, for write_png. Places without a picture stay white; what is not a number is black. Throws BuildError for another shape, no
// columns, a negative margin, and bounds in the wrong order.
inline rp::Array<std::uint8_t> picture_grid(const rp::Array<float>& pictures, const PictureGridOptions& options = {}) {
  const rp::Shape& shape = pictures.shape();
  if (shape.rank() != 4 || (shape[1] != 1 && shape[1] != 3) || shape.elements() == 0 || options.columns < 1 || options.margin < 0 ||
      !(options.low < options.high))
    throw rp::BuildError{"picture_grid: it takes pictures [N, 1 or 3, H, W], at least 1 column, a margin from 0 on, and low < high; found " +
                         shape.text() + ", " + std::to_string(options.columns) + " columns, a margin of " + std::to_string(options.margin) + ", " +
                         std::to_string(options.low) + " and " + std::to_string(options.high)};
  const auto channels = shape[1], height = shape[2], width = shape[3], margin = options.margin;
  const auto rows = (shape[0] + options.columns - 1) / options.columns;
  rp::Array<std::uint8_t> grid{rp::Shape{rows * (height + margin) + margin, options.columns * (width + margin) + margin, channels}};
  std::fill_n(grid.data(), grid.size(), std::uint8_t{255});
  const auto line = grid.shape()[1];
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    const auto top = margin + n / options.columns * (height + margin), left = margin + n % options.columns * (width + margin);
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x) {
          const float share = (pictures[((n * channels + c) * height + y) * width + x] - options.low) / (options.high - options.low);
          const float level = share > 0 ? std::min(share, 1.0f) * 255 + 0.5f : 0;
          grid[((top + y) * line + left + x) * channels + c] = static_cast<std::uint8_t>(level);
        }
  }
  return grid;
}

}  // namespace example
