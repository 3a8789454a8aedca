// SPDX-License-Identifier: Apache-2.0
// The record framing of TFRecord and TensorBoard event files. A record is the length (8 bytes), its checksum (4), the
// content, and its checksum (4), all little-endian.
// Source: tensorflow.org/tutorials/load_data/tfrecord ("TFRecords format details").
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/io/crc32c.hpp>
#include <span>
#include <vector>

namespace replicator::io::detail {

// Bytes of a record besides its content.
inline constexpr std::size_t record_frame = 16;

// The checksum as records store it: rotated and offset. A plain CRC would be weak over data that contains CRCs.
inline std::uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const std::uint32_t sum = replicator::detail::crc32c(bytes);
  return (sum >> 15 | sum << 17) + 0xA282EAD8u;
}

// Frames `content` as a record.
inline std::vector<std::byte> framed_record(std::span<const std::byte> content) {
  std::vector<std::byte> record;
  record.reserve(content.size() + record_frame);
  const auto put = [&](std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) record.push_back(static_cast<std::byte>(value >> 8 * i));
  };
  put(content.size(), 8);
  put(masked_crc32c(record), 4);
  record.insert(record.end(), content.begin(), content.end());
  put(masked_crc32c(content), 4);
  return record;
}

}  // namespace replicator::io::detail
