// SPDX-License-Identifier: Apache-2.0
// Reads the very steps of a trace, device by device, with their jitter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <replicator/collectives/schedule_json.hpp>
#include <replicator/runtime/see/jitter.hpp>

#include "simulated_step.hpp"

namespace replicator::tools {

using namespace replicator::detail;

// One step as measured: each device's start and the duration of its kernels.
struct TracedStep {
  std::uint64_t number = 0;
  std::vector<std::vector<collectives::SimulatedAction>> actions;  // by rank
  double microseconds = 0;                                         // from the first device's start to the last device's end
  double computed = 0;                                             // of the device that computed longest
};

struct TracedRun {
  int hosts = 1, devices_per_host = 1, replicas = 0;
  std::vector<DeviceStep::Use> collectives;
  std::vector<TracedStep> steps;
};

namespace detail {

// The trace of one device in one step.
struct TracedDevice {
  double begin = 0, end = 0;
  std::map<std::size_t, double> times;  // by instruction
};

// [step][rank]
inline std::map<std::uint64_t, std::vector<TracedDevice>> traced_devices(const json& trace, const json& plan, const TracedRun& run) {
  std::map<std::uint64_t, std::vector<TracedDevice>> steps;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const json& args = event.at("args");
    const bool whole_step = event.at("cat") == "step";
    if (!whole_step && (!args.contains("instruction") || args.at("plan") != plan.at("number"))) continue;
    const auto process = whole(event.at("pid"), "a process of the trace", 0, run.hosts - 1);
    const auto device = whole(event.at("tid"), "a device of the trace", 0, run.devices_per_host - 1);
    auto& ranks = steps[static_cast<std::uint64_t>(whole(args.at("step"), "a step of the trace", 0, std::int64_t{1} << 62))];
    ranks.resize(static_cast<std::size_t>(run.hosts * run.devices_per_host));
    auto& traced = ranks[static_cast<std::size_t>(process * run.devices_per_host + device)];
    const double begin = event.at("ts").get<double>(), duration = amount(event.at("dur"), "a duration of the trace");
    if (whole_step) {
      traced.begin = begin;
      traced.end = begin + duration;
    } else {
      traced.times[static_cast<std::size_t>(whole(args.at("instruction"), "an instruction of the trace", 0, std::int64_t{1} << 62))] = duration;
    }
  }
  return steps;
}

inline double computed(const std::vector<collectives::SimulatedAction>& actions) {
  double sum = 0;
  for (const auto& action : actions) sum += action.microseconds;
  return sum;
}

inline TracedStep traced_step(std::uint64_t number, const std::vector<TracedDevice>& devices, const json& processes, const TracedRun& run) {
  TracedStep step{number, {}, 0, 0};
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const auto& device : devices) {
    begin = std::min(begin, device.begin);
    end = std::max(end, device.end);
  }
  const auto each = static_cast<std::size_t>(run.devices_per_host);
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto& times = devices[rank].times;
    const auto& device = processes.at(rank / each).at("devices").at(rank % each);
    auto actions = read_actions(device.at("instructions"), run.collectives.size(), [&](std::size_t i) {
      const auto found = times.find(i);
      if (found == times.end())
        throw DataError{"the trace has no instruction " + std::to_string(i) + " of rank " + std::to_string(rank) + " in step " + std::to_string(number) +
                        ", which the plan has: give the two files that one run wrote by --plan and --trace"};
      return found->second;
    });
    step.computed = std::max(step.computed, computed(actions));
    actions.insert(actions.begin(), {collectives::SimulatedAction::Kind::compute, 0, devices[rank].begin - begin});
    step.actions.push_back(std::move(actions));
  }
  step.microseconds = end - begin;
  return step;
}

}  // namespace detail

// Reads a run with one replicated step, from its plan and trace.
// Throws as read_step does, and DataError if the processes have different numbers of devices.
inline TracedRun read_run(const nlohmann::json& plan, const nlohmann::json& trace) {
  const auto& processes = detail::require_plan(plan).at("processes");
  TracedRun run;
  run.hosts = static_cast<int>(processes.size());
  run.devices_per_host = static_cast<int>(processes.at(0).at("devices").size());
  const auto& first = processes.at(0).at("devices").at(0);
  for (const auto& use : first.at("collectives")) run.collectives.push_back(detail::read_use(use, processes.at(0).at("schedules")));
  for (const auto& process : processes) {
    if (process.at("devices").size() != static_cast<std::size_t>(run.devices_per_host))
      throw DataError{"the processes of the plan differ in their numbers of devices: such a run cannot be simulated as it was"};
    for (const auto& device : process.at("devices")) run.replicas += static_cast<int>(device.at("replicas").size());
  }
  for (const auto& traced : detail::traced_devices(trace, plan, run)) run.steps.push_back(detail::traced_step(traced.first, traced.second, processes, run));
  if (run.steps.empty()) throw DataError{"the trace has no steps: give the files of one run with --plan and --trace"};
  return run;
}

// The first collective with another schedule in the plan than was chosen, with both; empty if there is none.
inline std::string done_otherwise(const nlohmann::json& plan, const TracedRun& run, const ChosenCollectives& chosen) {
  const auto& process = plan.at("processes").at(0);
  const auto& uses = process.at("devices").at(0).at("collectives");
  std::map<const collectives::Schedule*, nlohmann::json> texts;
  for (std::size_t c = 0; c < chosen.uses.size(); ++c) {
    auto& text = texts[chosen.uses[c].schedule];
    if (text.is_null()) {
      JsonWriter writer;
      collectives::add_json(writer, *chosen.uses[c].schedule);
      text = nlohmann::json::parse(writer.text());
    }
    const auto& ran = process.at("schedules").at(uses.at(c).at("schedule").get<std::size_t>());
    if (text != ran)
      return run.collectives[c].text + " by " + ran.at("name").get<std::string>() + ", but " + text.at("name").get<std::string>() + " would be simulated";
  }
  return {};
}

// The jitter of the run's first device.
inline MeasuredJitter jitter_of(const TracedRun& run) {
  std::vector<std::vector<double>> times;
  for (const auto& step : run.steps) {
    auto& row = times.emplace_back();
    for (std::size_t i = 1; i < step.actions[0].size(); ++i) row.push_back(step.actions[0][i].microseconds);  // skips the action for its start
  }
  return measure_jitter(times);
}

}  // namespace replicator::tools
