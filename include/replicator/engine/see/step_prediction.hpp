// SPDX-License-Identifier: Apache-2.0
// StepPrediction: compares the measured time of a step with its simulated time. The simulator gets the schedules of the
// job's collectives, the measured times of a device's kernels, and the figures of the links.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/run/region_layout.hpp>
#include <replicator/collectives/simulate/simulate.hpp>
#include <replicator/core/quantile.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/see/jitter.hpp>
#include <replicator/runtime/see/quantity_text.hpp>
#include <replicator/runtime/see/trace.hpp>

namespace replicator::detail {

// For one compiled step on one device of process 0: all devices are assumed to do the same. docs/simulate.md describes
// the model.
class StepPrediction {
 public:
  // Copies the parts of the program that it needs.
  StepPrediction(const Program& program, const collectives::Topology& topology, std::shared_ptr<const DeviceTrace> trace)
      : topology_{topology}, trace_{std::move(trace)} {
    for (const auto& use : program.collectives) {
      schedules_.push_back(use.schedule);
      specs_.push_back(use.spec);
    }
    using Kind = Instruction::Kind;
    for (const auto& instruction : program.code) {
      spread_ = spread_ || instruction.kind == Kind::give || instruction.kind == Kind::take;
      actions_.push_back({instruction.kind == Kind::start  ? Action::start
                          : instruction.kind == Kind::wait ? Action::wait
                                                           : Action::compute,
                          static_cast<int>(instruction.collective), 0});
    }
  }

  // Empty if no whole step was timed, if a replica is spread over several devices, or if the simulation would take
  // long.
  std::string text() const {
    const auto steps = timed_steps();
    if (steps.empty() || spread_) return {};
    std::vector<collectives::SimulatedCollective> uses;
    std::size_t tasks = 0;
    for (std::size_t c = 0; c < schedules_.size(); ++c) {
      if (schedules_[c].ranks() != topology_.ranks()) return {};
      uses.push_back({&schedules_[c], specs_[c], collectives::piece_count(specs_[c], schedules_[c])});
      tasks += instructions_of(schedules_[c]) * static_cast<std::size_t>(uses.back().pieces);
    }
    if (tasks > most_tasks) return {};
    const auto simulated = std::clamp<std::size_t>(most_tasks / 4 / std::max<std::size_t>(tasks, 1), 1, steps.size());
    std::vector<double> measured, predicted, kernels;
    std::vector<std::vector<double>> times;
    for (const auto& step : steps) {
      measured.push_back(step.microseconds);
      times.push_back(step.times);
      double sum = 0;
      for (const double time : step.times) sum += time;
      kernels.push_back(sum);
      if (predicted.size() == simulated) continue;
      auto actions = actions_;
      for (std::size_t i = 0; i < actions.size(); ++i) actions[i].microseconds = step.times[i];
      predicted.push_back(collectives::simulate(uses, {actions}, topology_, {.critical_path = false}).time());
    }
    return sentence(measured, predicted, kernels, measure_jitter(times));
  }

 private:
  using Action = collectives::SimulatedAction::Kind;
  static constexpr std::size_t most_tasks = 2'000'000;  // takes some seconds on one core

  struct TimedStep {
    double microseconds = 0;
    std::vector<double> times;  // by instruction; 0 for a start or a wait
  };
  // The spans of a step are consecutive; the span of the whole step comes after those of its instructions.
  std::vector<TimedStep> timed_steps() const {
    std::vector<TimedStep> steps;
    TimedStep step;
    std::size_t seen = 0;
    trace_->spans().for_each([&](const DeviceTrace::Span& span) {
      const double microseconds = static_cast<double>(span.end - span.begin) * 1e-3;
      step.times.resize(actions_.size());
      if (span.instruction != DeviceTrace::Span::whole_step) {
        ++seen;
        if (actions_[span.instruction].kind == Action::compute) step.times[span.instruction] = microseconds;
        return;
      }
      step.microseconds = microseconds;
      if (seen == actions_.size()) steps.push_back(std::move(step));
      step = {};
      seen = 0;
    });
    return steps;
  }
  static std::size_t instructions_of(const collectives::Schedule& schedule) {
    std::size_t count = 0;
    for (const auto& program : schedule.programs)
      for (const auto& channel : program) count += channel.size();
    return count;
  }
  static std::string sentence(const std::vector<double>& measured, const std::vector<double>& predicted, const std::vector<double>& kernels,
                              const MeasuredJitter& jitter) {
    const double took = median(measured), should = median(predicted);
    char text[320];
    std::snprintf(text, sizeof text,
                  "a step took %s (median of %zu), %s were predicted (%+.1f %%); kernels took %s, and differ from step to step by %.1f %% each "
                  "and %.1f %% all together",
                  seconds_text(took * 1e-6).c_str(), measured.size(), seconds_text(should * 1e-6).c_str(), 100 * (should / took - 1),
                  seconds_text(median(kernels) * 1e-6).c_str(), 100 * jitter.kernel, 100 * jitter.device);
    return text;
  }

  collectives::Topology topology_;
  std::shared_ptr<const DeviceTrace> trace_;
  std::vector<collectives::Schedule> schedules_;
  std::vector<collectives::CollectiveSpec> specs_;
  std::vector<collectives::SimulatedAction> actions_;
  bool spread_ = false;
};

}  // namespace replicator::detail
