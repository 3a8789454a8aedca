// SPDX-License-Identifier: Apache-2.0
// The asynchronous steps of a Replicator. Their replicas go on between two calls of step(). They must rest before the program reads or sets a variable, or
// calls another step.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <replicator/async/stop_agreement.hpp>
#include <replicator/core/array.hpp>

namespace replicator::detail {

class RunningStep {
 public:
  RunningStep() = default;
  RunningStep(const RunningStep&) = delete;
  RunningStep& operator=(const RunningStep&) = delete;
  // Returns when none of this process's replicas is in a step. They begin no other until the next call of run().
  virtual void rest() = 0;
  // At rest. Tells the other processes that these replicas make no step until all have met.
  virtual void pause() = 0;
  // Every process of the job calls it with the same `why`, while all its replicas rest. `latest`: this step was the last one at work, and all processes
  // have its values of variables afterwards.
  virtual void meet(bool latest, const char* why) = 0;
  // At rest. The newest value of the variable; null if that is the value in the VariableStore.
  virtual const AnyArray* newest(const std::string& variable) = 0;
  // The other process makes no further call of this step, and waits until no process does.
  virtual bool is_left_by(int process) const = 0;
  virtual int ordinal() const = 0;  // among those of the Replicator

 protected:
  ~RunningStep() = default;
};

// For the program's thread only.
class RunningSteps {
 public:
  // `stop` outlives this.
  explicit RunningSteps(StopAgreement& stop) : stop_{stop} {}
  void add(RunningStep& step) { steps_.push_back(&step); }
  // True if it was the last one at work.
  bool remove(RunningStep& step) {
    std::erase(steps_, &step);
    if (latest_ != &step) return false;
    latest_ = nullptr;
    return true;
  }
  // Lets all other steps rest. True if variables may have changed since this one was last at work. Collective, as rest_together and change: every process
  // of the job makes the same call.
  bool begin(RunningStep& step) {
    if (latest_ == &step) return false;
    rest_together("another step is called");
    latest_ = &step;
    return true;
  }
  // The ordinal of a step that the other process has left, but this one has not.
  std::optional<int> left_by(int process) const {
    const auto found = std::find_if(steps_.begin(), steps_.end(), [process](const auto* step) { return step->is_left_by(process); });
    return found == steps_.end() ? std::nullopt : std::optional{(*found)->ordinal()};
  }
  // Before a meeting of all processes.
  void pause() const {
    if (!latest_) return;
    latest_->rest();
    latest_->pause();
  }
  // The newest value of a variable is with its owner in the latest step. Earlier steps may have other owners, with older values.
  void rest_together(const char* why) const {
    for (auto* step : steps_) step->rest();
    if (latest_) latest_->pause();
    for (auto* step : steps_) step->meet(step == latest_, why);
    stop_.end_meeting();
  }
  // Before the program sets a variable.
  void change() {
    rest_together("a variable is set");
    latest_ = nullptr;
  }
  // Lets this process's replicas rest, then does as RunningStep::newest.
  const AnyArray* newest(const std::string& variable) const {
    for (auto* step : steps_) step->rest();
    return latest_ ? latest_->newest(variable) : nullptr;
  }

 private:
  StopAgreement& stop_;
  std::vector<RunningStep*> steps_;
  RunningStep* latest_ = nullptr;
};

}  // namespace replicator::detail
