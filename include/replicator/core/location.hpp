// SPDX-License-Identifier: Apache-2.0
// A source position in the user's program, for error messages.
#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace replicator {

// Cheap to copy. `file` points to static storage.
struct Location {
  const char* file = "";
  std::uint32_t line = 0;

  constexpr Location() = default;
  constexpr Location(const std::source_location& where) : file{where.file_name()}, line{where.line()} {}  // NOLINT: implicit on purpose
  constexpr Location(const char* file_name, std::uint32_t line_number) : file{file_name}, line{line_number} {}

  // "train.cpp:31", without the folders.
  template <class = void>
  std::string text() const;
};

template <class>
std::string Location::text() const {
  std::string_view name{file};
  if (const auto slash = name.rfind('/'); slash != std::string_view::npos) name.remove_prefix(slash + 1);
  return name.empty() ? std::string{"<unknown>"} : std::string{name} + ":" + std::to_string(line);
}

namespace detail {
// "replica 2: all_reduce at gan.cpp:41": how an error names the call that was refused while a graph was built.
template <class = void>
std::string call_text(int replica, std::string_view call, Location where) {
  return "replica " + std::to_string(replica) + ": " + std::string{call} + " at " + where.text();
}

// Whether the text of an error names a source line, as in "train.cpp:31".
template <class = void>
bool names_a_line(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (auto colon = text.find(':'); colon != std::string_view::npos; colon = text.find(':', colon + 1)) {
    auto first = colon;  // of the file's ending
    while (first > 0 && letter(text[first - 1])) --first;
    if (first > 0 && first < colon && text[first - 1] == '.' && colon + 1 < text.size() && digit(text[colon + 1])) return true;
  }
  return false;
}
}  // namespace detail

// A value together with the source line of the call that passes it. Operators cannot take a defaulted argument; a
// parameter of this type still gives them the user's line.
template <class T>
struct located {
  T value;
  Location where;

  template <class U>
  requires std::convertible_to<U&&, T>
  located(U&& u, std::source_location here = std::source_location::current())  // NOLINT: implicit on purpose
      : value(std::forward<U>(u)), where{here} {}
};

}  // namespace replicator
