// SPDX-License-Identifier: Apache-2.0
// Parses whole numbers in flags and environment variables.
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

// Parses the whole text as a decimal number from `lowest` to `highest`. Returns nothing for any other text.
template <class T>
std::optional<T> whole_number(std::string_view text, T lowest = 0, T highest = std::numeric_limits<T>::max()) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < lowest || value > highest) return std::nullopt;
  return value;
}

// The same, with an error. `what` names the text for the message: "--replicas", "the variable RANK".
// Throws BuildError `<what> is "<text>": it must be a whole number ...`.
template <class = void>
std::int64_t parse_number(std::string_view what, std::string_view text, std::int64_t lowest,
                          std::int64_t highest = std::numeric_limits<int>::max()) {
  if (const auto value = whole_number(text, lowest, highest)) return *value;
  std::string range = " from " + std::to_string(lowest) + " to " + std::to_string(highest);
  // The limit of the type is shown only to a user who exceeded it.
  if (highest >= std::numeric_limits<int>::max()) {
    std::int64_t parsed = 0;
    const bool beyond = !text.starts_with('-') && std::from_chars(text.data(), text.data() + text.size(), parsed).ec == std::errc::result_out_of_range;
    range = ", at least " + std::to_string(lowest) + (beyond || whole_number(text, lowest) ? " and at most " + std::to_string(highest) : std::string{});
  }
  throw BuildError{std::string{what} + " is \"" + std::string{text} + "\": it must be a whole number" + range};
}

// Parses "8GiB", "512MiB", "64KiB" or "123456" into bytes, at least 1. Throws BuildError for anything else.
template <class = void>
std::int64_t parse_bytes(std::string_view what, std::string_view text) {
  std::int64_t unit = 1;
  for (const auto& [suffix, shift] : {std::pair<std::string_view, int>{"KiB", 10}, {"MiB", 20}, {"GiB", 30}})
    if (text.ends_with(suffix)) unit = std::int64_t{1} << shift;
  const std::string_view number = unit == 1 ? text : text.substr(0, text.size() - 3);
  if (const auto value = whole_number<std::int64_t>(number, 1, std::numeric_limits<std::int64_t>::max() / unit)) return *value * unit;
  throw BuildError{std::string{what} + " is \"" + std::string{text} +
                   "\": it must be a whole number of bytes, KiB, MiB or GiB: 8GiB, 512MiB"};
}

}  // namespace replicator::detail
