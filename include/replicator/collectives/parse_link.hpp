// SPDX-License-Identifier: Apache-2.0
// Parses links written in flags: "12.5GB/s,2us" is a bandwidth and a latency.
#pragma once

#include <charconv>
#include <cmath>
#include <replicator/collectives/topology.hpp>
#include <replicator/core/error.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

// Defaults where nothing is given or measured: the link between the devices of a host, and the bytes that a device reduces
// per microsecond.
inline constexpr Link common_host_link{1, 20000};
inline constexpr double common_reduction = 10000;

// Parses a number and a unit of the table, "12.5GB/s". Throws BuildError with `example` in its sentence.
inline double parse_quantity(const std::string& flag, std::string_view text, const std::vector<std::pair<std::string_view, double>>& units,
                             const char* example) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error == std::errc{} && value >= 0)
    for (const auto& [name, factor] : units)
      if (unit == name && std::isfinite(value * factor)) return value * factor;
  throw BuildError{flag + " has \"" + std::string{text} + "\": say " + example};
}

// Returns bytes per microsecond. Throws BuildError for 0 and for what parse_quantity refuses.
inline double parse_bandwidth(const std::string& flag, std::string_view text) {
  const double result =
      parse_quantity(flag, text, {{"GB/s", 1e3}, {"MB/s", 1}, {"Gbit/s", 125}, {"Mbit/s", 0.125}}, "12.5GB/s, 100MB/s or 10Gbit/s");
  if (result == 0) throw BuildError{flag + " has \"" + std::string{text} + "\": a bandwidth is more than 0"};
  return result;
}

// Returns microseconds. Throws BuildError for what parse_quantity refuses.
inline double parse_duration(const std::string& flag, std::string_view text) {
  return parse_quantity(flag, text, {{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"ns", 1e-3}}, "2us, 0.5ms or 1s");
}

// Parses "BANDWIDTH,LATENCY"; the bandwidth is that of each direction. Throws BuildError for anything else.
inline Link parse_link(const std::string& flag, const std::string& text) {
  const auto comma = text.find(',');
  if (comma == std::string::npos) throw BuildError{flag + " is \"" + text + "\": say bandwidth and latency, 12.5GB/s,2us"};
  return {parse_duration(flag, std::string_view{text}.substr(comma + 1)), parse_bandwidth(flag, std::string_view{text}.substr(0, comma))};
}

}  // namespace replicator::detail::collectives
