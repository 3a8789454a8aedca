// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4): bytes as text, as JSON interfaces carry them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace replicator::io::detail {

inline constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string to_base64(std::string_view bytes) {
  std::string result;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const auto some = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < some.size() ? static_cast<unsigned char>(some[i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) result += i <= some.size() ? base64_digits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return result;
}

// Returns nothing for text that to_base64() has not made.
inline std::optional<std::string> from_base64(std::string_view text) {
  std::string result;
  if (text.size() % 4 != 0) return {};
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    const std::size_t padding = last ? static_cast<std::size_t>(text[at + 3] == '=') + static_cast<std::size_t>(text.substr(at + 2) == "==") : 0;
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto digit = i < 4 - padding ? base64_digits.find(text[at + i]) : 0;
      if (digit == std::string_view::npos) return {};
      bits = bits << 6 | static_cast<std::uint32_t>(digit);
    }
    for (std::size_t i = 0; i < 3 - padding; ++i) result += static_cast<char>(bits >> (16 - 8 * i) & 255);
  }
  if (to_base64(result) != text) return {};  // bits that no byte has
  return result;
}

}  // namespace replicator::io::detail
