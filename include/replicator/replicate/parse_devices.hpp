// SPDX-License-Identifier: Apache-2.0
// The code of device_name.hpp: the parser of --devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/replicate/device_name.hpp>

namespace replicator {

namespace detail {
inline constexpr std::int64_t most_devices = 4096;
}  // namespace detail

template <class>
std::vector<DeviceName> parse_devices(std::string_view text) {
  const auto bad = [&](std::string_view item) {
    return BuildError{"--devices has \"" + std::string{item} +
                      "\": name devices as cpu:0, cpu:0-3, cuda:0 or cuda:0x4 (one GPU as four), separated by commas"};
  };
  std::vector<DeviceName> devices;
  while (!text.empty()) {
    const auto comma = text.find(',');
    if (comma + 1 == text.size()) throw bad(text);
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const auto colon = item.find(':');
    const auto kind = item.substr(0, colon);
    if (colon == std::string_view::npos || (kind != "cpu" && kind != "cuda")) throw bad(item);
    const auto times = kind == "cuda" ? item.find('x', colon) : std::string_view::npos;
    const auto range = item.substr(colon + 1, times == std::string_view::npos ? times : times - colon - 1);
    const auto dash = range.find('-');
    const auto first = detail::whole_number<int>(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : detail::whole_number<int>(range.substr(dash + 1), first.value_or(0));
    const auto parts = times == std::string_view::npos ? 1 : detail::whole_number<int>(item.substr(times + 1), 1);
    if (!first || !last || !parts) throw bad(item);
    const auto count = (std::int64_t{*last} - *first + 1) * *parts;
    if (count > detail::most_devices - static_cast<std::int64_t>(devices.size()))
      throw BuildError{"--devices has \"" + std::string{item} + "\": a process has at most " + std::to_string(detail::most_devices) + " devices"};
    for (int n = 0; n < count; ++n) {
      const DeviceName device{kind == "cpu" ? DeviceKind::cpu : DeviceKind::cuda, *first + n / *parts, n % *parts};
      for (const auto& known : devices)
        if (known == device) throw BuildError{"--devices names " + device.text() + " twice"};
      devices.push_back(device);
    }
  }
  if (devices.empty()) throw BuildError{"--devices names no device: try cpu:0"};
  return devices;
}

}  // namespace replicator
