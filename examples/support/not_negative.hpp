// SPDX-License-Identifier: Apache-2.0
// What options of the examples take that may be any number from 0 on.
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>

namespace examples {

// For CLI::Option::check: empty, or what is wrong. CLI::NonNegativeNumber lets "nan" and "inf" pass.
inline std::string not_negative(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool number = !text.empty() && *end == '\0';
  return number && std::isfinite(value) && value >= 0 ? "" : "\"" + text + "\" is no number from 0 on";
}

}  // namespace examples
