// SPDX-License-Identifier: Apache-2.0
// Reads a step to simulate: one device's instructions from plan.json, with times from trace.json or by the bytes of the
// operands.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/simulate/run_simulation.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/shape.hpp>

namespace replicator::tools {

using namespace replicator::detail;

// The work of every device of the job in a step.
struct DeviceStep {
  struct Use {
    std::string text;
    collectives::CollectiveSpec spec;
  };
  int replicas = 1;
  std::vector<Use> collectives;
  std::vector<collectives::SimulatedAction> actions;
  double microseconds = 0;  // of all its kernels
};

namespace detail {

using nlohmann::json;

template <class Enum>
Enum by_name(const std::string& name, std::initializer_list<Enum> all) {
  for (const Enum each : all)
    if (name_of(each) == name) return each;
  throw DataError{"the plan has the word \"" + name + "\", which this program does not know: it was written by another version"};
}

// Checks a whole number of the plan or the trace. `what` names it for errors.
inline std::int64_t whole(const json& number, const char* what, std::int64_t lowest, std::int64_t highest) {
  const bool fits = number.is_number_integer() && !(number.is_number_unsigned() && number.get<std::uint64_t>() > std::uint64_t{1} << 62);
  if (!fits || number.get<std::int64_t>() < lowest || number.get<std::int64_t>() > highest)
    throw DataError{std::string{what} + " is " + number.dump() + ": it must be a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest)};
  return number.get<std::int64_t>();
}
// Checks a number of bytes or microseconds.
inline double amount(const json& number, const char* what) {
  constexpr double most = 1e18;
  const double value = number.get<double>();
  if (!(value >= 0) || value > most) throw DataError{std::string{what} + " is " + number.dump() + ": it must be a number from 0 to 1e18"};
  return value;
}

// Microseconds of each instruction of the first device: the median over the steps of a trace.
inline std::vector<double> traced_times(const json& trace, const json& plan, std::size_t instructions) {
  std::vector<std::vector<double>> times(instructions);
  bool any = false;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("pid") != plan.at("processes").at(0).at("process") || event.at("tid") != 0) continue;
    const json& args = event.at("args");
    if (!args.contains("instruction") || args.at("plan") != plan.at("number")) continue;
    const auto instruction = static_cast<std::size_t>(whole(args.at("instruction"), "an instruction of the trace", 0, std::int64_t{1} << 62));
    if (instruction >= instructions)
      throw DataError{"the trace is of another run than the plan: its first device has at least " + std::to_string(instruction + 1) + " instructions, that of the plan has " +
                      std::to_string(instructions) + ": give the two files that one run wrote by --plan and --trace"};
    times[instruction].push_back(amount(event.at("dur"), "a duration of the trace"));
    any = true;
  }
  if (!any) throw DataError{"the trace has no instructions of the plan's first device, so it is of another run: give the two files that one run wrote by --plan and --trace"};
  std::vector<double> result;
  for (auto& each : times) {
    std::sort(each.begin(), each.end());
    result.push_back(each.empty() ? 0 : each[each.size() / 2]);
  }
  return result;
}

inline double bytes_touched(const json& instruction) {
  double bytes = 0;
  for (const char* side : {"inputs", "outputs"})
    if (instruction.contains(side))
      for (const json& operand : instruction.at(side)) bytes += amount(operand.at("bytes"), "the size of an operand of the plan");
  return bytes;
}

inline DeviceStep::Use read_use(const json& use, const json& schedules) {
  using K = CollectiveKind;
  DeviceStep::Use result{use.at("text"), {}};
  const auto last = static_cast<std::int64_t>(schedules.size()) - 1;
  const json& schedule = schedules.at(static_cast<std::size_t>(whole(use.at("schedule"), "the schedule of a collective of the plan", 0, last)));
  if (schedule.contains("groups"))
    throw DataError{result.text + " happens inside groups, which do not fit another number of replicas: simulate a step without them"};
  result.spec.kind = by_name<K>(use.at("kind"), {K::all_reduce, K::all_gather, K::reduce_scatter, K::broadcast, K::all_to_all});
  result.spec.dtype = by_name<DType>(use.at("dtype"), {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8,
                                                       DType::boolean, DType::bfloat16});
  result.spec.elements = whole(use.at("elements"), "the size of a collective of the plan", 0, Shape::max_elements);
  result.spec.root = static_cast<int>(whole(schedule.at("root"), "the root of a collective of the plan", 0, std::numeric_limits<int>::max()));
  result.spec.any_order = schedule.at("any_order");
  return result;
}

}  // namespace detail

namespace detail {

// The actions of a device. `time` gives the duration of each instruction, except start and wait.
template <class Time>
std::vector<collectives::SimulatedAction> read_actions(const json& instructions, std::size_t collectives, Time time) {
  using Kind = collectives::SimulatedAction::Kind;
  std::vector<collectives::SimulatedAction> actions;
  std::vector<int> begun(collectives);  // 1: started, 2: waited for
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const std::string what = instructions[i].at("do");
    if (what == "give" || what == "take")
      throw DataError{"a replica of the plan is spread over several devices: that cannot be simulated, only one device for a replica"};
    const bool starts = what == "start";
    if (starts || what == "wait") {
      const auto last = static_cast<std::int64_t>(begun.size()) - 1;
      const auto collective = static_cast<int>(whole(instructions[i].at("collective"), "the collective of an instruction of the plan", 0, last));
      auto& state = begun[static_cast<std::size_t>(collective)];
      if (state != (starts ? 0 : 1))
        throw DataError{"the plan has \"" + what + "\" of collective " + std::to_string(collective) + " out of order: each is started, then waited for, once"};
      ++state;
      actions.push_back({starts ? Kind::start : Kind::wait, collective, 0});
    } else {
      actions.push_back({Kind::compute, 0, time(i)});
    }
  }
  return actions;
}

