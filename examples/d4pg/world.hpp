// SPDX-License-Identifier: Apache-2.0
// The environments and replays of a process's replicas, and the learner that draws from them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/replicator.hpp>
#include <replicator/rl/actors.hpp>
#include <replicator/rl/random_shift.hpp>

#include "options.hpp"
#include "steps.hpp"

namespace d4pg {

inline rp::rl::ActorsOptions actors_of(const Options& o, const rp::InputContext& ctx, bool explores) {
  const auto number = 2 * static_cast<std::uint64_t>(ctx.replica()) + (explores ? 0 : 1);
  const auto noise = o.ornstein_uhlenbeck ? rp::rl::Noise::ornstein_uhlenbeck : rp::rl::Noise::gaussian;
  return {.environments = o.environments,
          .n_step = {.steps = o.n_step, .discount = o.discount},
          .exploration = {.noise = noise, .stddev = explores ? o.noise : 0},
          .seed = ctx.seed(),
          .stream = number << 32};
}

// Environments that fill replays, or that only evaluate. An extra thread and the threads of the pool move bodies. All
// other work, such as that on replays and inputs of steps, is done by the calling thread.
template <rp::rl::Environment E>
class World {
 public:
  using Observation = typename E::Observation;
  using Actors = rp::rl::Actors<E>;
  using Replay = rp::rl::Replay<Observation>;

 private:
  struct Part {
    Actors actors;
    std::optional<Replay> replay;
  };

  // Step i reads the observations of group i % 2. It reads them while step i - 1 runs, after the actions of step i - 2.
  auto observations(const rp::InputContext& ctx, bool explores) {
    Actors actors{actors_of(o_, ctx, explores), [this] { return E{body_}; }};
    std::optional<Replay> replay;
    if (explores)
      replay.emplace(actors.observation_shape(), actors.action_size(),
                     rp::rl::ReplayOptions{.capacity = o_.capacity, .priority_exponent = o_.priority});
    auto& part = parts_[ctx.replica()];
    part = std::make_unique<Part>(Part{std::move(actors), std::move(replay)});
    return rp::data::from_generator([&part = *part](std::int64_t position) { return part.actors.observations(position % Actors::groups); });
  }

