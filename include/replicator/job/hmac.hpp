// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256 (RFC 2104), over the library's own SHA-256: job tokens need no other library.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <replicator/core/sha256.hpp>
#include <span>
#include <string_view>

namespace replicator::detail::transport {

using Mac = std::array<std::byte, 32>;

inline Mac hmac_sha256(std::string_view key, std::span<const std::byte> message) {
  std::array<std::byte, 64> block{};
  if (key.size() > block.size()) {
    Sha256 hash;
    hash.update(key);
    const auto digest = hash.digest();
    std::memcpy(block.data(), digest.data(), digest.size());
  } else if (!key.empty()) {
    std::memcpy(block.data(), key.data(), key.size());
  }
  const auto keyed = [&](int pad, std::span<const std::byte> text) {
    auto padded = block;
    for (auto& byte : padded) byte ^= static_cast<std::byte>(pad);
    Sha256 hash;
    hash.update(padded);
    hash.update(text);
    return hash.digest();
  };
  return keyed(0x5c, keyed(0x36, message));
}

}  // namespace replicator::detail::transport