inline const json& require_plan(const json& plan) {
  if (plan.value("format", "") != "replicator plan 1") throw DataError{"the plan does not begin with \"replicator plan 1\": give what --plan wrote"};
  return plan;
}

}  // namespace detail

// Reads the first device of a plan. Without a trace (null), `microseconds` (more than 0) is distributed over the
// kernels, by the bytes they touch. With a trace, the measured times are scaled to `microseconds`, unless that is 0.
// Throws DataError for a plan that cannot be simulated, and nlohmann::json::exception for files of another kind.
inline DeviceStep read_step(const nlohmann::json& plan, const nlohmann::json& trace, double microseconds) {
  const auto& process = detail::require_plan(plan).at("processes").at(0);
  const auto& device = process.at("devices").at(0);
  const auto& instructions = device.at("instructions");
  DeviceStep step;
  step.replicas = static_cast<int>(device.at("replicas").size());
  if (step.replicas < 1) throw DataError{"the plan has no replica on its first device: give what --plan wrote"};
  for (const auto& use : device.at("collectives")) step.collectives.push_back(detail::read_use(use, process.at("schedules")));
  std::vector<double> times;
  if (!trace.is_null()) times = detail::traced_times(trace, plan, instructions.size());
  step.actions = detail::read_actions(instructions, step.collectives.size(),
                                      [&](std::size_t i) { return times.empty() ? detail::bytes_touched(instructions[i]) : times[i]; });
  for (const auto& action : step.actions) step.microseconds += action.microseconds;
  if (microseconds > 0) {
    if (!(step.microseconds > 0)) throw DataError{"the plan has no instruction that takes time, so the time of the step cannot be distributed"};
    for (auto& action : step.actions) action.microseconds *= microseconds / step.microseconds;
    step.microseconds = microseconds;
  }
  return step;
}

// The same actions without overlap. All collectives begun so far start when the device needs one of them; it waits for
// all.
inline std::vector<collectives::SimulatedAction> without_overlap(const std::vector<collectives::SimulatedAction>& actions) {
  using Kind = collectives::SimulatedAction::Kind;
  std::vector<collectives::SimulatedAction> result;
  std::vector<int> held;
  const auto release = [&] {
    for (const Kind kind : {Kind::start, Kind::wait})
      for (const int collective : held) result.push_back({kind, collective, 0});
    held.clear();
  };
  for (const auto& action : actions) {
    if (action.kind == Kind::compute) result.push_back(action);
    if (action.kind == Kind::start) held.push_back(action.collective);
    if (action.kind == Kind::wait && std::find(held.begin(), held.end(), action.collective) != held.end()) release();
  }
  release();
  return result;
}

// The collectives of a step on so many devices, with schedules chosen as for a real run.
class ChosenCollectives {
 public:
  ChosenCollectives(const DeviceStep& step, int ranks, const collectives::AllReducePreference& wanted)
      : ChosenCollectives{step.collectives, {step.replicas * ranks, ranks}, wanted} {}
  ChosenCollectives(const std::vector<DeviceStep::Use>& collectives, const collectives::ReplicaBlocks& blocks,
                    const collectives::AllReducePreference& wanted) {
    for (const auto& use : collectives) {
      const auto bytes = use.spec.elements * static_cast<std::int64_t>(size_of(use.spec.dtype));
      const auto& choice = choose(use.spec, bytes, blocks, wanted);
      bytes_of.push_back(bytes);
      uses.push_back({&choice.schedule, use.spec, collectives::piece_count(use.spec, choice.schedule)});
    }
  }

  std::vector<collectives::SimulatedCollective> uses;
  std::vector<std::int64_t> bytes_of;  // of one block, for each collective

 private:
  // Collectives that are done alike share one schedule.
  const collectives::Choice& choose(const collectives::CollectiveSpec& spec, std::int64_t bytes, const collectives::ReplicaBlocks& blocks,
                                    const collectives::AllReducePreference& wanted) {
    const int most = std::max(2, most_ranks(blocks, spec.groups.over(blocks.replicas())));
    const bool small = bytes <= (spec.kind == collectives::Kind::broadcast ? collectives::flat_broadcast_limit_bytes
                                                                           : collectives::direct_limit_bytes(most, transport::Latency::messages));
    auto& known = choices_[{static_cast<int>(spec.kind), small, spec.root, spec.any_order}];
    if (!known)
      known = std::make_unique<collectives::Choice>(collectives::choose(spec.kind, bytes, blocks, spec.root, spec.any_order, wanted));
    return *known;
  }

  std::map<std::tuple<int, bool, int, bool>, std::unique_ptr<collectives::Choice>> choices_;
};

}  // namespace replicator::tools
