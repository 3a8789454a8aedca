// SPDX-License-Identifier: Apache-2.0
// The command-line options of d4pg.
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
  app.add_option("--task", o.task, "what is to be learned")->check(CLI::IsMember(task_names()))->capture_default_str();
  app.add_flag("--pixels", o.pixels, "the agent sees three pictures of 64 x 64 pixels, not the state of the body");
  app.add_option("--steps", o.steps, "steps of the learner")->check(positive)->capture_default_str();
  app.add_option("--global-batch", o.global_batch, "transitions in a step of the learner, over all replicas")->check(positive)->capture_default_str();
  app.add_option("--environments", o.environments, "environments in each of a replica's two groups; a group acts at once")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--lockstep", o.lockstep,
                 "environment steps of each replica for every step of the learner; such a run can be repeated bit by bit. 0: both run as fast as they can")
      ->check(from_zero)
      ->capture_default_str();
  app.add_option("--threads", o.threads, "threads of each process that move bodies while the learner learns")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->capture_default_str();
  app.add_option("--warm-up", o.warm_up, "environment steps of each replica before the first step of the learner")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--capacity", o.capacity, "transitions in each replica's replay; with --pixels 74 KB each")->check(positive)->capture_default_str();
  app.add_option("--n-step", o.n_step, "steps of a transition")->check(positive)->capture_default_str();
  app.add_option("--discount", o.discount, "discount of the next step's reward")->check(CLI::Range(0.0, 0.9999))->capture_default_str();
  app.add_option("--atoms", o.atoms, "atoms of the critic's distribution of returns")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1001}))
      ->capture_default_str();
  app.add_option("--target-period", o.target_period, "steps of the learner from one copy of the target networks to the next")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--hidden", o.hidden, "features of the hidden layers")->check(positive)->delimiter(',')->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "Adam's rate, for both networks")->check(examples::not_negative)->capture_default_str();
  app.add_option("--priority", o.priority, "exponent of the error in the probability of drawing a transition; 0: uniform")->check(share)->capture_default_str();
  app.add_option("--noise", o.noise, "standard deviation of the noise on actions, which are in [-1, 1]")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_flag("--ornstein-uhlenbeck", o.ornstein_uhlenbeck, "correlated noise that changes by --noise in a step; without this flag it is independent in each step");
  app.add_option("--evaluate-every", o.evaluate_every, "learner steps between evaluations, which have no noise; 0: none")
      ->check(from_zero)
      ->capture_default_str();
  app.add_option("--tensorboard", o.tensorboard, "folder for what TensorBoard shows");
  app.add_option("--curve", o.curve, "PNG file for the learning curve at the end: in grey with noise, in blue without");
  app.add_option("--strip", o.strip, "PNG file for pictures of an episode at the end");
  app.add_option("--save", o.save, "safetensors file for the networks at the end");
}

}  // namespace d4pg