 public:
  // All arguments must outlive this object.
  World(rp::Replicator& repl, const Options& o, const rp::rl::Body& body, bool explores, rp::data::WorkerPool& pool)
      : repl_{repl},
        o_{o},
        body_{body},
        pool_{pool},
        step_{repl.replicate([this, explores](const rp::InputContext& ctx) { return observations(ctx, explores); },
                             actor_step<Observation>(o, body.actions()))} {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Replay& replay(int replica) { return *parts_.at(replica)->replay; }
  std::int64_t steps_done() const { return steps_done_; }  // by each replica
  std::size_t environments() const { return parts_.size() * static_cast<std::size_t>(Actors::groups * o_.environments); }
  const rp::rl::Body& body() const { return body_; }
  const E& first_environment() const { return parts_.begin()->second->actors.environment(0, 0); }

  // Every environment of a group acts once. Calls meanwhile(still_moving) while bodies move. Returns the episodes that
  // ended.
  template <class F>
  std::vector<rp::rl::Episode> act(F&& meanwhile) {
    const auto results = step_.step();
    const auto& actions = std::get<0>(results);
    const auto group = turn_++ % Actors::groups;
    auto moving = std::async(std::launch::async, [&] {
      for (auto& [replica, part] : parts_) part->actors.act(group, actions[replica], &pool_);
    });
    meanwhile([&] { return moving.wait_for(std::chrono::seconds{0}) != std::future_status::ready; });
    wait_for(moving);
    steps_done_ += o_.environments;
    std::vector<rp::rl::Episode> ended;
    for (auto& [replica, part] : parts_) {
      const auto of_part = part->actors.store(part->replay ? &*part->replay : nullptr);
      ended.insert(ended.end(), of_part.begin(), of_part.end());
    }
    return ended;
  }
  std::vector<rp::rl::Episode> act() {
    return act([](auto&&) {});
  }

 private:
  // Rethrows an environment's exception. An environment that does not return cannot be stopped, so at the deadline the
  // process exits. The other processes of the job notice that.
  void wait_for(std::future<void>& moving) const {
    const auto late = repl_.deployment().late;
    const std::chrono::milliseconds deadline = repl_.deployment().deadline;
    // Waits in slices, so that time in which this process itself is stopped does not count.
    std::chrono::milliseconds waited{0};
    const auto missed = [&](std::chrono::milliseconds time) {
      while (waited < time) {
        const auto slice = std::min(time - waited, std::chrono::milliseconds{1000});
        if (moving.wait_for(slice) == std::future_status::ready) return false;
        waited += slice;
      }
      return true;
    };
    const auto tell = [&](const char* what, std::chrono::milliseconds time) {
      std::fprintf(stderr, "d4pg: process %d: the environments of replicas %d to %d have not done action %lld for %g s%s\n", repl_.process(),
                   parts_.begin()->first, parts_.rbegin()->first, static_cast<long long>(turn_), static_cast<double>(time.count()) / 1000, what);
    };
    if (late.count() > 0 && (deadline.count() == 0 || late < deadline) && missed(late)) tell(": it still waits", late);
    if (deadline.count() > 0 && missed(deadline)) {
      tell(", which is the deadline: it ends", deadline);
      std::_Exit(1);
    }
    moving.get();
  }

  rp::Replicator& repl_;
  const Options& o_;
  const rp::rl::Body& body_;
  rp::data::WorkerPool& pool_;
  std::map<int, std::unique_ptr<Part>> parts_;  // by replica
  rp::Step<rp::Array<float>> step_;
  std::int64_t turn_ = 0;
  std::int64_t steps_done_ = 0;
};

struct Figures {
  double loss = 0, value = 0;
};

template <rp::rl::Environment E>
class Learner {
  using Observation = typename E::Observation;

  auto batches(const rp::InputContext& ctx, const Options& o) {
    rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(ctx.replica()), 3};
    auto& drawn = drawn_[ctx.replica()];
    auto& replay = world_.replay(ctx.replica());
    return rp::data::from_generator([&drawn, &replay, n = ctx.replica_batch(o.global_batch), random]() mutable {
      auto batch = replay.sample(n, random);
      drawn.push_back(std::move(batch.items));
      if constexpr (std::is_same_v<Observation, std::uint8_t>)
        for (auto* pictures : {&batch.observation, &batch.next}) rp::rl::random_shift(*pictures, 4, random);
      return std::tuple{std::move(batch.observation), std::move(batch.action), std::move(batch.reward),
                        std::move(batch.discount), std::move(batch.next), std::move(batch.weight)};
    });
  }

 public:
  // Draws its first batch, so no replay may be empty. All arguments must outlive this object.
  Learner(rp::Replicator& repl, const Options& o, const rp::rl::Body& body, World<E>& world)
      : world_{world},
        step_{repl.replicate([&](const rp::InputContext& ctx) { return batches(ctx, o); }, learner_step<Observation>(o, body.actions()))} {}
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  std::int64_t steps_done() const { return static_cast<std::int64_t>(step_.steps_done()); }
  Figures step() {
    const auto [loss, value, errors] = step_.step();
    for (auto& [replica, drawn] : drawn_) {
      const auto& found = errors[replica];
      world_.replay(replica).set_errors(drawn.front(), {found.data(), static_cast<std::size_t>(found.size())});
      drawn.pop_front();
    }
    return {static_cast<double>(rp::mean(loss)), static_cast<double>(rp::mean(value))};
  }

 private:
  World<E>& world_;
  std::map<int, std::deque<std::vector<std::int64_t>>> drawn_;  // by replica: the batches without errors so far
  rp::Step<rp::Array<float>, rp::Array<float>, rp::Array<float>> step_;
};

}  // namespace d4pg
