// SPDX-License-Identifier: Apache-2.0
// What d4pg can be asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "../support/not_negative.hpp"
#include "tasks.hpp"

namespace d4pg {

struct Options {
  std::string task = "cartpole";
  bool pixels = false;
  std::int64_t steps = 30000;
  std::int64_t global_batch = 128;
  std::int64_t environments = 4;
  std::int64_t lockstep = 1;
  std::int64_t threads = 1;
  std::int64_t warm_up = 1000;
  std::int64_t capacity = 100'000;
  std::int64_t n_step = 5;
  std::int64_t atoms = 51;
  std::int64_t target_period = 100;
  std::int64_t evaluate_every = 1000;
  std::vector<std::int64_t> hidden = {128, 128};
  double discount = 0.99;
  double learning_rate = 3e-4;
  double priority = 0;
  double noise = 0.3;
  bool ornstein_uhlenbeck = false;
  std::string tensorboard;
  std::string curve;
  std::string strip;
  std::string save;
};

inline void add_flags(CLI::App& app, Options& o) {
  const CLI::Range positive{std::int64_t{1}, std::int64_t{1} << 40}, from_zero{std::int64_t{0}, std::int64_t{1} << 40};
  const CLI::Range share{0.0, 1.0};
  app.add_option("--task", o.task, "What is to be learned")->check(CLI::IsMember(task_names()))->capture_default_str();
  app.add_flag("--pixels", o.pixels, "The agent sees three pictures of 64 x 64 pixels, not the state of the body");
  app.add_option("--steps", o.steps, "Steps of the learner")->check(positive)->capture_default_str();
  app.add_option("--global-batch", o.global_batch, "Transitions in a step of the learner, over all replicas")->check(positive)->capture_default_str();
  app.add_option("--environments", o.environments, "Of each replica that take a step together; there are two such groups")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--lockstep", o.lockstep,
                 "Environment steps of each replica for every step of the learner: a run can be repeated bit by bit. 0: both go as fast as they can")
      ->check(from_zero)
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Of each process, that move bodies while the learner learns")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->capture_default_str();
  app.add_option("--warm-up", o.warm_up, "Environment steps of each replica before the first step of the learner")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--capacity", o.capacity, "Transitions that each replica keeps; of pictures, 74 KB each")->check(positive)->capture_default_str();
  app.add_option("--n-step", o.n_step, "Steps that a transition is over")->check(positive)->capture_default_str();
  app.add_option("--discount", o.discount, "Of the next step's reward")->check(CLI::Range(0.0, 0.9999))->capture_default_str();
  app.add_option("--atoms", o.atoms, "Of the critic's distribution of returns")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1001}))
      ->capture_default_str();
  app.add_option("--target-period", o.target_period, "Steps of the learner from one copy of the target networks to the next")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--hidden", o.hidden, "Features of the hidden layers")->check(positive)->delimiter(',')->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "Of both networks, for Adam")->check(examples::not_negative)->capture_default_str();
  app.add_option("--priority", o.priority, "Exponent of the error by which transitions are drawn; 0: all alike")->check(share)->capture_default_str();
  app.add_option("--noise", o.noise, "Standard deviation of what is added to actions, which reach from -1 to 1")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_flag("--ornstein-uhlenbeck", o.ornstein_uhlenbeck, "Noise that follows itself, and changes by --noise in a step; else it is new in each");
  app.add_option("--evaluate-every", o.evaluate_every, "Steps of the learner from one evaluation, without noise, to the next; 0: none")
      ->check(from_zero)
      ->capture_default_str();
  app.add_option("--tensorboard", o.tensorboard, "Folder for what TensorBoard shows");
  app.add_option("--curve", o.curve, "Where the learning curve is drawn at the end, as PNG: in grey with noise, in blue without");
  app.add_option("--strip", o.strip, "Where pictures of an episode are drawn at the end, as PNG");
  app.add_option("--save", o.save, "Where the networks are written at the end, as safetensors");
}

}  // namespace d4pg
