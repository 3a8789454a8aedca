// SPDX-License-Identifier: Apache-2.0
// Random shifts of pictures by a few pixels, as data augmentation against overfitting.
// Source: Kostrikov, Yarats, Fergus, "Image augmentation is all you need: regularizing deep reinforcement learning from
// pixels", 2021.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/philox.hpp>

namespace replicator::rl {

// Shifts each of the pictures [N, channels, height, width] by up to `most` pixels vertically and horizontally, all its
// channels alike. Repeats the pixels of the edge.
// Throws BuildError for another shape, and unless most >= 0.
inline void random_shift(Array<std::uint8_t>& pictures, std::int64_t most, PhiloxStream& random) {
  const Shape& shape = pictures.shape();
  if (shape.rank() != 4 || most < 0)
    throw BuildError{"random_shift takes pictures [N, channels, height, width] and a distance from 0 on; found " + shape.text() + " and " +
                     std::to_string(most)};
  const auto channels = shape[1], height = shape[2], width = shape[3];
  const auto range = static_cast<std::uint32_t>(2 * most + 1);
  std::vector<std::uint8_t> before(static_cast<std::size_t>(height * width));
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    const auto down = static_cast<std::int64_t>(random.below(range)) - most, right = static_cast<std::int64_t>(random.below(range)) - most;
    for (std::int64_t c = 0; c < channels; ++c) {
      std::uint8_t* plane = pictures.data() + (n * channels + c) * height * width;
      std::copy_n(plane, height * width, before.data());
      for (std::int64_t y = 0; y < height; ++y) {
        const auto* row = before.data() + std::clamp<std::int64_t>(y - down, 0, height - 1) * width;
        for (std::int64_t x = 0; x < width; ++x) plane[y * width + x] = row[std::clamp<std::int64_t>(x - right, 0, width - 1)];
      }
    }
  }
}

}  // namespace replicator::rl
