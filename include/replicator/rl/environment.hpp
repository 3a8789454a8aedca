// SPDX-License-Identifier: Apache-2.0
// What an agent acts in.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include <replicator/core/shape.hpp>

namespace replicator::rl {

// What an action led to.
struct Outcome {
  float reward = 0;
  float discount = 1;  // how much of what follows counts: 0 where the state is final, 1 where only the time is over
  bool last = false;   // the episode is at its end: reset() comes next
};

// A world that is a function of what reset was given and of the actions since. Different ones may be used by different threads at a time.
template <class E>
concept Environment = requires(E& e, const E& c, std::uint64_t episode, std::span<typename E::Observation> out, std::span<const float> action) {
  typename E::Observation;  // float, or std::uint8_t of pixels
  { c.observation_shape() } -> std::same_as<Shape>;
  { c.action_size() } -> std::same_as<std::int64_t>;
  e.reset(episode);                            // begins the episode of this number
  c.observe(out);                              // observation_shape().elements() values
  { e.act(action) } -> std::same_as<Outcome>;  // action_size() values in [-1, 1]
};

}  // namespace replicator::rl
