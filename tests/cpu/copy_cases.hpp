// SPDX-License-Identifier: Apache-2.0
// Random layouts, and the expected result of a copy between two of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/graph/kernel.hpp>

#include "elementwise_cases.hpp"

namespace replicator::test {

using namespace replicator::detail;

inline Layout random_layout(const Shape& shape) {
  Layout layout;
  if (draw(0, 4) == 0) return layout;
  std::vector<std::size_t> order(shape.rank());
  for (std::size_t a = 0; a < order.size(); ++a) order[a] = a;
  for (std::size_t a = order.size(); a > 1; --a) std::swap(order[a - 1], order[static_cast<std::size_t>(draw(0, static_cast<int>(a)))]);
  layout.plain = false;
  std::array<std::int64_t, Shape::max_rank> block{};
  block.fill(1);
  const int blocks = shape.rank() == 0 ? 0 : draw(0, 4);
  std::int64_t stride = 1;
  for (int b = 0; b < blocks; ++b) {
    const int sizes[] = {2, 3, 4, 8, 16, 16, 16};
    const auto axis = static_cast<std::uint8_t>(draw(0, static_cast<int>(shape.rank())));
    layout.axis[layout.blocks] = axis;
    layout.size[layout.blocks] = sizes[draw(0, 7)];
    block[axis] *= layout.size[layout.blocks];
    stride *= layout.size[layout.blocks++];
  }
  for (std::size_t i = order.size(); i-- > 0;) {
    layout.strides[order[i]] = stride;
    stride *= (shape[order[i]] + block[order[i]] - 1) / block[order[i]];
  }
  layout.storage = stride;
  return layout;
}

// Weights [O, I, H, W] in these blocks, the last innermost, axes outside of them in their order: OIhw8i16o2i is {1, 8}, {0, 16}, {1, 2}.
inline Layout weight_blocks(const Shape& shape, const std::vector<std::pair<std::uint8_t, std::int32_t>>& blocks) {
  Layout layout;
  layout.plain = false;
  std::array<std::int64_t, Shape::max_rank> block{};
  block.fill(1);
  std::int64_t stride = 1;
  for (const auto& [axis, size] : blocks) {
    layout.axis[layout.blocks] = axis;
    layout.size[layout.blocks++] = size;
    block[axis] *= size;
    stride *= size;
  }
  for (std::size_t a = shape.rank(); a-- > 0;) {
    layout.strides[a] = stride;
    stride *= (shape[static_cast<std::int64_t>(a)] + block[a] - 1) / block[a];
  }
  layout.storage = stride;
  return layout;
}

// What this machine has.
inline std::vector<cpu::InstructionLevel> instruction_levels() {
  std::vector<cpu::InstructionLevel> levels;
  for (const auto level : {cpu::InstructionLevel::baseline, cpu::InstructionLevel::avx2, cpu::InstructionLevel::avx512})
    if (level <= cpu::instruction_level()) levels.push_back(level);
  return levels;
}

// Does it move the bytes of every element, whatever they are, and write zero where padding is, and nothing behind it?
inline bool copies(const Executable& copy, const Shape& shape, DType dtype, const Layout& from, const Layout& to) {
  const std::size_t element = size_of(dtype);
  std::vector<std::byte> source(static_cast<std::size_t>(storage_elements(from, shape)) * element, std::byte{0x5A});
  std::vector<std::byte> expected(static_cast<std::size_t>(storage_elements(to, shape)) * element);
  std::uint32_t value = 1;
  for_each_index(shape, [&](const Index& index) {
    auto* at = source.data() + static_cast<std::size_t>(offset_in(from, shape, index)) * element;
    for (std::size_t b = 0; b < element; ++b) at[b] = static_cast<std::byte>(((value += 0x9E3779B9u) >> 24) | 1);
    std::memcpy(expected.data() + static_cast<std::size_t>(offset_in(to, shape, index)) * element, at, element);
  });
  std::vector<std::byte> result(expected.size() + 64, std::byte{0xA5});
  std::vector<std::byte> scratch(copy.scratch_bytes);
  const std::byte* in = source.data();
  std::byte* out = result.data();
  copy.run({&in, &out, scratch.data(), {}, nullptr});
  return std::equal(expected.begin(), expected.end(), result.begin()) && result[expected.size()] == std::byte{0xA5};
}

}  // namespace replicator::test
