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

#include <replicator/core/hash.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/see/trace_ring.hpp>
#include <replicator/runtime/watch.hpp>

namespace replicator::detail {

// The start of a collective by a device of a process.
struct Arrival {
  std::uint64_t collective = 0;  // digest of its text and the number of the compiled step
  std::uint64_t step = 0;
  std::int64_t time = 0;  // nanoseconds
  std::uint32_t process = 0, device = 0;
};

// The arrivals of one device in one compiled step, for the last 512 steps. Allocates nothing in a step.
class ArrivalTrace final : public Watch {
 public:
  ArrivalTrace(const Program& program, std::uint32_t compiled, std::uint32_t process, std::uint32_t device)
      : arrivals_{512 * program.collectives.size()}, process_{process}, device_{device} {
    for (const auto& use : program.collectives) {
      Hasher hasher;
      hasher.word(compiled);
      hasher.text(use.text);
      names_.emplace_back(hasher.result().low, use.text);
    }
    for (const auto& instruction : program.code)
      starts_.push_back(instruction.kind == Instruction::Kind::start ? instruction.collective : Instruction::none);
  }

  void begin(const Program&, std::uint64_t step) override { step_ = step; }
  void before(std::uint32_t instruction) override {
    if (const auto collective = starts_[instruction]; collective != Instruction::none)
      arrivals_.push({names_[collective].first, step_, trace_clock(), process_, device_});
  }
  void after(std::uint32_t) override {}
  void finished(std::uint32_t) override {}
  void end() override {}

  const TraceRing<Arrival>& arrivals() const { return arrivals_; }
  // For each collective, its number in arrivals and its text.
  const std::vector<std::pair<std::uint64_t, std::string>>& names() const { return names_; }

 private:
  TraceRing<Arrival> arrivals_;
  std::vector<std::pair<std::uint64_t, std::string>> names_;
  std::vector<std::uint32_t> starts_;  // by instruction
  std::uint32_t process_, device_;
  std::uint64_t step_ = 0;
};

inline double quantile(std::vector<double>& values, double part) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

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

// The lateness of each device for each collective, counted from the first device that started it; then over all
// collectives. **All times must be of one clock.** Collectives of a single device are left out.
template <class = void>
std::string arrival_summary(const std::vector<Arrival>& arrivals, const std::vector<std::pair<std::uint64_t, std::string>>& names) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Arrival>> arrivals_of;  // collective, step
  for (const auto& arrival : arrivals) arrivals_of[{arrival.collective, arrival.step}].push_back(arrival);
  std::map<std::uint64_t, std::map<detail::Device, detail::Lateness>> late;
  std::map<detail::Device, detail::Lateness> all;
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
    for (const auto& [device, lateness] : found->second) text += detail::lateness_text(device, lateness);
  }
  text += "over all collectives, behind the first device:\n";
  for (const auto& [device, lateness] : all) text += detail::lateness_text(device, lateness);
  return text;
}

}  // namespace replicator::detail
