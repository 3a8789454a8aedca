// SPDX-License-Identifier: Apache-2.0
// What the engines ask about programs and steps: speed limits, explanations, plans, traces, stragglers. The answers are
// written in headers of their own, which only one file of a program must include (assembly/everything.hpp does). They
// are templates so that these headers can be a unit of replicator::compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/devices/device_kind.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/executable_cache.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/see/arrival_trace.hpp>
#include <replicator/runtime/see/machine_figures.hpp>
#include <replicator/runtime/see/trace.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

// --- calibrate.hpp, explain.hpp, copies_text.hpp, capture_text.hpp: the parts of explain() ---------------------------
// Measures this machine, with as many OpenMP threads as the calling thread has set:
//
// - `flops` by the best kernel for a product of float32 matrices of 512 x 512;
// - `memory_bytes` by a copy of 32 MiB, where reads and writes both count.
//
// Returns false for kinds of device that do not compute on the host. Then nothing is measured and `figures` do not
// change.
template <class = void>
bool calibrate(ExecutableCache& cache, DeviceKind kind, MachineFigures& figures);

// The results of calibrate(), in words.
template <class = void>
std::string limits_text(DeviceKind kind, const MachineFigures& figures, bool measured);

// The collectives and the most expensive nodes. `trace` may be null or empty; then the text has no measured times.
template <class = void>
std::string explain(const Resolution& resolution, const Program& program, const DeviceTrace* trace, const ExplainOptions& options);

// The copies between the host's memory and the device's. Empty if the device computes on host memory.
template <class = void>
std::string copies_text(const Program& program);

// Which instructions are captured. Empty for kinds of device that cannot capture.
template <class = void>
std::string capture_text(const Resolution& resolution, const Program& program);

// --- plan_json.hpp ---------------------------------------------------------------------------------------------------
// One process's part of a plan. The referenced objects outlive the call.
struct PlanView {
  int process = 0;
  int first_replica = 0;
  const Resolution& resolution;
  std::span<const Program> programs;        // by device
  const std::vector<std::string>& devices;  // "cpu:0"
  const VariableStore& variables;
};

// One process's part of the plan, as JSON.
template <class = void>
std::string plan_part(const PlanView& view);

// The whole plan, from the parts of all processes. `number`: the number of the replicated step in its Replicator.
template <class = void>
std::string plan_json(const std::vector<std::string>& parts, std::size_t number = 0);

// --- trace_json.hpp --------------------------------------------------------------------------------------------------
// Maps a time of this process to the common clock. It interpolates linearly between two measurements, because clocks
// drift.
struct TraceClock {
  std::int64_t first_time = 0, first_offset = 0;
  std::int64_t last_time = 0, last_offset = 0;
  std::int64_t uncertainty = 0;

  std::int64_t operator()(std::int64_t time) const {
    const auto span = static_cast<double>(last_time - first_time);
    const double part = span > 0 ? static_cast<double>(time - first_time) / span : 0;
    return time + first_offset + static_cast<std::int64_t>(part * static_cast<double>(last_offset - first_offset));
  }
};

// The records of one process, with traces for each compiled step.
struct ProcessTrace {
  int process = 0;
  std::string name;                                              // "process 2 (pid 4711 on host-a)"
  std::vector<std::string> devices;                              // "cpu:0"
  std::vector<std::vector<std::shared_ptr<DeviceTrace>>> steps;  // [compiled step][device]
  std::vector<std::shared_ptr<InputTrace>> inputs;
  TraceClock clock;
};

// The events of one process, for trace_file().
template <class = void>
std::string trace_events(const ProcessTrace& trace);

// The text of a trace file: the events of several processes, and the uncertainty of each clock in nanoseconds.
template <class = void>
std::string trace_file(const std::vector<std::string>& events, const std::vector<std::int64_t>& uncertainties);

// --- straggler_report.hpp --------------------------------------------------------------------------------------------
// The lateness of each device for each collective, counted from the first device that started it; then over all
// collectives. **All times must be of one clock.** Collectives of a single device are left out.
template <class = void>
std::string arrival_summary(const std::vector<Arrival>& arrivals, const std::vector<std::pair<std::uint64_t, std::string>>& names);

}  // namespace replicator::detail
