// SPDX-License-Identifier: Apache-2.0
// Checks the values of a Deployment that a program has set itself. The rules and messages are those of the flags.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <replicator/collectives/parse_link.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/deployment_flags.hpp>

namespace replicator::detail {

// The same limit as for flags. Clocks count nanoseconds in 63 bits, so a much longer time would overflow.
inline constexpr std::int64_t most_seconds = std::numeric_limits<int>::max();

inline void require_number(std::string_view flag, std::int64_t value, std::int64_t lowest,
                           std::int64_t highest = std::numeric_limits<std::int64_t>::max()) {
  parse_number(flag, std::to_string(value), lowest, highest);
}
inline void require_seconds(std::string_view flag, std::chrono::seconds value, std::int64_t lowest) {
  require_number(flag, value.count(), lowest, most_seconds);
}
inline void require_window(std::string_view flag, const TraceWindow& steps) {
  parse_steps(flag, std::to_string(steps.first) + ":" + std::to_string(steps.end));
}
inline void require_distinct(const std::vector<DeviceName>& devices) {
  std::set<std::tuple<DeviceKind, int, int>> known;
  for (const auto& device : devices) {
    if (device.index < 0 || device.part < 0)
      throw BuildError{"--devices has \"" + device.text() + "\": devices are counted from 0, as in cpu:0"};
    if (!known.emplace(device.kind, device.index, device.part).second) throw BuildError{"--devices names " + device.text() + " twice"};
  }
}

// Throws BuildError with the flag of the first invalid value. Three checks are made elsewhere, at the place of use:
// that the devices exist, that there are enough replicas, and that schedules and files are valid.
inline void require_valid(const Deployment& deployment) {
  using detail::require_number;
  require_number("--replicas", deployment.replicas, 1);
  detail::require_distinct(deployment.devices);
  require_number("--logical-devices", deployment.logical_devices, 1);
  detail::transport_name("--transport", deployment.transport);
  if (!deployment.link.empty()) collectives::parse_link("--link", deployment.link);
  if (!deployment.link.empty() && !deployment.topology.empty())
    throw BuildError{"--link and --topology both say what connects the devices: give one of them"};
  require_number("--sync-group", deployment.sync_group, 1);
  if (deployment.staleness) require_number("--staleness", *deployment.staleness, 0);
  if (deployment.regime == Regime::synchronous) {
    const char* flag = deployment.staleness         ? "--staleness"
                       : deployment.sync_group != 1 ? "--sync-group"
                                                    : nullptr;
    if (flag) throw BuildError{std::string{flag} + " was given, but the regime is synchronous: it goes with --regime async"};
  }
  require_number("--threads-per-device", deployment.threads_per_device, 1);
  require_number("--bucket-bytes", deployment.bucket_bytes, 1);
  require_number("--recompute-bytes", deployment.recompute_bytes, 0);
  require_number("--memory-limit", deployment.memory_limit, 0);
  detail::require_seconds("--deadline", deployment.deadline, 0);
  detail::require_seconds("--connect-deadline", deployment.connect_deadline, 1);
  require_number("Deployment::late", deployment.late.count(), 0, 1000 * detail::most_seconds);
  require_number("--input-threads", deployment.input_threads, 0);
  require_number("--keep", deployment.checkpoint.keep, 1);
  const auto& steps = deployment.see.trace_steps;
  detail::trace_steps("--trace-steps", std::to_string(steps.first) + ":" + std::to_string(steps.end));
  if (steps != TraceWindow{} && !deployment.see.times())
    throw BuildError{"--trace-steps was given without --trace or --timing, so nothing would be timed: give one of them too"};
  if (const auto& record = deployment.see.record) {
    require_number("--record: replica", record->replica, 0);
    detail::require_window("--record: steps", record->steps);
  }
}

}  // namespace replicator::detail
