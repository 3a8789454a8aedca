// SPDX-License-Identifier: Apache-2.0
// ResumedSteps: decides which steps of a resumed run are left out, because an earlier run has done them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/core/location.hpp>
#include <replicator/replicate/step_driver.hpp>

namespace replicator::detail {

// One for all steps of a Replicator.
struct ResumedRun {
  int steps = 0;          // made so far: each has its number, from 1
  int ran = 0;            // the latest checkpointed step that has run, unless its loop has ended since; 0: none
  int skipping = 0;       // the latest step that left steps out, if it has more to leave out; 0: none
  Location skipped_at{};  // the call of steps() that did so
  // The latest loop, if it was left early. A checkpoint learns of it only when the program goes on to other steps. Until then a
  // resumed run goes on in that loop: it may have been left because time was up.
  StepDriver::Breaks left{};
  std::uint64_t left_after = 0;
};

// One for each replicated step. A program that resumes makes its calls from the beginning again, and steps(n) leaves out
// what an earlier run has done. Programs have one of two shapes:
// - `for (round ...) { for (... : train.steps(5)) ...; mean.steps(1); }` repeats whole rounds, so mean.steps(1) is left
//   out as often as it was done.
// - `for (... : train.steps(40)) if (...) mean.steps(1);` has left out bodies of its loop, and the means in them. So each
//   mean that it asks for is new.
// What tells them apart: in the second another step has run before mean.steps(1), and its loop goes on.
//
// A loop that was left early, `for (... : train.steps(1000)) if (...) break;`, is left again after as many steps.
class ResumedSteps {
 public:
  // `run` and `driver` outlive this.
  ResumedSteps(ResumedRun& run, StepDriver& driver, bool checkpointed) : run_{run}, number_{++run.steps}, driver_{driver}, checkpointed_{checkpointed} {}
  ResumedSteps(const ResumedSteps&) = delete;
  ResumedSteps& operator=(const ResumedSteps&) = delete;
  ~ResumedSteps() {
    leave();
    if (run_.skipping == number_) run_.skipping = 0;
  }

  // Returns how many of the next `count` steps, asked for at `where`, are still to be done: an earlier run may have done some, and
  // left the loop then. Counts each of its steps once, and none while another step runs.
  template <class = void>
  std::int64_t still_to_do(std::int64_t count, Location where) {
    if (inside_another()) skipped_ = driver_.steps_resumed();
    auto skipped = std::min(left(), static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
    if (skipped == 0) return count;
    const auto breaks = driver_.breaks();
    const bool ends = breaks && break_ < breaks->size() && (*breaks)[break_] <= skipped_ + skipped;
    if (ends) skipped = (*breaks)[break_++] - skipped_;
    skipped_ += skipped;
    run_.skipping = left() > 0 ? number_ : 0;
    run_.skipped_at = where;
    return ends ? 0 : count - static_cast<std::int64_t>(skipped);
  }

  // Whether the loop of steps() has more steps to give.
  void goes_on(bool does) { goes_on_ = does; }
  // The Steps of a loop is gone. If it had more to give, the body of the loop has left it.
  template <class = void>
  void end_loop() {
    const bool left_early = std::exchange(goes_on_, false) && driver_.stop_signal() == 0 && std::uncaught_exceptions() == 0;
    leave();
    if (left_early && checkpointed_ && run_.ran == 0) run_.left = driver_.breaks(), run_.left_after = driver_.steps_done();
  }

  // Runs the step. Throws BuildError where step() stands in rounds beside steps(n), and so would be done twice.
  template <class = void>
  StepResults run(Location where) {
    if (run_.ran == 0 && run_.skipping != 0 && run_.skipping != number_ && left() > 0)
      throw BuildError{"step() at " + where.text() + " would be done twice: an earlier run has done it " + std::to_string(left()) +
                       " times, and steps() at " + run_.skipped_at.text() +
                       " is leaving out what was done there. Use steps(1) here too, or step() there, or make a step that may begin anew with {.checkpointed = false}"};
    if (!checkpointed_) return driver_.run(where);
    if (run_.left) std::exchange(run_.left, nullptr)->push_back(run_.left_after);
    auto results = driver_.run(where);
    if (run_.ran != number_) outer_ = std::exchange(run_.ran, number_);
    return results;
  }

 private:
  bool inside_another() const { return run_.ran != 0 && run_.ran != number_; }
  void leave() {
    if (run_.ran == number_) run_.ran = std::exchange(outer_, 0);
  }
  std::uint64_t left() const { return driver_.steps_resumed() - skipped_; }

  ResumedRun& run_;
  int number_;
  StepDriver& driver_;
  bool checkpointed_;
  bool goes_on_ = false;
  int outer_ = 0;              // the step in whose loop this one runs; 0: none
  std::uint64_t skipped_ = 0;  // of driver_.steps_resumed()
  std::size_t break_ = 0;      // of driver_.breaks(): the next one that is left out
};

}  // namespace replicator::detail
