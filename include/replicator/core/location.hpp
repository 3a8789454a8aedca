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
