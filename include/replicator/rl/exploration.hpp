// SPDX-License-Identifier: Apache-2.0
// Exploration noise on an agent's actions.
// Sources: Barth-Maron et al., "Distributed distributional deterministic policy gradients", 2018 (Gaussian); Uhlenbeck
// and Ornstein, "On the theory of the Brownian motion", 1930, as used by Lillicrap et al., "Continuous control with
// deep reinforcement learning", 2016.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/number_text.hpp>
#include <replicator/core/philox.hpp>

namespace replicator::rl {

// A standard normal random number. Source: Box and Muller, "A note on the generation of random normal deviates", 1958.
inline float normal(PhiloxStream& random) {
  constexpr double two_pi = 6.283185307179586;
  const double u = 1 - static_cast<double>(random.uniform()), v = static_cast<double>(random.uniform());  // u in (0, 1]
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(two_pi * v));
}

enum class Noise : std::uint8_t {
  gaussian,            // independent in each step
  ornstein_uhlenbeck,  // drifts, and is pulled back to 0
};

struct ExplorationOptions {
  Noise noise = Noise::gaussian;
  double stddev = 0.3;  // of the change in one step; actions are in [-1, 1]
  double pull = 0.15;   // Ornstein-Uhlenbeck: the share of the noise that is lost in a step
};

// The noise of one environment.
class Exploration {
 public:
  // Throws BuildError for a deviation that is negative or not finite, and for a pull outside of [0, 1].
  Exploration(std::int64_t actions, const ExplorationOptions& options, PhiloxStream random)
      : options_{options}, random_{random}, state_(static_cast<std::size_t>(actions)) {
    if (!(options.stddev >= 0 && std::isfinite(options.stddev)) || !(options.pull >= 0 && options.pull <= 1))
      throw BuildError{"noise on actions takes a finite deviation from 0 on and a pull in [0, 1]; found " + replicator::detail::number_text(options.stddev) + " and " +
                       replicator::detail::number_text(options.pull)};
  }

  // Call before an episode.
  void reset() { std::fill(state_.begin(), state_.end(), 0.0f); }

  // Adds the noise of the next step, and clips to [-1, 1].
  void operator()(std::span<float> action) {
    const float kept = options_.noise == Noise::gaussian ? 0 : static_cast<float>(1 - options_.pull);
    for (std::size_t i = 0; i < action.size(); ++i) {
      state_[i] = kept * state_[i] + static_cast<float>(options_.stddev) * normal(random_);
      action[i] = std::clamp(action[i] + state_[i], -1.0f, 1.0f);
    }
  }

 private:
  ExplorationOptions options_;
  PhiloxStream random_;
  std::vector<float> state_;
};

}  // namespace replicator::rl
