// SPDX-License-Identifier: Apache-2.0
// Steps whose replicas work on between two calls: who looks at variables from outside, or begins another step, lets them come to rest.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <replicator/async/stop_agreement.hpp>
#include <replicator/core/array.hpp>

namespace replicator::detail {

class Works {
 public:
  Works() = default;
  Works(const Works&) = delete;
  Works& operator=(const Works&) = delete;
  // Returns when none of this process's replicas is in a step. They begin no other until the next call of run().
  virtual void rest() = 0;
  // At rest: other processes are told that these replicas make no further step until all have met.
  virtual void pause() = 0;
  // Every process of the job calls it when all its replicas rest, of whichever step, for the same reason. Where this step was the latest at work, all
  // processes have the same values of variables afterwards.
  virtual void meet(bool latest, const char* why) = 0;
  // At rest: where the newest value of the variable is; null where it is the one in the store.
  virtual const AnyArray* newest(const std::string& variable) = 0;
  // Another process makes no further step of it, and waits until none does.
  virtual bool is_left_by(int process) const = 0;
  virtual int ordinal() const = 0;  // among those of the Replicator

 protected:
  ~Works() = default;
};

// Used by the calling thread only.
class AtWork {
 public:
  // `stop` outlives this.
  explicit AtWork(StopAgreement& stop) : stop_{stop} {}
  void add(Works& step) { steps_.push_back(&step); }
  // True where it was the latest at work.
  bool remove(Works& step) {
    std::erase(steps_, &step);
    if (latest_ != &step) return false;
    latest_ = nullptr;
    return true;
  }
  // All others rest. True where variables may have changed since it was last at work. This, change and rest_together are for all processes of a
  // job.
  bool begin(Works& step) {
    if (latest_ == &step) return false;
    rest_together("another step is called");
    latest_ = &step;
    return true;
  }
  // The ordinal of a step that this process has not left, and another one has.
  std::optional<int> left_by(int process) const {
    const auto found = std::find_if(steps_.begin(), steps_.end(), [process](const auto* step) { return step->is_left_by(process); });
    return found == steps_.end() ? std::nullopt : std::optional{(*found)->ordinal()};
  }
  // All processes are about to meet.
  void pause() const {
    if (!latest_) return;
    latest_->rest();
    latest_->pause();
  }
  // What the latest step's owners have of a variable is its newest value; those of a step before may be others, and have an older one.
  void rest_together(const char* why) const {
    for (auto* step : steps_) step->rest();
    if (latest_) latest_->pause();
    for (auto* step : steps_) step->meet(step == latest_, why);
    stop_.end_meeting();
  }
  // Variables are about to be changed from outside.
  void change() {
    rest_together("a variable is set");
    latest_ = nullptr;
  }
  // When this process's replicas rest: as Works::newest.
  const AnyArray* newest(const std::string& variable) const {
    for (auto* step : steps_) step->rest();
    return latest_ ? latest_->newest(variable) : nullptr;
  }

 private:
  StopAgreement& stop_;
  std::vector<Works*> steps_;
  Works* latest_ = nullptr;
};

}  // namespace replicator::detail
