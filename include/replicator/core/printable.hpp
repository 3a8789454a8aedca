// SPDX-License-Identifier: Apache-2.0
// Makes text from outside (a file, a network, a process's name) safe to print in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace replicator::detail {

// The number of bytes of the first character of `text` (not empty); 0 if it is not valid UTF-8 (RFC 3629).
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0   ? 2
                             : first < 0xF0 ? 3
                                            : 4;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const unsigned second = byte(1);
  const bool too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F, too_large = first == 0xF4 && second > 0x8F;
  return too_long || surrogate || too_large ? 0 : length;
}

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

enum class LineEnds {
  escape,
  keep
};

// `text` with control characters (C0, DEL and C1) and bytes that are not UTF-8 written as \x1b, say. Of a text with more than
// `longest` bytes the middle is left out: " ... " stands there.
template <class = void>
std::string printable(std::string_view text, std::size_t longest = 255, LineEnds line_ends = LineEnds::escape) {
  static constexpr char digits[] = "0123456789abcdef";
  if (text.size() > longest) {
    std::size_t first = longest - longest / 3, last = text.size() - longest / 3;
    const auto inside_character = [&](std::size_t at) { return at > 0 && at < text.size() && (text[at] & 0xC0) == 0x80; };
    for (int i = 0; i < 3 && inside_character(first); ++i) --first;
    for (int i = 0; i < 3 && inside_character(last); ++i) ++last;
    return printable(text.substr(0, first), first, line_ends) + " ... " + printable(text.substr(last), text.size() - last, line_ends);
  }
  std::string result;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text), bytes = length == 0 ? 1 : length;
    const auto c = static_cast<unsigned char>(text[0]);
    const bool kept = c == '\n' && line_ends == LineEnds::keep;
    const bool control = kept ? false : length < 2 ? c < 0x20 || c >= 0x7F
                                                   : c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    for (std::size_t i = 0; i < bytes; ++i)
      if (control) result += {'\\', 'x', digits[static_cast<unsigned char>(text[i]) >> 4], digits[text[i] & 15]};
      else result += text[i];
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace replicator::detail
