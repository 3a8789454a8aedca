// SPDX-License-Identifier: Apache-2.0
// Formats times, counts and percentages for people.
#pragma once

#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string>

namespace replicator::detail {

// "3.2 us", "12 ms", "1.43 s"
inline std::string seconds_text(double seconds) {
  char text[32];
  const double factor = seconds < 1e-3 ? 1e6
                        : seconds < 1  ? 1e3
                                       : 1;
  std::snprintf(text, sizeof text, "%.3g %s", seconds * factor, factor == 1e6 ? "us" : factor == 1e3 ? "ms"
                                                                                                     : "s");
  return text;
}
// "12.3 G", to be followed by a unit
inline std::string large_text(double number) {
  constexpr const char* units[] = {"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  while (number >= 1000 && unit + 1 < std::size(units)) number /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", number, units[unit]);
  return text;
}
inline std::string percent_text(double part) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f %%", part * 100);
  return text;
}

}  // namespace replicator::detail
