// SPDX-License-Identifier: Apache-2.0
// Steps whose replicas work on between two calls: who looks at variables from outside, or begins another step, lets them come to rest.
#pragma once

#include <algorithm>
#include <vector>

namespace replicator {

class Works {
 public:
  Works() = default;
  Works(const Works&) = delete;
  Works& operator=(const Works&) = delete;
  // Returns when none of its replicas is in a step. They begin no other until the next call of run().
  virtual void rest() = 0;

 protected:
  ~Works() = default;
};

// Used by the calling thread only.
class AtWork {
 public:
  void add(Works& step) { steps_.push_back(&step); }
  void remove(Works& step) {
    std::erase(steps_, &step);
    if (latest_ == &step) latest_ = nullptr;
  }
  // All others rest. True where variables may have changed since it was last at work.
  bool begin(Works& step) {
    if (latest_ == &step) return false;
    rest();
    latest_ = &step;
    return true;
  }
  void rest() const {
    for (auto* step : steps_) step->rest();
  }
  // Variables are about to be changed from outside.
  void change() {
    rest();
    latest_ = nullptr;
  }

 private:
  std::vector<Works*> steps_;
  const Works* latest_ = nullptr;
};

}  // namespace replicator
