// SPDX-License-Identifier: Apache-2.0
// Turns the steps of an episode into n-step transitions.
// Source: Sutton, "Learning to predict by the methods of temporal differences", 1988.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/number_text.hpp>
#include <replicator/rl/environment.hpp>

namespace replicator::rl {

// The unit of learning: the value of (observation, action) is about reward + discount * value of `next`. Holds views.
template <class O>
struct Transition {
  std::span<const O> observation;
  std::span<const float> action;
  float reward = 0;    // r_0 + g d_0 r_1 + g^2 d_0 d_1 r_2 + ...
  float discount = 1;  // g^m d_0 ... d_(m-1), m the number of steps; 0 after a terminal state
  std::span<const O> next;
};

struct NStepOptions {
  std::int64_t steps = 5;  // n
  double discount = 0.99;  // g, in [0, 1]
};

// For one environment. The last n - 1 transitions of an episode have fewer steps: they end with the episode.
template <class O>
class NStep {
 public:
  // Throws BuildError unless steps >= 1 and the discount is in [0, 1].
  explicit NStep(const NStepOptions& options) : options_{options} {
    if (options.steps < 1 || !(options.discount >= 0 && options.discount <= 1))
      throw BuildError{"transitions over at least 1 step with a discount in [0, 1] can be made; found " + std::to_string(options.steps) +
                       " and " + replicator::detail::number_text(options.discount)};
  }

  // Adds a step: `action` at `observation` led to `outcome` and `next`. Passes complete transitions to `sink`, the
  // oldest first. The views are valid during the call.
  template <class Sink>
  void add(std::span<const O> observation, std::span<const float> action, const Outcome& outcome, std::span<const O> next, Sink&& sink) {
    pending_.push_back({{observation.begin(), observation.end()}, {action.begin(), action.end()}});
    for (auto& each : pending_) {
      each.reward += each.discount * outcome.reward;
      each.discount *= static_cast<float>(options_.discount) * outcome.discount;
      ++each.steps;
    }
    const auto whole = outcome.last ? pending_.size() : static_cast<std::size_t>(pending_.front().steps == options_.steps);
    for (std::size_t i = 0; i < whole; ++i) {
      const auto& one = pending_[i];
      sink(Transition<O>{one.observation, one.action, one.reward, one.discount, next});
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(whole));
  }

 private:
  struct Pending {
    std::vector<O> observation;
    std::vector<float> action;
    float reward = 0;
    float discount = 1;
    std::int64_t steps = 0;
  };

  NStepOptions options_;
  std::vector<Pending> pending_;  // at most n, the oldest first
};

}  // namespace replicator::rl
