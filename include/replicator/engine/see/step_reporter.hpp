// SPDX-License-Identifier: Apache-2.0
// StepReporter: writes plans and graphs of steps when they are compiled. At the end of the job it writes timelines,
// reports late devices, and compares the steps' times with predictions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/engine/see/step_prediction.hpp>
#include <replicator/io/file.hpp>
#include <replicator/job/clock_offset.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/resolve/resolution_dot.hpp>
#include <replicator/runtime/see/find_nan.hpp>
#include <replicator/runtime/see/reports.hpp>
#include <replicator/runtime/watches.hpp>

namespace replicator::detail {

class StepReporter {
 public:
  StepReporter(const Deployment& deployment, transport::Job& job) : options_{deployment.see}, job_{job} {
    trace_.process = job.rank();
    trace_.name = job.describe(job.rank());
    for (const auto& device : deployment.devices) {
      trace_.devices.push_back(device.text());
      times_cost_nothing_ = times_cost_nothing_ && device.kind == DeviceKind::cpu;
    }
  }

  // Collective. Called once, before the other functions. Compares the clocks of the processes if a report needs them.
  // Throws DataError if an output file cannot be written, so that this is found at the start.
  void begin() {
    if (!options_.trace.empty()) io::require_writable("--trace", options_.trace);
    if (!options_.hang_report.empty()) io::require_writable("--hang-report", options_.hang_report);
    if (!options_.plan.empty() && job_.rank() == 0) io::require_writable("--plan", options_.plan);
    if (!options_.dot.empty() && job_.rank() == 0) io::require_writable("--dot", options_.dot);
    if (!needs_clock()) return;
    const auto offset = transport::measure_clock_offset(job_);
    trace_.clock = {trace_clock(), offset.offset, 0, 0, offset.uncertainty};
  }

  // Gives the topology of the devices. At the end process 0 then says how long steps should have taken. For that, steps
  // are timed on devices where timing costs nothing.
  void predict(const collectives::Topology& topology) { topology_ = topology; }

  // The names of the devices.
  const std::vector<std::string>& devices() const { return trace_.devices; }

  // Called for a compiled step. Returns the traces of its devices; empty if no times are needed.
  std::vector<std::shared_ptr<DeviceTrace>> record(const Resolution& resolution, std::span<const Program> programs) {
    std::vector<std::shared_ptr<DeviceTrace>> traces;
    const bool predicts = !topology_.dimensions.empty();
    if (!options_.times() && !(predicts && times_cost_nothing_)) return traces;
    for (const auto& program : programs) traces.push_back(std::make_shared<DeviceTrace>(resolution, program, options_.trace_steps));
    if (!options_.trace.empty()) trace_.steps.push_back(traces);
    if (predicts && job_.rank() == 0) predictions_.emplace_back(programs[0], topology_, traces[0]);
    return traces;
  }
  // The watches of each device; empty if there are none.
  std::vector<std::unique_ptr<Watches>> watches(const Resolution& resolution, std::span<const Program> programs,
                                                const std::vector<std::shared_ptr<DeviceTrace>>& traces) {
    const auto compiled = watched_++;
    std::vector<std::unique_ptr<Watches>> result;
    for (std::size_t d = 0; d < programs.size(); ++d) {
      auto watches = std::make_unique<Watches>();
      if (!traces.empty()) watches->add(traces[d]);
      if (options_.find_nan) watches->add(std::make_shared<FindNan>(resolution, programs[d], !options_.replay.empty()));
      if (options_.skew)
        watches->add(arrivals_.emplace_back(std::make_shared<ArrivalTrace>(
            programs[d], compiled, static_cast<std::uint32_t>(job_.rank()), static_cast<std::uint32_t>(d))));
      if (watches->empty()) return {};
      result.push_back(std::move(watches));
    }
    return result;
  }
  // Collective: writes the requested files about a compiled step. From the second step on, their names have a number.
  void write_files(std::span<const Graph> traced, const Resolution& resolution, const PlanView& view) {
    const auto number = described_++;
    if (!options_.plan.empty()) {
      const auto part = plan_part(view);
      const auto all = job_.exchange(std::as_bytes(std::span{part}), "the gathering of plans");
      std::vector<std::string> parts;
      for (const auto& each : all) parts.emplace_back(reinterpret_cast<const char*>(each.data()), each.size());
      if (job_.rank() == 0) write(numbered(options_.plan, number), plan_json(parts, number));
    }
    if (options_.dot.empty() || job_.rank() != 0) return;
    write(numbered(options_.dot, number), dot(traced));
    write(with_infix(numbered(options_.dot, number), "resolved"), dot(resolution, view.first_replica));
  }
  // For the inputs of so many replicas; null without a trace.
  std::shared_ptr<InputTrace> record_input(std::size_t replicas) {
    if (options_.trace.empty()) return nullptr;
    return trace_.inputs.emplace_back(std::make_shared<InputTrace>(replicas, options_.trace_steps));
  }

