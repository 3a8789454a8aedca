// SPDX-License-Identifier: Apache-2.0
// Compresses bytes. Drawings shrink to a few percent; photographs hardly do, and may grow by as much.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace replicator::io::detail {

// One block with the fixed codes of RFC 1951, 3.2.6.
class DeflateBlock {
 public:
  DeflateBlock() {
    bits(1, 1);  // the last block
    bits(1, 2);  // of fixed codes
  }
  void literal(std::uint32_t value) { value < 144 ? code(0x30 + value, 8) : code(0x190 + value - 144, 9); }
  // As `length` bytes that stand `distance` before. The formulas are the tables of 3.2.5; 258 would have a code of its own.
  static constexpr std::size_t shortest = 4, longest = 257, farthest = 32768;
  void copy(std::size_t length, std::size_t distance) {
    const auto l = static_cast<std::uint32_t>(length - 3), d = static_cast<std::uint32_t>(distance - 1);
    const int more_l = std::max(0, static_cast<int>(std::bit_width(l)) - 3), more_d = std::max(0, static_cast<int>(std::bit_width(d)) - 2);
    length_code(257 + 4 * static_cast<std::uint32_t>(more_l) + (l >> more_l));
    bits(l & ((1u << more_l) - 1), more_l);
    code(2 * static_cast<std::uint32_t>(more_d) + (d >> more_d), 5);
    bits(d & ((1u << more_d) - 1), more_d);
  }
  std::vector<std::byte> finish() && {
    length_code(256);
    if (count_ > 0) bits(0, 8 - count_);
    return std::move(bytes_);
  }

 private:
  void length_code(std::uint32_t symbol) { symbol < 280 ? code(symbol - 256, 7) : code(0xC0 + symbol - 280, 8); }
  // Codes begin with their highest bit, numbers with their lowest.
  void code(std::uint32_t value, int count) {
    while (count-- > 0) bits((value >> count) & 1, 1);
  }
  void bits(std::uint32_t value, int count) {
    open_ |= value << count_;
    for (count_ += count; count_ >= 8; count_ -= 8, open_ >>= 8) bytes_.push_back(static_cast<std::byte>(open_ & 255));
  }

  std::vector<std::byte> bytes_;
  std::uint32_t open_ = 0;  // bits that fill no byte yet
  int count_ = 0;
};

// Where four bytes were seen last.
class LastSeen {
 public:
  explicit LastSeen(std::span<const std::byte> data) : data_{data}, at_(1 << 15, none) {}
  // Of those at `now`, which are remembered in turn; `none` where there are no such.
  std::size_t replace(std::size_t now) {
    std::uint32_t four;
    std::memcpy(&four, data_.data() + now, sizeof four);
    return std::exchange(at_[(four * 2654435761u) >> 17], now);
  }
  static constexpr std::size_t none = ~std::size_t{0};

 private:
  std::span<const std::byte> data_;
  std::vector<std::size_t> at_;
};

inline std::size_t common_length(std::span<const std::byte> data, std::size_t a, std::size_t b) {
  std::size_t length = 0;
  while (length < DeflateBlock::longest && b + length < data.size() && data[a + length] == data[b + length]) ++length;
  return length;
}

inline std::uint32_t adler32(std::span<const std::byte> data) {
  std::uint32_t a = 1, b = 0;
  for (const std::byte value : data) {
    a = (a + std::to_integer<std::uint32_t>(value)) % 65521;
    b = (b + a) % 65521;
  }
  return (b << 16) | a;
}

// The bytes as a zlib stream (RFC 1950).
inline std::vector<std::byte> zlib_compressed(std::span<const std::byte> data) {
  using detail::DeflateBlock, detail::LastSeen;
  DeflateBlock block;
  LastSeen last_seen{data};
  for (std::size_t now = 0; now < data.size();) {
    const auto before = now + DeflateBlock::shortest <= data.size() ? last_seen.replace(now) : LastSeen::none;
    const auto length = before != LastSeen::none && now - before <= DeflateBlock::farthest ? detail::common_length(data, before, now) : 0;
    if (length < DeflateBlock::shortest) {
      block.literal(std::to_integer<std::uint32_t>(data[now++]));
    } else {
      block.copy(length, now - before);
      for (const auto end = now + length; ++now < end;)
        if (now + DeflateBlock::shortest <= data.size()) last_seen.replace(now);
    }
  }
  std::vector<std::byte> stream{std::byte{0x78}, std::byte{0x01}};
  const auto compressed = std::move(block).finish();
  stream.insert(stream.end(), compressed.begin(), compressed.end());
  const auto checksum = detail::adler32(data);
  for (int shift = 24; shift >= 0; shift -= 8) stream.push_back(static_cast<std::byte>(checksum >> shift & 255));
  return stream;
}

}  // namespace replicator::io::detail
