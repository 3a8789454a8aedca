// SPDX-License-Identifier: Apache-2.0
// Distributed distributional deterministic policy gradients (D4PG, Barth-Maron et al. 2018) on bodies simulated by
// MuJoCo:
//   ./d4pg --task cartpole --replicas 2 --devices cpu:0-1 --curve cartpole.png
// Two replicated steps share their variables: one chooses actions, the other learns (d4pg/steps.hpp). Each replica has
// its own environments and replay (d4pg/world.hpp). docs/d4pg.md says more.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <replicator/replicator.hpp>
#include <replicator/rl/offscreen.hpp>

#include "d4pg/options.hpp"
#include "d4pg/report.hpp"
#include "d4pg/tasks.hpp"
#include "d4pg/world.hpp"
#include "support/program.hpp"

namespace d4pg {

// Refuses flags that need a run to be resumable, before anything is built. Throws BuildError.
void require_possible(const rp::Deployment& deployment) {
  const std::pair<bool, const char*> impossible[] = {
      {!deployment.checkpoint.folder.empty(), "--checkpoint"}, {deployment.elastic, "--elastic"}, {!deployment.see.replay.empty(), "--replay"}};
  for (const auto& [asked, flag] : impossible)
    if (asked)
      throw rp::BuildError{std::string{flag} +
                           ": environments and replays are not saved, so a run can only start anew; --save keeps its networks"};
}

// Throws BuildError for options that do not fit the processes and replicas that there are.
void require_fitting(const rp::Replicator& repl, const Options& o) {
  if (o.lockstep == 0 && repl.processes() > 1)
    throw rp::BuildError{"--lockstep 0 is for one process: the steps of several must be as many on each"};
  repl.input_context(0).replica_batch(o.global_batch);
}

template <rp::rl::Environment E>
int train(rp::Deployment deployment, const Options& o) {
  require_possible(deployment);
  const rp::StopOnSignal stop;
  rp::Replicator repl{std::move(deployment)};
  require_fitting(repl, o);
  const bool speaks = repl.process() == 0;
  const rp::rl::Body body{task_of(o.task)};
  Report report{o, body.task(), speaks};
  std::optional<rp::rl::Renderer> renderer;  // only on process 0, and only to draw a strip
  if (!o.strip.empty() && speaks) renderer.emplace(body.model(), strip_extent, strip_extent);
  rp::data::WorkerPool pool{static_cast<int>(o.threads)};
  World<E> world{repl, o, body, true, pool}, unseen{repl, o, body, false, pool};

  const auto going = [&] { return repl.stop_signal() == 0; };
  const auto warm_up = std::max(o.warm_up, World<E>::Actors::groups * o.environments * o.n_step);  // so that no replay is empty
  while (world.steps_done() < warm_up && going()) report.explored(0, world.act());
  if (!going()) return rp::end_training(repl, 0, o.steps, "its networks have learned nothing");

  Learner<E> learner{repl, o, body, world};
  const auto evaluate = [&] {
    std::vector<rp::rl::Episode> episodes;
    while (episodes.size() < unseen.environments() && going()) {
      const auto ended = unseen.act();
      episodes.insert(episodes.end(), ended.begin(), ended.end());
    }
    if (going()) report.evaluated(learner.steps_done(), world.steps_done() * repl.replicas(), episodes);
  };
  const auto due = [&](std::int64_t step) { return o.evaluate_every > 0 && (step % o.evaluate_every == 0 || step == o.steps); };
  const auto may_learn = [&] { return learner.steps_done() < o.steps && going(); };
  const auto learn = [&] {
    const auto figures = learner.step();
    report.learned(learner.steps_done(), figures);
    if (due(learner.steps_done())) evaluate();
  };
  if (due(0)) evaluate();
  while (may_learn()) {
    const auto ended = world.act([&](auto&& still_moving) {
      if (o.lockstep > 0)
        while (may_learn() && learner.steps_done() * o.lockstep < world.steps_done() - warm_up + o.environments) learn();
      else
        do learn();
        while (may_learn() && still_moving());
    });
    report.explored(learner.steps_done(), ended);
  }
  report.draw_curve();
  if (!o.save.empty() && speaks) rp::save_weights(repl, o.save);
  if (!going()) return rp::end_training(repl, learner.steps_done(), o.steps, o.save.empty() ? "nothing is saved without --save" : o.save + " has its networks");
  if (!o.strip.empty()) draw_strip(o.strip, unseen, renderer);
  const auto digest = repl.digest();
  if (speaks) std::cout << "weights sha256: " << digest << std::endl;
  return 0;
}

}  // namespace d4pg

int main(int argc, char** argv) {
  d4pg::Options options;
  CLI::App app{
      "Learns to move a body, by distributed distributional deterministic policy gradients. With --lockstep the same replicas, batch and seed give "
      "the same weights, wherever the replicas run.",
      "d4pg"};
  d4pg::add_flags(app, options);
  return example::run(app, argc, argv, [&](replicator::Deployment deployment) {
    return options.pixels ? d4pg::train<replicator::rl::SeenBodyEnvironment>(std::move(deployment), options)
                          : d4pg::train<replicator::rl::BodyEnvironment>(std::move(deployment), options);
  });
}
