// SPDX-License-Identifier: Apache-2.0
// Writes JSON text.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <replicator/core/printable.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace replicator::detail {

// `text` as a quoted JSON string. Bytes that are not UTF-8 become U+FFFD.
inline std::string json_string(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string result = "\"";
  while (!text.empty()) {
    const auto length = detail::utf8_length(text);
    const char c = text[0];
    if (length == 0) {
      result += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += "\\u00";
      result += digits[c >> 4];
      result += digits[c & 15];
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result + '"';
}

// Builds JSON text. The writer inserts commas and brackets. The caller must alternate keys and values. Example:
//   json.object([&] { json.member("name", "conv1"); json.key("shape").array([&] { json.value(3); }); });
class JsonWriter {
 public:
  template <class Body>
  void object(Body&& body) {
    group('{', '}', body);
  }
  template <class Body>
  void array(Body&& body) {
    group('[', ']', body);
  }
  JsonWriter& key(std::string_view name) {
    separate();
    text_ += json_string(name) + ":";
    comma_ = false;
    return *this;
  }
  void value(std::string_view text) { raw(json_string(text)); }
  void value(const char* text) { value(std::string_view{text}); }
  void value(bool truth) { raw(truth ? "true" : "false"); }
  void value(std::integral auto number) { raw(std::to_string(number)); }
  // Ten digits, with a decimal point in any locale. JSON has no infinity and no NaN: they become null.
  void value(double number) {
    if (!std::isfinite(number)) return raw("null");
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, number, std::chars_format::general, 10).ptr;
    raw({text, static_cast<std::size_t>(end - text)});
  }
  template <class T>
  void member(std::string_view name, const T& what) {
    key(name).value(what);
  }
  template <class Range>
  void values(std::string_view name, const Range& range) {
    key(name).array([&] {
      for (const auto& each : range) value(each);
    });
  }
  // Appends text that is JSON already.
  void raw(std::string_view json) {
    separate();
    text_ += json;
    comma_ = true;
  }
  // Starts a new line before the next value, to make long texts readable.
  void new_line() {
    if (std::exchange(comma_, false)) text_ += ',';
    text_ += '\n';
  }
  const std::string& text() const { return text_; }

 private:
  template <class Body>
  void group(char open, char close, Body& body) {
    separate();
    text_ += open;
    comma_ = false;
    body();
    text_ += close;
    comma_ = true;
  }
  void separate() {
    if (comma_) text_ += ',';
  }

  std::string text_;
  bool comma_ = false;
};

}  // namespace replicator::detail
