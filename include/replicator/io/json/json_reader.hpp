// SPDX-License-Identifier: Apache-2.0
// A JSON parser for readers of fixed grammars: objects, arrays, strings and numbers on demand.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <replicator/io/text_cursor.hpp>
#include <string>
#include <string_view>
#include <system_error>

namespace replicator::io::detail {

// Does not recurse by itself. Throws DataError that names the file and the byte for text that does not match.
class JsonCursor : public TextCursor {
 public:
  using TextCursor::TextCursor;

  // Reads an object. Calls member(key) at the beginning of each value.
  template <class Member>
  void object(Member&& member) {
    expect('{');
    if (accept('}')) return;
    do {
      const std::string key = string();
      expect(':');
      member(key);
    } while (accept(','));
    expect('}');
  }

  // Reads an array. Calls element() at the beginning of each element.
  template <class Element>
  void array(Element&& element) {
    expect('[');
    if (accept(']')) return;
    do element();
    while (accept(','));
    expect(']');
  }

  double number() {
    space();
    const auto text = rest().substr(0, number_length());
    double value = 0;
    if (text.empty() || std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) fail("expected a number");
    take(text.size());
    return value;
  }

  std::string string() {
    expect('"');
    std::string result;
    while (true) {
      if (at_end()) fail("the string does not end");
      const char c = take(1)[0];
      if (c == '"') return result;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      if (c == '\\')
        escape(result);
      else
        result += c;
    }
  }

 private:
  // The length of a number in JSON's notation, such as -0.5e+10; 0 if there is none. JSON allows no leading zeros and
  // wants digits on both sides of a point.
  std::size_t number_length() const {
    const auto text = rest();
    std::size_t at = 0;
    const auto one_of = [&](std::string_view characters) {
      const bool found = at < text.size() && characters.find(text[at]) != std::string_view::npos;
      at += found ? 1 : 0;
      return found;
    };
    const auto digits = [&] {
      const auto first = at;
      while (one_of("0123456789")) continue;
      return at - first;
    };
    one_of("-");
    const bool zero = text.substr(at).starts_with('0');
    const auto whole = digits();
    if (whole == 0 || (zero && whole > 1)) return 0;
    if (one_of(".") && digits() == 0) return 0;
    if (one_of("eE") && (one_of("+-"), digits() == 0)) return 0;
    return at;
  }

  void escape(std::string& result) {
    if (at_end()) fail("the string does not end");
    const char c = take(1)[0];
    static constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
    if (const auto i = from.find(c); i != std::string_view::npos) {
      result += to[i];
      return;
    }
    if (c != 'u') fail("an unknown escape in a string");
    std::uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00) {  // the first half of a surrogate pair
      if (!rest().starts_with("\\u")) fail("half of a surrogate pair");
      take(2);
      const std::uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      fail("half of a surrogate pair");
    }
    append_utf8(result, code);
  }

  std::uint32_t hex4() {
    if (rest().size() < 4) fail("the string does not end");
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const auto digit = std::string_view{"0123456789abcdefABCDEF"}.find(rest()[0]);
      if (digit == std::string_view::npos) fail("expected four hexadecimal digits");
      code = code * 16 + static_cast<std::uint32_t>(digit < 16 ? digit : digit - 6);
      take(1);
    }
    return code;
  }

  static void append_utf8(std::string& result, std::uint32_t code) {
    const auto push = [&](std::uint32_t byte) { result += static_cast<char>(byte); };
    if (code < 0x80) return push(code);
    if (code < 0x800) {
      push(0xC0 | (code >> 6));
    } else {
      if (code < 0x10000) {
        push(0xE0 | (code >> 12));
      } else {
        push(0xF0 | (code >> 18));
        push(0x80 | ((code >> 12) & 0x3F));
      }
      push(0x80 | ((code >> 6) & 0x3F));
    }
    push(0x80 | (code & 0x3F));
  }
};

}  // namespace replicator::io::detail
