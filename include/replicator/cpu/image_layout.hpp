// SPDX-License-Identifier: Apache-2.0
// Images [N, C, H, W] whose channels may lie in blocks: memory is seen as planes of H x W pixels of `pixel` channels
// each, which is row-major (1), nChw8c, nChw16c (8, 16) and NHWC (C).
#pragma once

#include <cstdint>

#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>

namespace replicator::detail::cpu::detail {

// The layout that an image of this shape has when its channels lie in blocks of `pixel`.
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

// How an image lies, if it is one of these; row-major otherwise.
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
