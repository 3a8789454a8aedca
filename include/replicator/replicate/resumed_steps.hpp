// SPDX-License-Identifier: Apache-2.0
// ResumedSteps: decides which steps of a resumed run are left out, because an earlier run has done them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <replicator/core/error.hpp>
#include <replicator/core/location.hpp>
#include <replicator/replicate/step_driver.hpp>

namespace replicator::detail {

class ResumedSteps;

// One for all steps of a Replicator.
struct ResumedRun {
  const ResumedSteps* ran = nullptr;       // the latest checkpointed step that has run, unless its loop has ended since
  const ResumedSteps* skipping = nullptr;  // the latest step that left steps out, if it has more to leave out
  Location skipped_at{};                   // the call of steps() that did so
};

// One for each replicated step. A program that resumes makes its calls from the beginning again, and steps(n) leaves out
// what an earlier run has done. Programs have one of two shapes:
// - `for (round ...) { for (... : train.steps(5)) ...; mean.steps(1); }` repeats whole rounds, so mean.steps(1) is left
//   out as often as it was done.
// - `for (... : train.steps(40)) if (...) mean.steps(1);` has left out bodies of its loop, and the means in them. So each
//   mean that it asks for is new.
// What tells them apart: in the second another step has run before mean.steps(1), and its loop goes on.
class ResumedSteps {
 public:
  // `run` and `driver` outlive this.
  ResumedSteps(ResumedRun& run, StepDriver& driver, bool checkpointed) : run_{run}, driver_{driver}, checkpointed_{checkpointed} {}
  ResumedSteps(const ResumedSteps&) = delete;
  ResumedSteps& operator=(const ResumedSteps&) = delete;
  ~ResumedSteps() {
    end_loop();
    if (run_.skipping == this) run_.skipping = nullptr;
  }

  // Returns how many of the next `count` steps, asked for at `where`, an earlier run has done. Counts each of its steps
  // once, and none while another step runs.
  template <class = void>
  std::int64_t skip(std::int64_t count, Location where) {
    if (run_.ran && run_.ran != this) {
      skipped_ = driver_.steps_resumed();
      return 0;
    }
    const auto skipped = std::min(left(), static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
    if (skipped == 0) return 0;
    skipped_ += skipped;
    run_.skipping = left() > 0 ? this : nullptr;
    run_.skipped_at = where;
    return static_cast<std::int64_t>(skipped);
  }

  // The loop of a steps() has ended.
  void end_loop() {
    if (run_.ran == this) run_.ran = nullptr;
  }

  // Runs the step. Throws BuildError where step() stands in rounds beside steps(n), and so would be done twice.
  template <class = void>
  StepResults run(Location where) {
    if (!run_.ran && run_.skipping && run_.skipping != this && left() > 0)
      throw BuildError{"step() at " + where.text() + " would be done twice: an earlier run has done it " + std::to_string(left()) +
                       " times, and steps() at " + run_.skipped_at.text() +
                       " is leaving out what was done there. Use steps(1) here too, or step() there, or make a step that may begin anew with {.checkpointed = false}"};
    auto results = driver_.run(where);
    if (checkpointed_) run_.ran = this;
    return results;
  }

 private:
  std::uint64_t left() const { return driver_.steps_resumed() - skipped_; }

  ResumedRun& run_;
  StepDriver& driver_;
  bool checkpointed_;
  std::uint64_t skipped_ = 0;  // of driver_.steps_resumed()
};

}  // namespace replicator::detail