  // Collective: process 0 writes the records of all processes. If they cannot be gathered, every process writes its
  // own.
  void finish() {
    tell_predictions();
    if (!needs_clock()) return;
    try {
      measure_drift();
      if (options_.skew) tell_skew();
      if (options_.trace.empty()) return;
      auto mine = trace_events(trace_);
      if (job_.size() == 1) return write(options_.trace, trace_file({std::move(mine)}, {0}));
      write_gathered(mine);
    } catch (const std::exception& error) {
      if (!options_.trace.empty()) write_own(error.what());
    }
  }
  // The job has failed: this process writes only its own records.
  void abandon() {
    if (!options_.trace.empty()) write_own("the job has failed");
  }

 private:
  bool needs_clock() const { return options_.skew || !options_.trace.empty(); }
  // Prints predicted beside measured times.
  void tell_predictions() const {
    for (std::size_t number = 0; number < predictions_.size(); ++number)
      if (const auto text = predictions_[number].text(); !text.empty())
        say(predictions_.size() == 1 ? text : "replicated step " + std::to_string(number) + ": " + text);
  }
  // The arrivals of all processes at collectives, by the clock of process 0.
  void tell_skew() {
    std::vector<Arrival> mine;
    std::vector<std::pair<std::uint64_t, std::string>> names;
    for (const auto& trace : arrivals_) {
      trace->arrivals().for_each([&](Arrival arrival) {
        arrival.time = trace_.clock(arrival.time);
        mine.push_back(arrival);
      });
      for (const auto& name : trace->names())
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    static constexpr const char* what = "the gathering of arrivals";
    const auto all = job_.exchange(std::as_bytes(std::span{mine}), what);
    if (job_.rank() != 0) return;
    std::vector<Arrival> arrivals;
    for (std::size_t process = 0; process < all.size(); ++process) {
      const auto& each = all[process];
      transport::require_contribution(each.size() % sizeof(Arrival) == 0, static_cast<int>(process), each.size(), what);
      const auto before = arrivals.size();
      arrivals.resize(before + each.size() / sizeof(Arrival));
      if (!each.empty()) std::memcpy(arrivals.data() + before, each.data(), each.size());
    }
    std::fputs(("replicator: who came late\n" + arrival_summary(arrivals, names)).c_str(), stderr);
  }
  void measure_drift() {
    const auto offset = transport::measure_clock_offset(job_);
    trace_.clock.last_time = trace_clock();
    trace_.clock.last_offset = offset.offset;
    trace_.clock.uncertainty = std::max(trace_.clock.uncertainty, offset.uncertainty);
  }
  // The message of a process is the uncertainty of its clock, then its events.
  void write_gathered(const std::string& mine) {
    std::vector<std::byte> bytes(sizeof(std::int64_t) + mine.size());
    std::memcpy(bytes.data(), &trace_.clock.uncertainty, sizeof(std::int64_t));
    std::memcpy(bytes.data() + sizeof(std::int64_t), mine.data(), mine.size());
    static constexpr const char* what = "the gathering of traces";
    const auto all = job_.exchange(bytes, what);
    if (job_.rank() != 0) return;
    std::vector<std::string> events;
    std::vector<std::int64_t> uncertainties;
    for (const auto& each : all) {
      transport::require_contribution(each.size() >= sizeof(std::int64_t), static_cast<int>(events.size()), each.size(), what);
      std::memcpy(&uncertainties.emplace_back(), each.data(), sizeof(std::int64_t));
      events.emplace_back(reinterpret_cast<const char*>(each.data()) + sizeof(std::int64_t), each.size() - sizeof(std::int64_t));
    }
    write(options_.trace, trace_file(events, uncertainties));
  }
  void write_own(const std::string& why) noexcept {
    try {
      const bool alone = job_.size() == 1 || io::written_in_place(options_.trace);
      const auto path = alone ? options_.trace : options_.trace + ".process" + std::to_string(job_.rank());
      write(path, trace_file({trace_events(trace_)}, {trace_.clock.uncertainty}));
      if (job_.size() > 1) say("the traces of the processes were not gathered (" + why + "): the trace of this process is in " + path);
    } catch (const std::exception& error) {
      say(std::string{"the trace was not written: "} + error.what());
    }
  }
  // "plan.json", "plan.1.json"
  static std::string numbered(const std::string& path, int number) { return number == 0 ? path : with_infix(path, std::to_string(number)); }
  static std::string with_infix(const std::string& path, const std::string& infix) {
    if (io::written_in_place(path)) return path;
    const auto slash = path.rfind('/'), point = path.rfind('.');
    if (point == std::string::npos || point == 0 || (slash != std::string::npos && point <= slash + 1)) return path + "." + infix;
    return path.substr(0, point) + "." + infix + path.substr(point);
  }
  static void write(const std::string& path, const std::string& text) {
    io::FileReplacement file{path};
    file.write(std::as_bytes(std::span{text}));
    file.commit();
  }
  // Prints to stderr: this is called from destructors, which must not throw.
  static void say(const std::string& sentence) { std::fprintf(stderr, "replicator: %s\n", sentence.c_str()); }

  SeeOptions options_;
  transport::Job& job_;
  ProcessTrace trace_;
  std::vector<std::shared_ptr<ArrivalTrace>> arrivals_;
  collectives::Topology topology_;  // without dimensions: unknown
  bool times_cost_nothing_ = true;  // CPU devices only: no thread waits for a GPU to time its work
  std::vector<StepPrediction> predictions_;
  int described_ = 0;          // number of steps
  std::uint32_t watched_ = 0;  // number of steps
};

}  // namespace replicator::detail
