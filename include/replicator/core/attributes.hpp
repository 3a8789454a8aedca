// SPDX-License-Identifier: Apache-2.0
// Visitors over the attributes of a struct. The struct declares them once, in `describe(visitor)`:
//   template <class V> void describe(V& v) const { v("stride", stride); v("padding", padding); }
// Hash, equality, printing and the fingerprint between hosts all use it.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/core/shape.hpp>

namespace replicator::detail {

class AttributeHasher {
 public:
  explicit AttributeHasher(Hasher& hasher) : hasher_{hasher} {}

  template <class T>
  void operator()(std::string_view, const T& value) {
    add(value);
  }

 private:
  template <class T>
  void add(const T& value) {
    if constexpr (std::is_enum_v<T> || std::integral<T>) hasher_.word(static_cast<std::uint64_t>(value));
    else if constexpr (std::floating_point<T>) hasher_.word(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    else if constexpr (std::convertible_to<const T&, std::string_view>) hasher_.text(value);
    else if constexpr (requires { value.describe(*this); }) value.describe(*this);
    else {
      hasher_.word(static_cast<std::uint64_t>(value.end() - value.begin()));
      for (const auto& item : value) add(item);
    }
  }

  Hasher& hasher_;
};

// "stride=[2, 2], groups=1"
class AttributePrinter {
 public:
  template <class T>
  void operator()(std::string_view name, const T& value) {
    if (!text_.empty()) text_ += ", ";
    text_ += name;
    text_ += '=';
    add(value);
  }
  const std::string& text() const { return text_; }

 private:
  template <class T>
  void add(const T& value) {
    if constexpr (std::same_as<T, bool>) text_ += value ? "true" : "false";
    else if constexpr (requires { name_of(value); }) text_ += name_of(value);
    else if constexpr (std::is_enum_v<T>) text_ += std::to_string(static_cast<std::int64_t>(value));
    else if constexpr (std::integral<T> || std::floating_point<T>) text_ += std::to_string(value);
    else if constexpr (std::convertible_to<const T&, std::string_view>) text_ += value;
    else if constexpr (requires { value.text(); }) text_ += value.text();
    else {
      text_ += '[';
      bool first = true;
      for (const auto& item : value) {
        if (!first) text_ += ", ";
        first = false;
        add(item);
      }
      text_ += ']';
    }
  }

  std::string text_;
};

}  // namespace replicator::detail
