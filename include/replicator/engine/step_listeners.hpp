// SPDX-License-Identifier: Apache-2.0
// StepListeners: the list of all listeners of a host's steps.
#pragma once

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/engine/failure.hpp>
#include <replicator/engine/step_listener.hpp>

namespace replicator::detail {

// Calls them in the order in which they were added. An exception of one of them ends the Replicator.
class StepListeners {
 public:
  explicit StepListeners(Failure& failure) : failure_{failure} {}

  void add(std::shared_ptr<StepListener> listener) { listeners_.push_back(std::move(listener)); }
  void before(const StepMoment& moment) {
    tell([&](StepListener& listener) { listener.before(moment); });
  }
  void after(const StepMoment& moment, StepResults& results) {
    tell([&](StepListener& listener) { listener.after(moment, results); });
  }
  void failed(const StepMoment& moment) const {
    for (const auto& listener : listeners_) listener->failed(moment, failure_.error());
  }

 private:
  template <class What>
  void tell(What what) {
    try {
      failure_.told([&] {
        for (const auto& listener : listeners_) what(*listener);
      });
    } catch (...) {
      failure_.keep(std::current_exception());
      throw;
    }
  }

  Failure& failure_;
  std::vector<std::shared_ptr<StepListener>> listeners_;
};

}  // namespace replicator::detail
