// SPDX-License-Identifier: Apache-2.0
// The MuJoCo bodies and their tasks: cart-pole, pendulum, reacher, walker. The best score of an episode is 1000 (see
// score). The tasks follow those of Tassa et al., "DeepMind control suite", 2018; models, figures and rewards are our
// own.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/rl/mujoco.hpp>

namespace d4pg {

namespace rp = replicator;

namespace detail {

// 1 for x in [low, high]. Outside it falls as a Gaussian, to 0.1 at a distance of `margin`.
inline double near(double x, double low, double high, double margin) {
  const double outside = x < low    ? low - x
                         : x > high ? x - high
                                    : 0;
  const double share = outside / margin;
  return std::exp(-2.302585092994046 * share * share);
}
inline double between(rp::PhiloxStream& random, double low, double high) { return low + (high - low) * static_cast<double>(random.uniform()); }
inline constexpr double half_turn = 3.141592653589793;

}  // namespace detail

// A cart on a rail with a pole. The motor is strong enough to swing the pole up, but not to lift it directly.
inline rp::rl::Task cartpole_task() {
  rp::rl::Task task;
  task.name = "cartpole";
  task.mjcf = R"(
<mujoco model="cartpole">
  <option timestep="0.01"><flag contact="disable"/></option>
  <visual><quality shadowsize="0" offsamples="0"/></visual>
  <worldbody>
    <light pos="0 -2 4" dir="0 0.4 -1" directional="true"/>
    <camera name="watch" pos="0 -4.8 1.1" xyaxes="1 0 0 0 0 1"/>
    <geom name="floor" type="plane" size="4 4 0.1" pos="0 0 -0.05" rgba="0.25 0.35 0.45 1"/>
    <geom name="rail" type="capsule" fromto="-2 0 1 2 0 1" size="0.02" rgba="0.5 0.5 0.5 1"/>
    <body name="cart" pos="0 0 1">
      <joint name="slide" type="slide" axis="1 0 0" limited="true" range="-1.8 1.8" damping="0.0005"/>
      <geom type="box" size="0.2 0.12 0.1" mass="1" rgba="0.9 0.6 0.2 1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0" damping="0.0001"/>
        <geom type="capsule" fromto="0 0 0 0 0 1" size="0.045" mass="0.1" rgba="0.8 0.2 0.2 1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="10" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>)";
  task.ticks_per_action = 4;
  task.features = 5;
  task.reset = [](const mjModel&, mjData& d, rp::PhiloxStream& random) {
    d.qpos[0] = detail::between(random, -0.1, 0.1);
    d.qpos[1] = detail::half_turn + detail::between(random, -0.1, 0.1);  // hanging
    for (int i = 0; i < 2; ++i) d.qvel[i] = detail::between(random, -0.02, 0.02);
  };
  task.observe = [](const mjModel&, const mjData& d, float* out) {
    const double features[] = {d.qpos[0], std::cos(d.qpos[1]), std::sin(d.qpos[1]), d.qvel[0], d.qvel[1]};
    for (int i = 0; i < 5; ++i) out[i] = static_cast<float>(features[i]);
  };
  task.reward = [](const mjModel&, const mjData& d) {
    const double upright = (std::cos(d.qpos[1]) + 1) / 2;
    const double centred = (1 + detail::near(d.qpos[0], 0, 0, 2)) / 2;
    const double calm = (1 + detail::near(d.qvel[1], 0, 0, 5)) / 2;
    const double thrifty = (4 + std::max(0.0, 1 - d.ctrl[0] * d.ctrl[0])) / 5;
    return upright * centred * calm * thrifty;
  };
  return task;
}

// A pole that its motor can only lift by swinging.
inline rp::rl::Task pendulum_task() {
  rp::rl::Task task;
  task.name = "pendulum";
  task.mjcf = R"(
<mujoco model="pendulum">
  <option timestep="0.02"><flag contact="disable"/></option>
  <visual><quality shadowsize="0" offsamples="0"/></visual>
  <worldbody>
    <light pos="0 -2 4" dir="0 0.4 -1" directional="true"/>
    <camera name="watch" pos="0 -2.2 1" xyaxes="1 0 0 0 0 1"/>
    <geom name="floor" type="plane" size="3 3 0.1" rgba="0.25 0.35 0.45 1"/>
    <body name="pole" pos="0 0 1">
      <joint name="hinge" type="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.5" size="0.03" mass="0" rgba="0.8 0.2 0.2 1"/>
      <geom type="sphere" pos="0 0 0.5" size="0.07" mass="1" rgba="0.9 0.6 0.2 1"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" gear="1.5" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>)";
  task.ticks_per_action = 2;
  task.features = 3;
  task.reset = [](const mjModel&, mjData& d, rp::PhiloxStream& random) {
    d.qpos[0] = detail::between(random, -detail::half_turn, detail::half_turn);
    d.qvel[0] = detail::between(random, -0.1, 0.1);
  };
  task.observe = [](const mjModel&, const mjData& d, float* out) {
    const double features[] = {std::cos(d.qpos[0]), std::sin(d.qpos[0]), d.qvel[0]};
    for (int i = 0; i < 3; ++i) out[i] = static_cast<float>(features[i]);
  };
  task.reward = [](const mjModel&, const mjData& d) {
    const double upright = (std::cos(d.qpos[0]) + 1) / 2;
    return upright * upright * (1 + detail::near(d.qvel[0], 0, 0, 5)) / 2;
  };
  return task;
}

// A planar arm of two parts. Its tip must reach a mark.
inline rp::rl::Task reacher_task() {
  rp::rl::Task task;
  task.name = "reacher";
  task.mjcf = R"(
<mujoco model="reacher">
  <option timestep="0.02" gravity="0 0 0"><flag contact="disable"/></option>
  <visual><quality shadowsize="0" offsamples="0"/></visual>
  <worldbody>
    <light pos="0 0 2" dir="0 0 -1" directional="true"/>
    <camera name="watch" pos="0 0 0.75" xyaxes="1 0 0 0 1 0"/>
    <geom name="ground" type="plane" size="0.4 0.4 0.1" rgba="0.25 0.35 0.45 1"/>
    <body name="mark" mocap="true"><geom type="sphere" size="0.03" rgba="0.9 0.2 0.2 1"/></body>
    <body name="upper" pos="0 0 0.02">
      <joint name="shoulder" type="hinge" axis="0 0 1" damping="0.01"/>
      <geom type="capsule" fromto="0 0 0 0.12 0 0" size="0.01" density="1000" rgba="0.9 0.6 0.2 1"/>
      <body name="lower" pos="0.12 0 0">
        <joint name="elbow" type="hinge" axis="0 0 1" damping="0.01" limited="true" range="-160 160"/>
        <geom type="capsule" fromto="0 0 0 0.1 0 0" size="0.01" density="1000" rgba="0.9 0.8 0.2 1"/>
        <site name="tip" pos="0.1 0 0" size="0.01"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="shoulder" gear="0.05" ctrllimited="true" ctrlrange="-1 1"/>
    <motor joint="elbow" gear="0.05" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>)";
  task.ticks_per_action = 4;
  task.features = 8;
  task.reset = [](const mjModel&, mjData& d, rp::PhiloxStream& random) {
    d.qpos[0] = detail::between(random, -detail::half_turn, detail::half_turn);
    d.qpos[1] = detail::between(random, -2.7, 2.7);
    const double angle = detail::between(random, -detail::half_turn, detail::half_turn), radius = detail::between(random, 0.06, 0.2);
    d.mocap_pos[0] = radius * std::cos(angle);
    d.mocap_pos[1] = radius * std::sin(angle);
    d.mocap_pos[2] = 0.02;
  };
  task.observe = [](const mjModel&, const mjData& d, float* out) {
    const double features[] = {std::cos(d.qpos[0]), std::sin(d.qpos[0]), std::cos(d.qpos[1]), std::sin(d.qpos[1]), d.qvel[0], d.qvel[1],
                               10 * (d.mocap_pos[0] - d.site_xpos[0]), 10 * (d.mocap_pos[1] - d.site_xpos[1])};
    for (int i = 0; i < 8; ++i) out[i] = static_cast<float>(features[i]);
  };
  task.reward = [](const mjModel&, const mjData& d) {
    return detail::near(std::hypot(d.mocap_pos[0] - d.site_xpos[0], d.mocap_pos[1] - d.site_xpos[1]), 0, 0.03, 0.15);
  };
  return task;
}

