// SPDX-License-Identifier: Apache-2.0
// The code of idx.hpp: reads the headers of IDX files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/data/files/idx.hpp>
#include <replicator/data/files/load_stored_rows.hpp>
#include <replicator/data/files/stored_rows.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/io/number_encoding.hpp>
#include <span>
#include <string>

namespace replicator::data::detail {

// An IDX file is two zero bytes, the type, the rank, the extents as 32-bit big-endian numbers, and the data.
// Throws DataError for anything else.
template <class>
StoredArray read_idx_header(const std::string& path, std::span<const std::byte> file) {
  StoredArray result;
  if (file.size() < 4) io::detail::refuse(path, 0, "an IDX file begins with 4 bytes, found " + std::to_string(file.size()));
  if (file[0] != std::byte{0} || file[1] != std::byte{0})
    io::detail::refuse(path, 0, file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b} ? "this is gzip: decompress the file first (gunzip)" : "an IDX file begins with two zero bytes");
  switch (std::to_integer<int>(file[2])) {
    case 0x08: result.stored = io::detail::Stored::uint8; break;
    case 0x09: result.stored = io::detail::Stored::int8; break;
    case 0x0B: result.stored = io::detail::Stored::int16; break;
    case 0x0C: result.stored = io::detail::Stored::int32; break;
    case 0x0D: result.stored = io::detail::Stored::float32; break;
    case 0x0E: result.stored = io::detail::Stored::float64; break;
    default: io::detail::refuse(path, 2, "the type " + std::to_string(std::to_integer<int>(file[2])) + " is none of IDX (8, 9, 11, 12, 13, 14)");
  }
  result.big_endian = true;
  const auto rank = std::to_integer<std::size_t>(file[3]);
  if (rank < 1 || rank > Shape::max_rank) io::detail::refuse(path, 3, std::to_string(rank) + " dimensions; 1 to 8 are possible");
  result.begin = 4 + 4 * rank;
  if (file.size() < result.begin) io::detail::refuse(path, file.size(), "the file ends within its header");
  for (std::size_t axis = 0; axis < rank; ++axis) result.shape.push_back(io::detail::load_big<std::uint32_t>(file.data() + 4 + 4 * axis));
  require_bytes(path, file, result);
  return result;
}

}  // namespace replicator::data::detail
