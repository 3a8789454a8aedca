// SPDX-License-Identifier: Apache-2.0
// Runs many environments in parallel and collects their transitions. A checkpoint does not hold the environments: after
// --resume they begin anew.
// <replicator/replicator.hpp>, or data/worker_threads.hpp, brings the code of the threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/data/worker_pool.hpp>
#include <replicator/rl/environment.hpp>
#include <replicator/rl/exploration.hpp>
#include <replicator/rl/n_step.hpp>
#include <replicator/rl/replay.hpp>

namespace replicator::rl {

struct ActorsOptions {
  std::int64_t environments = 1;  // in each of the two groups
  NStepOptions n_step = {};
  ExplorationOptions exploration = {};
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // separates actors with the same seed; use steps of 2^32
};

struct Episode {
  double reward = 0;  // sum over the episode
  std::int64_t steps = 0;
};

// Two groups of environments. While the actions of one group are computed, the other group acts, so neither the device
// nor the simulation waits. (A replicated step reads its input ahead; so its next observations are ready in time.)
// Observations depend only on options and actions, not on the number of threads.
template <Environment E>
class Actors {
 public:
  using Observation = typename E::Observation;
  static constexpr std::int64_t groups = 2;

  // Calls `make()` 2 * environments times, in the calling thread. Throws BuildError for less than one environment.
  Actors(const ActorsOptions& options, const std::function<E()>& make) : options_{options} {
    if (options.environments < 1)
      throw BuildError{"actors with " + std::to_string(options.environments) + " environments in a group were asked for: take at least 1"};
    for (std::int64_t i = 0; i < groups * options.environments; ++i)
      lanes_.push_back(Lane{make(), NStep<Observation>{options.n_step}, options, static_cast<std::uint64_t>(i)});
  }

  std::int64_t environments() const { return options_.environments; }
  std::int64_t action_size() const { return lanes_[0].environment.action_size(); }
  Shape observation_shape() const { return lanes_[0].environment.observation_shape(); }

  const E& environment(std::int64_t group, std::int64_t i) const { return lane(group, i).environment; }

  // The current observations of a group (0 or 1): [environments, ...].
  Array<Observation> observations(std::int64_t group) const {
    Shape shape{environments()};
    for (const auto extent : observation_shape()) shape.push_back(extent);
    Array<Observation> result{shape};
    const auto extent = observation_shape().elements();
    for (std::int64_t i = 0; i < environments(); ++i) {
      const auto& seen = lane(group, i).observation;
      std::copy(seen.begin(), seen.end(), result.data() + i * extent);
    }
    return result;
  }

  // One step of each environment of a group, on the threads of `pool`, or in this thread if it is null. `actions` is
  // [environments, actions]; exploration noise is added here. The transitions are kept until store().
  // Throws BuildError for another shape, and whatever an environment throws.
  void act(std::int64_t group, const Array<float>& actions, data::WorkerPool* pool = nullptr) {
    const Shape expected{environments(), action_size()};
    if (!(actions.shape() == expected))
      throw BuildError{"actions of shape " + actions.shape().text() + " were given to environments that take " + expected.text()};
    data::for_each_index(pool, environments(), [&](std::int64_t i, int) {
      lane(group, i).act({actions.data() + i * action_size(), static_cast<std::size_t>(action_size())});
    });
  }

  // Moves the transitions of act() into the replay, in the order of the environments, and returns the episodes that
  // have ended. If `replay` is null, the transitions are dropped.
  std::vector<Episode> store(Replay<Observation>* replay) {
    std::vector<Episode> ended;
    for (auto& lane : lanes_) {
      for (const auto& one : lane.made)
        if (replay) replay->add({one.observation, one.action, one.reward, one.discount, one.next});
      lane.made.clear();
      ended.insert(ended.end(), lane.ended.begin(), lane.ended.end());
      lane.ended.clear();
    }
    return ended;
  }

 private:
  struct Made {
    std::vector<Observation> observation;
    std::vector<float> action;
    float reward, discount;
    std::vector<Observation> next;
  };

  struct Lane {
    Lane(E made_environment, NStep<Observation> steps, const ActorsOptions& options, std::uint64_t number)
        : environment{std::move(made_environment)},
          n_step{std::move(steps)},
          exploration{environment.action_size(), options.exploration, PhiloxStream{options.seed, options.stream + number, 1}},
          observation(static_cast<std::size_t>(environment.observation_shape().elements())),
          next(observation.size()),
          episodes{options.seed, options.stream + number, 2} {
      begin();
    }

    void begin() {
      const std::uint64_t high = episodes.next(), low = episodes.next();
      environment.reset(high << 32 | low);
      exploration.reset();
      environment.observe(observation);
      episode = {};
    }
    void act(std::span<const float> wanted) {
      std::vector<float> action{wanted.begin(), wanted.end()};
      exploration(action);
      const Outcome outcome = environment.act(action);
      environment.observe(next);
      episode.reward += static_cast<double>(outcome.reward);
      ++episode.steps;
      n_step.add(std::span<const Observation>{observation}, action, outcome, std::span<const Observation>{next},
                 [&](const Transition<Observation>& t) {
                   made.push_back({{t.observation.begin(), t.observation.end()}, {t.action.begin(), t.action.end()}, t.reward, t.discount, {t.next.begin(), t.next.end()}});
                 });
      std::swap(observation, next);
      if (!outcome.last) return;
      ended.push_back(episode);
      begin();
    }

    E environment;
    NStep<Observation> n_step;
    Exploration exploration;
    std::vector<Observation> observation, next;
    PhiloxStream episodes;
    Episode episode;
    std::vector<Made> made;
    std::vector<Episode> ended;
  };

  Lane& lane(std::int64_t group, std::int64_t i) { return lanes_[static_cast<std::size_t>(group * environments() + i)]; }
  const Lane& lane(std::int64_t group, std::int64_t i) const { return lanes_[static_cast<std::size_t>(group * environments() + i)]; }

  ActorsOptions options_;
  std::vector<Lane> lanes_;
};

}  // namespace replicator::rl
