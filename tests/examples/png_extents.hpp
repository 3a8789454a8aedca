// SPDX-License-Identifier: Apache-2.0
// The extents of the picture in a PNG file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <replicator/core/shape.hpp>
#include <replicator/io/file.hpp>

namespace replicator::test {

// [height, width], which stand big-endian in its first chunk; not of a file that is none.
inline Shape png_extents(const std::string& path) {
  std::vector<std::byte> bytes;
  io::read_file(path, bytes);
  if (bytes.size() < 24 || bytes[1] != std::byte{'P'}) return {};
  const auto number = [&](std::size_t at) {
    std::int64_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::int64_t>(bytes[at + i]);
    return value;
  };
  return {number(20), number(16)};
}

}  // namespace replicator::test
