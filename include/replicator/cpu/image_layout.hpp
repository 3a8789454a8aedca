// SPDX-License-Identifier: Apache-2.0
// The layouts of images [N, C, H, W] that pooling and resizing take on the CPU. Memory is seen as planes of H x W pixels, and
// a pixel has `pixel` channels. That is 1 for row-major, 8 for nChw8c, 16 for nChw16c, and C for NHWC.
#pragma once

#include <cstdint>

#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>

namespace replicator::detail::cpu::detail {

// The layout of an image of this shape with its channels in blocks of `pixel`.
inline Layout channel_blocks(const Shape& shape, std::int64_t pixel) {
  if (pixel == 1) return {};
  const std::int64_t blocks = (shape[1] + pixel - 1) / pixel;
  Layout layout;
  layout.plain = false;
  layout.strides = {blocks * shape[2] * shape[3] * pixel, shape[2] * shape[3] * pixel, shape[3] * pixel, pixel};
  layout.blocks = 1;
  layout.axis = {1};
  layout.size = {static_cast<std::int32_t>(pixel)};
  layout.storage = shape[0] * layout.strides[0];
  return layout;
}

// Which of these layouts an image has. Row-major stands for any other layout.
struct ImageLayout {
  std::int64_t block = 1;  // 0: channels last
  std::int64_t planes(const Shape& s) const { return block == 0 ? s[0] : s[0] * ((s[1] + block - 1) / block); }
  std::int64_t pixel(const Shape& s) const { return block == 0 ? s[1] : block; }
  Layout of(const Shape& s) const { return block == 0 ? channels_last(s) : channel_blocks(s, block); }
};
inline ImageLayout image_layout(const Layout& offered, const Shape& shape) {
  if (offered.plain) return {};
  if (offered == channels_last(shape)) return {0};
  if (offered.blocks == 1 && offered.axis[0] == 1 && offered == channel_blocks(shape, offered.size[0]))
    return {offered.size[0]};
  return {};
}

}  // namespace replicator::detail::cpu::detail
