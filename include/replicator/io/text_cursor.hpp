// SPDX-License-Identifier: Apache-2.0
// A cursor over the text of a file's header, shared by the parsers of such headers. It moves from left to right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <replicator/io/number_encoding.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace replicator::io::detail {

// Never reads outside of the text. Throws DataError "<path>: byte 17: <header>: ..." if the text does not match.
class TextCursor {
 public:
  // `text` begins at byte `begin` of the file.
  TextCursor(std::string_view text, std::size_t begin, std::string path, std::string header)
      : text_{text}, begin_{begin}, path_{std::move(path)}, header_{std::move(header)} {}

  [[noreturn]] void fail(const std::string& what) const { refuse(path_, begin_ + at_, header_ + ": " + what); }

  // The text that has not been read yet.
  std::string_view rest() const { return text_.substr(at_); }
  bool at_end() const { return at_ == text_.size(); }
  // Reads so many characters. The text must have them.
  std::string_view take(std::size_t characters) {
    const auto result = text_.substr(at_, characters);
    at_ += characters;
    return result;
  }

  void space() {
    while (!at_end() && std::string_view{" \t\r\n"}.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  // Skips white space, and reads `c` if it comes next. Returns whether it did.
  bool accept(char c) {
    space();
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string{"expected '"} + c + "'");
  }
  // A decimal number from 0 to 2^63 - 1, without leading zeros.
  std::int64_t integer() {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    space();
    const std::size_t start = at_;
    std::int64_t value = 0;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const int digit = text_[at_] - '0';
      if (value > (most - digit) / 10) fail("the number is too large");
      value = value * 10 + digit;
    }
    if (at_ == start) fail("expected a number that is not negative");
    if (at_ > start + 1 && text_[start] == '0') fail("a number with zeros in front");
    return value;
  }
  // Checks that only white space follows the closing brace.
  void finish() {
    space();
    if (!at_end()) fail("something follows the closing brace");
  }

 private:
  std::string_view text_;
  std::size_t begin_;
  std::string path_;
  std::string header_;
  std::size_t at_ = 0;
};

}  // namespace replicator::io::detail
