// SPDX-License-Identifier: Apache-2.0
// Builds one message of Protocol Buffers, field by field. Source: protobuf.dev/programming-guides/encoding.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace replicator::io::detail {

// Each member function appends one field of the type it is named after, with the number `field` (1 or more). Zeros are
// written too.
class ProtobufMessage {
 public:
  void int64(int field, std::int64_t value) {
    tag(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void float32(int field, float value) {
    tag(field, 5);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
  }
  void float64(int field, double value) {
    tag(field, 1);
    little_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  // A packed list of doubles.
  void float64s(int field, std::span<const double> values) {
    tag(field, 2);
    varint(values.size() * 8);
    for (const double value : values) little_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  void bytes(int field, std::span<const std::byte> content) {
    tag(field, 2);
    varint(content.size());
    bytes_.insert(bytes_.end(), content.begin(), content.end());
  }
  void string(int field, std::string_view text) { bytes(field, std::as_bytes(std::span{text.data(), text.size()})); }
  void message(int field, const ProtobufMessage& inner) { bytes(field, inner.view()); }

  std::span<const std::byte> view() const { return bytes_; }

 private:
  void tag(int field, unsigned type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_.push_back(static_cast<std::byte>(value | 128));
    bytes_.push_back(static_cast<std::byte>(value));
  }
  void little_endian(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_.push_back(static_cast<std::byte>(value >> 8 * i));
  }

  std::vector<std::byte> bytes_;
};

}  // namespace replicator::io::detail