// Two planar legs that must walk to the right at 1 m/s.
inline rp::rl::Task walker_task() {
  rp::rl::Task task;
  task.name = "walker";
  task.mjcf = R"(
<mujoco model="walker">
  <option timestep="0.0025"/>
  <visual><quality shadowsize="0" offsamples="0"/></visual>
  <default>
    <joint type="hinge" axis="0 -1 0" damping="0.1" armature="0.01" limited="true" solimplimit="0 0.99 0.01"/>
    <geom type="capsule" contype="1" conaffinity="0" friction="0.7 0.1 0.1" density="1000" rgba="0.9 0.6 0.2 1"/>
    <motor ctrllimited="true" ctrlrange="-1 1"/>
  </default>
  <worldbody>
    <light pos="0 -2 4" dir="0 0.4 -1" directional="true"/>
    <geom name="floor" type="plane" size="100 4 0.1" conaffinity="1" rgba="0.25 0.35 0.45 1"/>
    <body name="torso" pos="0 0 1.3">
      <camera name="watch" mode="trackcom" pos="0 -3.5 0" xyaxes="1 0 0 0 0 1"/>
      <joint name="height" type="slide" axis="0 0 1" limited="false" damping="0" armature="0"/>
      <joint name="along" type="slide" axis="1 0 0" limited="false" damping="0" armature="0"/>
      <joint name="pitch" type="hinge" axis="0 1 0" limited="false" damping="0" armature="0"/>
      <geom fromto="0 0 -0.25 0 0 0.3" size="0.07"/>
      <body name="right_thigh" pos="0 -0.05 -0.3">
        <joint name="right_hip" range="-20 100"/>
        <geom fromto="0 0 0 0 0 -0.45" size="0.05"/>
        <body name="right_shin" pos="0 0 -0.45">
          <joint name="right_knee" range="-150 0"/>
          <geom fromto="0 0 0 0 0 -0.45" size="0.04"/>
          <body name="right_foot" pos="0 0 -0.47">
            <joint name="right_ankle" range="-45 45"/>
            <geom fromto="-0.05 0 -0.02 0.15 0 -0.02" size="0.05"/>
          </body>
        </body>
      </body>
      <body name="left_thigh" pos="0 0.05 -0.3">
        <joint name="left_hip" range="-20 100"/>
        <geom fromto="0 0 0 0 0 -0.45" size="0.05" rgba="0.9 0.8 0.2 1"/>
        <body name="left_shin" pos="0 0 -0.45">
          <joint name="left_knee" range="-150 0"/>
          <geom fromto="0 0 0 0 0 -0.45" size="0.04" rgba="0.9 0.8 0.2 1"/>
          <body name="left_foot" pos="0 0 -0.47">
            <joint name="left_ankle" range="-45 45"/>
            <geom fromto="-0.05 0 -0.02 0.15 0 -0.02" size="0.05" rgba="0.9 0.8 0.2 1"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="right_hip" gear="100"/><motor joint="right_knee" gear="50"/><motor joint="right_ankle" gear="20"/>
    <motor joint="left_hip" gear="100"/><motor joint="left_knee" gear="50"/><motor joint="left_ankle" gear="20"/>
  </actuator>
</mujoco>)";
  task.ticks_per_action = 10;
  task.ticks_per_episode = 10000;
  task.features = 18;
  task.reset = [](const mjModel& m, mjData& d, rp::PhiloxStream& random) {
    d.qpos[2] = detail::between(random, -0.1, 0.1);
    for (int i = 3; i < m.nq; ++i) d.qpos[i] = detail::between(random, -0.1, 0.1);
    for (int i : {4, 7}) d.qpos[i] = detail::between(random, -0.3, 0);  // knees bend one way
  };
  task.observe = [](const mjModel&, const mjData& d, float* out) {
    *out++ = static_cast<float>(d.qpos[0]);  // its position along the floor does not matter
    *out++ = static_cast<float>(std::cos(d.qpos[2]));
    *out++ = static_cast<float>(std::sin(d.qpos[2]));
    for (int i = 3; i < 9; ++i) *out++ = static_cast<float>(d.qpos[i]);
    for (int i = 0; i < 9; ++i) *out++ = static_cast<float>(std::clamp(d.qvel[i] / 5, -5.0, 5.0));
  };
  task.reward = [](const mjModel&, const mjData& d) {
    const double standing = detail::near(1.3 + d.qpos[0], 1.15, INFINITY, 0.6);
    const double upright = (1 + std::cos(d.qpos[2])) / 2;
    const double walking = std::clamp(d.qvel[1], 0.0, 1.0);
    return (3 * standing + upright) / 4 * (5 * walking + 1) / 6;
  };
  return task;
}

// The names that task_of accepts.
inline std::vector<std::string> task_names() { return {"cartpole", "pendulum", "reacher", "walker"}; }

// Throws BuildError for a name that is not in task_names().
inline rp::rl::Task task_of(std::string_view name) {
  if (name == "cartpole") return cartpole_task();
  if (name == "pendulum") return pendulum_task();
  if (name == "reacher") return reacher_task();
  if (name == "walker") return walker_task();
  throw rp::BuildError{"there is no task \"" + std::string{name} + "\": there are cartpole, pendulum, reacher and walker"};
}

// The score of an episode with this sum of rewards: 1000 if every time step gave 1.
inline double score(const rp::rl::Task& task, double reward) { return 1000 * reward / static_cast<double>(task.actions_per_episode()); }

}  // namespace d4pg
