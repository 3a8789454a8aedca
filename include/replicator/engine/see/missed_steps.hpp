// SPDX-License-Identifier: Apache-2.0
// MissedSteps: warns at the end of a run about steps that were to be recorded or timed but never ran.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include <replicator/engine/step_listener.hpp>
#include <replicator/replicate/see_options.hpp>

namespace replicator::detail {

// The range of steps of a run. Each replicated step counts from 0; the range covers all of them, from the lowest to the
// highest number.
struct StepsRun {
  std::uint64_t first = 0, end = 0;  // [first, end)

  bool none() const { return first == end; }
  void add(std::uint64_t number) {
    first = none() ? number : std::min(first, number);
    end = std::max(end, number + 1);
  }
  std::string text() const {
    if (none()) return "had no step";
    return "had the steps " + std::to_string(first) + " to " + std::to_string(end - 1) + ", " + std::to_string(end - first) + " in all";
  }
};

// "--record asked for the steps 100 to 109, but the run had the steps 0 to 19, 20 in all: nothing was recorded". Empty
// if the run had all steps of `window`.
inline std::string missed_steps(const std::string& flag, const TraceWindow& window, const StepsRun& run, const std::string& done) {
  const auto from = std::max(window.first, run.first), to = std::min(window.end, run.end);
  const auto seen = to > from ? to - from : 0;
  if (seen == window.steps()) return {};
  const auto found = seen == 0 ? "nothing was " + done : "only " + std::to_string(seen) + " of the " + std::to_string(window.steps()) + " were " + done;
  return flag + " asked for the steps " + std::to_string(window.first) + " to " + std::to_string(window.end - 1) + ", but the run " + run.text() + ": " + found;
}

// Only one process of a job needs it: all run the same steps.
class MissedSteps final : public StepListener {
 public:
  explicit MissedSteps(const SeeOptions& options) : options_{options} {}
  ~MissedSteps() override {
    if (run_.none() && std::uncaught_exceptions() > 0) return;  // the error explains it
    if (options_.record) say(missed_steps("--record", options_.record->steps, run_, "recorded"));
    if (asks_for_times()) say(missed_steps("--trace-steps", options_.trace_steps, run_, "timed"));
  }
  static bool concerns(const SeeOptions& options) { return options.record || options.times(); }

  void before(const StepMoment& moment) override { run_.add(moment.number); }
  void after(const StepMoment&, StepResults&) override {}
  void failed(const StepMoment&, const std::exception_ptr&) noexcept override {}

 private:
  // The default window was not requested, so it may be incomplete, but not empty.
  bool asks_for_times() const {
    const TraceWindow& window = options_.trace_steps;
    return options_.times() && (window != TraceWindow{} || run_.end <= window.first);
  }
  static void say(const std::string& sentence) {
    if (!sentence.empty()) std::fprintf(stderr, "replicator: %s\n", sentence.c_str());
  }

  SeeOptions options_;
  StepsRun run_;
};

}  // namespace replicator::detail
