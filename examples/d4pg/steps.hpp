// SPDX-License-Identifier: Apache-2.0
// The algorithm of the papers as the steps of one replica: how actions are chosen, and how the networks learn.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include <replicator/models/d4pg.hpp>
#include <replicator/replicator.hpp>

#include "options.hpp"

namespace d4pg {

namespace rp = replicator;
using Floats = rp::Tensor<float>;

inline rp::models::D4pgOptions networks(const Options& o, std::int64_t actions) {
  return {.actions = actions, .hidden = o.hidden, .atoms = o.atoms};
}

// Rewards lie in [0, 1], so returns in [0, 1 / (1 - discount)].
inline rp::AtomOptions atoms(const Options& o) { return {.atoms = o.atoms, .low = 0, .high = 1 / (1 - o.discount)}; }

// Observations as features: unchanged, or, for pictures, encoded by the critic's encoder.
template <class O>
Floats features(rp::ReplicaContext& replica, rp::Tensor<O> observations, const rp::models::D4pgOptions& network) {
  if constexpr (std::is_same_v<O, float>) return observations;
  else {
    const auto scope = replica.scope("critic");
    return rp::models::d4pg_encoder(replica, rp::cast<float>(observations), network);
  }
}

// a = pi(x). The noise is added where the action is done.
template <class O>
auto actor_step(const Options& o, std::int64_t actions) {
  return [network = networks(o, actions)](rp::ReplicaContext& replica, rp::Tensor<O> observations) {
    return rp::models::d4pg_actor(replica, features(replica, observations, network), network);  // [environments, actions]
  };
}

// The input: transitions (x, a, r_0 + ... + g^(n-1) r_(n-1), g^n, x_n) of this replica's replay, and their weights.
template <class O>
auto learner_step(const Options& o, std::int64_t actions) {
  return [&o, network = networks(o, actions)](rp::ReplicaContext& replica, rp::Tensor<O> observation, Floats action, Floats reward, Floats discount,
                                              rp::Tensor<O> next, Floats weight) {
    const auto x = features(replica, observation, network), fixed = rp::stop_gradient(x);  // only the critic trains its encoder
    const auto logits = rp::models::d4pg_critic(replica, x, action, network);              // [n, atoms]: of Z(x, a)
    const auto best = rp::models::d4pg_actor(replica, fixed, network);                     // [n, actions]: pi(x)
    for (const char* scope : {"actor", "critic"}) rp::nn::update_targets(replica, scope, o.target_period);

    // Y = r_0 + ... + g^(n-1) r_(n-1) + g^n Z'(x_n, pi'(x_n)), projected onto the atoms
    const auto future = [&] {
      const auto scope = replica.scope("target");
      const auto x_n = features(replica, next, network);
      return rp::softmax(rp::models::d4pg_critic(replica, x_n, rp::models::d4pg_actor(replica, x_n, network), network));
    }();
    const auto goal = rp::stop_gradient(rp::categorical_projection(future, reward, discount, atoms(o)));  // [n, atoms]

    // min over Z: E weight H(Y, Z(x, a));  max over pi: E E[Z(x, pi(x))]
    const auto errors = -rp::sum(goal * rp::log_softmax(logits), {1});  // [n]
    const auto critic_loss = rp::mean(errors * weight);
    const auto values = rp::softmax(rp::models::d4pg_critic(replica, fixed, best, network)) * rp::constant(replica, rp::atom_values(atoms(o)));
    const auto value = rp::mean(rp::sum(values, {1}));
    const auto adam = rp::nn::adam({.learning_rate = o.learning_rate});
    adam.minimize(replica, critic_loss, replica.trainable_variables<float>("critic"));
    adam.minimize(replica, -value, replica.trainable_variables<float>("actor"));
    return std::tuple{critic_loss, value, errors};
  };
}

}  // namespace d4pg
