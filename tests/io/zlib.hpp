// SPDX-License-Identifier: Apache-2.0
// What zlib reads from a stream of ours.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace replicator::test {

using namespace replicator::detail;

// None where zlib refuses the stream, or it has not `size` bytes.
inline std::optional<std::vector<std::byte>> inflated(std::span<const std::byte> stream, std::size_t size) {
  std::vector<std::byte> data(size + 1);
  auto found = static_cast<uLongf>(data.size());
  if (::uncompress(reinterpret_cast<Bytef*>(data.data()), &found, reinterpret_cast<const Bytef*>(stream.data()), stream.size()) != Z_OK) return std::nullopt;
  if (found != size) return std::nullopt;
  data.resize(size);
  return data;
}

}  // namespace replicator::test
