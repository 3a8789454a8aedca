// SPDX-License-Identifier: Apache-2.0
// Whole numbers that users write, in flags and in variables of the environment.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <replicator/core/error.hpp>

namespace replicator::detail {

// All of a text as a decimal number from `lowest` to `highest`; nothing where it is anything else.
template <class T>
std::optional<T> whole_number(std::string_view text, T lowest = 0, T highest = std::numeric_limits<T>::max()) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < lowest || value > highest) return std::nullopt;
  return value;
}

// The same of what a user wrote; `what` names it: "--replicas", "the variable RANK".
// Throws BuildError `<what> is "<text>": it must be a whole number ...`.
inline std::int64_t parse_number(std::string_view what, std::string_view text, std::int64_t lowest,
                                 std::int64_t highest = std::numeric_limits<int>::max()) {
  if (const auto value = whole_number(text, lowest, highest)) return *value;
  std::string range = " from " + std::to_string(lowest) + " to " + std::to_string(highest);
  // The limit of a type is of interest to those alone who went beyond it.
  if (highest >= std::numeric_limits<int>::max())
    range = ", at least " + std::to_string(lowest) +
            (whole_number(text, lowest) ? " and at most " + std::to_string(highest) : std::string{});
  throw BuildError{std::string{what} + " is \"" + std::string{text} + "\": it must be a whole number" + range};
}

// "8GiB", "512MiB", "64KiB", "123456"; at least 1. Throws BuildError for anything else.
inline std::int64_t parse_bytes(std::string_view what, std::string_view text) {
  std::int64_t unit = 1;
  for (const auto& [suffix, shift] : {std::pair<std::string_view, int>{"KiB", 10}, {"MiB", 20}, {"GiB", 30}})
    if (text.ends_with(suffix)) unit = std::int64_t{1} << shift;
  const std::string_view number = unit == 1 ? text : text.substr(0, text.size() - 3);
  if (const auto value = whole_number<std::int64_t>(number, 1, std::numeric_limits<std::int64_t>::max() / unit)) return *value * unit;
  throw BuildError{std::string{what} + " is \"" + std::string{text} +
                   "\": it must be a whole number of bytes, KiB, MiB or GiB: 8GiB, 512MiB"};
}

}  // namespace replicator::detail
