// SPDX-License-Identifier: Apache-2.0
// Target networks: copies of variables that are refreshed periodically.
// Source: Mnih et al., "Human-level control through deep reinforcement learning", Nature 518, 2015.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/ops/elementwise.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

// Creates a copy "target.<its name>" (mirrored, not trainable) of every trainable variable below `scope` that this step
// has read so far. Refreshes the copies before every `period`-th step of this replicated step, the first one included.
// After this call, a network that is called within replica.scope("target") reads the copies:
//   auto value = critic(replica, x);                       // declares and reads critic.linear.weight
//   rp::nn::update_targets(replica, "critic", 100);
//   auto target = [&] { const auto scope = replica.scope("target"); return critic(replica, next); }();
// Throws BuildError unless period >= 1, if no such variable was read, and within a scope: `scope` is a whole name here.
template <class = void>
void update_targets(ReplicaContext& replica, std::string_view scope, std::int64_t period,
                    std::source_location where = std::source_location::current()) {
  const auto variables = replica.trainable_variables<float>(scope);
  if (period < 1 || variables.empty())
    throw BuildError{replicator::detail::call_text(replica.id(), "update_targets", where) + ": found " +
                     std::to_string(variables.size()) + " variables below \"" + std::string{scope} + "\" that this step has read, and a period of " +
                     std::to_string(period) + ": call the network first, and take a period from 1 on"};
  if (const auto& within = replica.graph().scope(); !within.empty())
    throw BuildError{replicator::detail::call_text(replica.id(), "update_targets", where) + " was called within the scope \"" +
                     within + "\": call it outside of any scope, with the network's whole name"};
  const auto of_period = static_cast<double>(period);
  const Tensor<double> part{replicator::detail::map_at(
      replica.graph(), DType::float64, where, [=](Symbol step) { return step / of_period - floor(step / of_period); }, replica.step(where))};
  const auto due = located<Tensor<double>>{part, where} == 0;
  for (const auto& variable : variables) {
    // The network declares it again, with the same initialiser.
    const Initializer initializer = replica.graph().variables()[variable.index()].initializer;
    const auto copy = replica.variable<float>("target." + variable.name(), variable.shape(), initializer, {.trainable = false}, where);
    copy.assign(select(due, variable.read(where), copy.read(where), where), where);
  }
}

}  // namespace replicator::nn
