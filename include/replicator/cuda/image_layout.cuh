// SPDX-License-Identifier: Apache-2.0
// The layouts of images [N, C, H, W] that kernels of GPUs take: planes of rows and columns of pixels. A pixel is a single element
// where images are row-major, and all channels where channels are last.
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

// The layout of an image that is offered. Row-major is demanded in place of any other layout.
inline ImageLayout image_layout(const Layout& offered, const Shape& shape) {
  return {!offered.plain && offered == channels_last(shape)};
}

}  // namespace replicator::detail::cuda
