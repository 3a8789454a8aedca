// SPDX-License-Identifier: Apache-2.0
// Images [N, C, H, W] as kernels take them: planes of rows and columns of pixels, which are single elements where images are
// row-major, and all channels where those lie last.
#pragma once

#include <cstdint>

#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>

namespace replicator::detail::cuda {

struct ImageLayout {
  bool channels_last = false;

  std::int64_t pixel(const Shape& shape) const { return channels_last ? shape[1] : 1; }
  Layout of(const Shape& shape) const { return channels_last ? simplest(replicator::channels_last(shape), shape) : Layout{}; }
};

// How an image lies that is offered; row-major is demanded where it is neither.
inline ImageLayout image_layout(const Layout& offered, const Shape& shape) {
  return {!offered.plain && offered == channels_last(shape)};
}

}  // namespace replicator::detail::cuda
