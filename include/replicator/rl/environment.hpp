// SPDX-License-Identifier: Apache-2.0
// The concept of an environment, in which an agent acts.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include <replicator/core/shape.hpp>

namespace replicator::rl {

// The result of an action.
struct Outcome {
  float reward = 0;
  float discount = 1;  // factor of all later rewards: 0 after a terminal state, 1 if only the time is over
  bool last = false;   // the episode has ended: call reset() next
};

// A world that depends only on the argument of reset and the actions since. Different environments may be used by
// different threads at a time.
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
