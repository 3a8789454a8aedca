// SPDX-License-Identifier: Apache-2.0
// RunningSteps: the asynchronous steps of a Replicator. Their replicas continue between two calls of step(). They must
// rest before the program reads or sets a variable, or calls another step.
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
  // Returns when no replica of this process is in a step. The replicas begin no other step until the next call of
  // run().
  virtual void rest() = 0;
  // Call it at rest. Tells the other processes that these replicas make no step until all processes have met.
  virtual void pause() = 0;
  // Collective: every process calls it with the same `why`, while all its replicas rest. `latest`: this step was the
  // last one at work. All processes then have its values of variables afterwards.
  virtual void meet(bool latest, const char* why) = 0;
  // Call it at rest. Returns the newest value of the variable; null if that is the value in the VariableStore.
  virtual const AnyArray* newest(const std::string& variable) = 0;
  // True if the other process makes no more calls of this step, and waits for all processes to do the same.
  virtual bool is_left_by(int process) const = 0;
  virtual int ordinal() const = 0;  // the number of the step in its Replicator

 protected:
  ~RunningStep() = default;
};

// Only the program's thread may use it.
class RunningSteps {
 public:
  // `stop` outlives this object.
  explicit RunningSteps(StopAgreement& stop) : stop_{stop} {}
  void add(RunningStep& step) { steps_.push_back(&step); }
  // Returns true if it was the last one at work.
  bool remove(RunningStep& step) {
    std::erase(steps_, &step);
    if (latest_ != &step) return false;
    latest_ = nullptr;
    return true;
  }
  // Lets all other steps rest. Returns true if variables may have changed since this step was last at work. Collective,
  // like rest_together and change: every process of the job makes the same call.
  bool begin(RunningStep& step) {
    if (latest_ == &step) return false;
    rest_together("another step is called");
    latest_ = &step;
    return true;
  }
  // The ordinal of a step that the other process has left and this one has not.
  std::optional<int> left_by(int process) const {
    const auto found = std::find_if(steps_.begin(), steps_.end(), [process](const auto* step) { return step->is_left_by(process); });
    return found == steps_.end() ? std::nullopt : std::optional{(*found)->ordinal()};
  }
  // Call it before a barrier of all processes.
  void pause() const {
    if (!latest_) return;
    latest_->rest();
    latest_->pause();
  }
  // The owner of a variable in the latest step has its newest value. In earlier steps the variable may have other
  // owners, with older values.
  void rest_together(const char* why) const {
    for (auto* step : steps_) step->rest();
    if (latest_) latest_->pause();
    for (auto* step : steps_) step->meet(step == latest_, why);
    stop_.end_barrier();
  }
  // Call it before the program sets a variable.
  void change() {
    rest_together("a variable is set");
    latest_ = nullptr;
  }
  // Lets this process's replicas rest, then works as RunningStep::newest.
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
