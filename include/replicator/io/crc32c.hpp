// SPDX-License-Identifier: Apache-2.0
// The checksum CRC-32C, computed eight bytes at a time with eight tables.
// Sources: Castagnoli, Braeuer, Herrmann 1993; RFC 3720, appendix B.4; Kounavis and Berry 2008 (the eight tables).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace replicator::detail {

using Crc32cTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Crc32cTables make_crc32c_tables() {
  Crc32cTables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    tables[0][i] = crc;
  }
  for (std::size_t t = 1; t < 8; ++t)
    for (std::size_t i = 0; i < 256; ++i) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 255];
  return tables;
}
inline constexpr Crc32cTables crc32c_tables = make_crc32c_tables();

inline std::uint32_t crc32c(std::span<const std::byte> bytes) {
  const auto& t = detail::crc32c_tables;
  std::uint32_t crc = ~0u;
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(p[i]); };
    crc = t[7][(crc ^ at(0)) & 255] ^ t[6][(crc >> 8 ^ at(1)) & 255] ^ t[5][(crc >> 16 ^ at(2)) & 255] ^ t[4][(crc >> 24 ^ at(3)) & 255] ^
          t[3][at(4)] ^ t[2][at(5)] ^ t[1][at(6)] ^ t[0][at(7)];
  }
  for (; left > 0; --left, ++p) crc = crc >> 8 ^ t[0][(crc ^ std::to_integer<std::uint32_t>(*p)) & 255];
  return ~crc;
}

}  // namespace replicator::detail
