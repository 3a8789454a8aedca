// SPDX-License-Identifier: Apache-2.0
// Finds the first difference between two arrays of one type, for messages.
#pragma once

#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include <replicator/core/array.hpp>

namespace replicator::detail {

struct BitDifference {
  std::int64_t first = 0;  // index of the element, row-major
  std::int64_t count = 0;  // number of elements that differ
  std::string a, b;        // the element in each array: "0.25 (0x3e800000)"
};

// The shortest decimal text that reads back as the same value, then the bits.
template <class T>
std::string text_with_bits(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  char decimal[40] = {};
  if constexpr (std::is_same_v<T, bool>) decimal[0] = std::to_integer<int>(*element) ? '1' : '0';
  else if constexpr (std::is_arithmetic_v<T>) std::to_chars(decimal, decimal + sizeof decimal - 1, value);
  else std::to_chars(decimal, decimal + sizeof decimal - 1, static_cast<float>(value));
  std::string bits = "0x";
  for (std::size_t i = sizeof(T); i-- > 0;)
    for (const int shift : {4, 0}) bits += "0123456789abcdef"[(std::to_integer<unsigned>(element[i]) >> shift) & 15];
  return std::string{decimal} + " (" + bits + ")";
}

// Nothing if all bits are equal. The arrays have one type.
inline std::optional<BitDifference> first_difference(const AnyArray& a, const AnyArray& b) {
  BitDifference result;
  const auto size = size_of(a.dtype());
  for (std::int64_t i = 0; i < a.shape().elements(); ++i) {
    const auto at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(a.data() + at, b.data() + at, size) == 0) continue;
    if (result.count++ > 0) continue;
    result.first = i;
    visit_dtype(a.dtype(), [&]<class T>() {
      result.a = detail::text_with_bits<T>(a.data() + at);
      result.b = detail::text_with_bits<T>(b.data() + at);
    });
  }
  if (result.count == 0) return std::nullopt;
  return result;
}

}  // namespace replicator::detail
