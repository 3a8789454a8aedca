// SPDX-License-Identifier: Apache-2.0
// The straggler report: which devices start collectives late, and by how much. One slow device delays all others in
// every step. After IBM's report of slow learners in distributed training.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/quantile.hpp>
#include <replicator/runtime/see/reports.hpp>

namespace replicator::detail {

struct Lateness {
  std::vector<double> microseconds;  // after the first device
  std::size_t last = 0;
};
using Device = std::pair<std::uint32_t, std::uint32_t>;  // process, device

inline std::string lateness_text(const Device& device, Lateness late) {
  char text[160];
  const auto times = late.microseconds.size();
  std::snprintf(text, sizeof text,
                "  process %u, device %u: %.1f us at the median, %.1f us at 95 %%; the last in %.0f %% of %zu times\n",
                device.first, device.second, quantile(late.microseconds, 0.5), quantile(late.microseconds, 0.95),
                100.0 * static_cast<double>(late.last) / static_cast<double>(times), times);
  return text;
}

template <class>
std::string arrival_summary(const std::vector<Arrival>& arrivals, const std::vector<std::pair<std::uint64_t, std::string>>& names) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Arrival>> arrivals_of;  // collective, step
  for (const auto& arrival : arrivals) arrivals_of[{arrival.collective, arrival.step}].push_back(arrival);
  std::map<std::uint64_t, std::map<Device, Lateness>> late;
  std::map<Device, Lateness> all;
  for (auto& [key, present] : arrivals_of) {
    if (present.size() < 2) continue;
    const auto [first, last] = std::minmax_element(present.begin(), present.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
    for (const auto& arrival : present)
      for (auto* lateness : {&late[key.first][{arrival.process, arrival.device}], &all[{arrival.process, arrival.device}]}) {
        lateness->microseconds.push_back(static_cast<double>(arrival.time - first->time) * 1e-3);
        lateness->last += &arrival == &*last;
      }
  }
  if (all.empty()) return "no collective had several devices to wait for\n";
  std::string text;
  for (const auto& [collective, name] : names) {
    const auto found = late.find(collective);
    if (found == late.end()) continue;
    text += name + ", behind the first device:\n";
    for (const auto& [device, lateness] : found->second) text += lateness_text(device, lateness);
  }
  text += "over all collectives, behind the first device:\n";
  for (const auto& [device, lateness] : all) text += lateness_text(device, lateness);
  return text;
}

}  // namespace replicator::detail
