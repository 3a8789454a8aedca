// SPDX-License-Identifier: Apache-2.0
// The bodies load, repeat bit by bit, give rewards in [0, 1], and give no high reward for doing nothing.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <replicator/rl/actors.hpp>

#include "../../examples/d4pg/tasks.hpp"

namespace test_tasks {

namespace rp = replicator;
namespace rl = rp::rl;
using Catch::Matchers::Contains;

static_assert(rl::Environment<rl::BodyEnvironment>);

namespace {

struct Life {
  std::vector<float> seen;
  double reward = 0;
  int steps = 0;
};

// An episode of the action sin(step / 5), scaled.
Life live(rl::BodyEnvironment& environment, std::uint64_t episode, double scale) {
  Life life;
  std::vector<float> observation(static_cast<std::size_t>(environment.observation_shape().elements()));
  environment.reset(episode);
  for (bool last = false; !last; ++life.steps) {
    const std::vector<float> action(static_cast<std::size_t>(environment.action_size()), static_cast<float>(scale * std::sin(life.steps / 5.0)));
    const auto outcome = environment.act(action);
    environment.observe(observation);
    life.seen.insert(life.seen.end(), observation.begin(), observation.end());
    REQUIRE((outcome.reward >= 0 && outcome.reward <= 1 && outcome.discount == 1));
    life.reward += static_cast<double>(outcome.reward);
    last = outcome.last;
  }
  return life;
}

}  // namespace

TEST_CASE("every body lives through an episode that is a function of its number and the actions, and earns little by doing nothing") {
  for (const auto& name : d4pg::task_names()) {
    INFO(name);
    const rl::Body body{d4pg::task_of(name)};
    rl::BodyEnvironment environment{body}, another{body};
    const auto first = live(environment, 7, 0.8);
    CHECK(first.steps == body.task().ticks_per_episode / body.task().ticks_per_action);
    CHECK(std::all_of(first.seen.begin(), first.seen.end(), [](float value) { return std::isfinite(value); }));
    live(another, 8, 0.3);
    const auto again = live(another, 7, 0.8);
    CHECK(first.seen == again.seen);
    CHECK(first.reward == again.reward);
    CHECK(live(environment, 8, 0.8).seen != first.seen);
    double idle = 0;
    for (std::uint64_t episode = 0; episode < 4; ++episode) idle += live(environment, episode, 0).reward / 4;
    CHECK(d4pg::score(body.task(), idle) < 400);
  }
}

TEST_CASE("a pole that stands still in the middle earns all there is") {
  const auto task = d4pg::cartpole_task();
  const rl::Body body{task};
  rl::BodyEnvironment environment{body};
  environment.reset(1);
  auto& data = const_cast<mjData&>(environment.data());
  for (int i = 0; i < 2; ++i) data.qpos[i] = data.qvel[i] = 0;
  CHECK(task.reward(body.model(), data) == 1);
}

TEST_CASE("a model that MuJoCo refuses, a motor without a range, a task without a reward and one that is unknown are told") {
  auto task = d4pg::pendulum_task();
  task.mjcf = "<mujoco><worldbody><geom size='-'/></worldbody></mujoco>";
  CHECK_THROWS_WITH(rl::Body{task}, Contains("MuJoCo cannot load the model of pendulum: "));
  task.mjcf = "<mujoco><worldbody><body><joint name='j'/><geom size='1'/></body></worldbody><actuator><motor joint='j'/></actuator></mujoco>";
  CHECK_THROWS_WITH(rl::Body{task}, Contains("actuator 0 of pendulum has no range: write ctrllimited"));
  task.reward = nullptr;
  CHECK_THROWS_WITH(rl::Body{task}, Contains("the task \"pendulum\" needs reset, observe and reward"));
  CHECK_THROWS_WITH(d4pg::task_of("horse"), "there is no task \"horse\": there are cartpole, pendulum, reacher and walker");
}

TEST_CASE("errors of MuJoCo are exceptions, not a question on standard input, and an action that is no number is refused") {
  const rl::Body body{d4pg::pendulum_task()};
  CHECK_THROWS_WITH(mju_error("out of luck"), "MuJoCo: out of luck");
  rl::BodyEnvironment environment{body};
  environment.reset(1);
  const float action[] = {NAN};
  CHECK_THROWS_WITH(environment.act(action), "action 0 of pendulum is nan");
}

}  // namespace test_tasks
