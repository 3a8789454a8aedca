// SPDX-License-Identifier: Apache-2.0
// RestartableSteps: the replicated steps of an elastic engine. Each keeps its progress and all that is needed to
// compile it again on a new host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <replicator/engine/read_ahead_step.hpp>
#include <replicator/engine/state/checkpoints.hpp>
#include <replicator/replicate/step_driver.hpp>

namespace replicator::detail {

// A replicated step, independent of the host that runs it.
struct RestartableStep {
  int ordinal;
  bool checkpointed;
  MakeInputs inputs;
  Trace trace;
  Resumption from{};                          // its progress
  std::unique_ptr<ReadAheadStep> compiled{};  // null if it is not compiled on the present host
  std::uint64_t resumed = 0;                  // steps that this process need not do
  bool gone = false;                          // the program has destroyed its Step
};

// Holds weak references to the steps.
class RestartableSteps {
 public:
  std::shared_ptr<RestartableStep> add(RestartableStep restartable) {
    auto step = std::make_shared<RestartableStep>(std::move(restartable));
    steps_.push_back(step);
    return step;
  }
  // Includes steps that the program has destroyed but that may have to be repeated.
  std::vector<std::shared_ptr<RestartableStep>> all() const {
    std::vector<std::shared_ptr<RestartableStep>> result;
    for (const auto& weak : steps_)
      if (auto step = weak.lock()) result.push_back(std::move(step));
    return result;
  }
  std::vector<std::shared_ptr<RestartableStep>> living() const {
    auto result = all();
    std::erase_if(result, [](const auto& step) { return step->gone; });
    return result;
  }
  void drop_compiled() const {
    for (const auto& step : all()) step->compiled.reset();
  }
  void forget_expired() {
    std::erase_if(steps_, [](const auto& weak) { return weak.expired(); });
  }
  // The place of the program, as bytes: the step it is about to run and all other living steps. Another process can
  // continue from here if its bytes are equal.
  std::vector<std::byte> place_before(const RestartableStep& restartable) const {
    std::set<int> ordinals;
    for (const auto& step : living()) ordinals.insert(step->ordinal);
    std::vector<int> place{restartable.ordinal};
    place.insert(place.end(), ordinals.begin(), ordinals.end());
    const auto bytes = std::as_bytes(std::span{place});
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::vector<std::weak_ptr<RestartableStep>> steps_;
};

}  // namespace replicator::detail
