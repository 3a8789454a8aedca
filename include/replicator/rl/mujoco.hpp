// SPDX-License-Identifier: Apache-2.0
// MuJoCo bodies as environments. Needs libmujoco (the CMake component mujoco).
#pragma once

#include <mujoco/mujoco.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/rl/environment.hpp>

namespace replicator::rl {

// A body and its task. The model integrates by Euler's method.
struct Task {
  std::string name;
  const char* mjcf = "";                                            // the model in MuJoCo's XML; every actuator must have a range
  int ticks_per_action = 1;                                         // time steps of the model per action
  int ticks_per_episode = 1000;                                     // then the time is over; no state is terminal
  int features = 1;                                                 // number of values that `observe` writes
  void (*reset)(const mjModel&, mjData&, PhiloxStream&) = nullptr;  // changes the model's initial state
  void (*observe)(const mjModel&, const mjData&, float* features) = nullptr;
  double (*reward)(const mjModel&, const mjData&) = nullptr;  // of one time step, in [0, 1]

  std::int64_t actions_per_episode() const { return (ticks_per_episode + ticks_per_action - 1) / ticks_per_action; }
};

namespace detail {

struct MujocoDelete {
  void operator()(mjModel* model) const { mj_deleteModel(model); }
  void operator()(mjData* data) const { mj_deleteData(data); }
};

// MuJoCo's default error handler waits for a key and then ends the program. This one throws DataError. It throws
// through C frames; they leave nothing behind but the state, which is discarded. A handler that the program installed
// stays.
inline void take_over_errors() {
  if (!mju_user_error) mju_user_error = [](const char* text) { throw DataError{std::string{"MuJoCo: "} + text}; };
}

// Throws DataError if MuJoCo refuses the model.
inline std::shared_ptr<const mjModel> load_mjcf(const std::string& name, const char* mjcf) {
  const auto files = std::make_unique<mjVFS>();  // it has 2 MiB, too much for the stack
  mj_defaultVFS(files.get());
  const auto file = name + ".xml";
  const auto length = std::strlen(mjcf);
  std::array<char, 1000> error{};
  mjModel* model = nullptr;
  if (mj_makeEmptyFileVFS(files.get(), file.c_str(), static_cast<int>(length)) == 0) {
    std::memcpy(files->filedata[mj_findFileVFS(files.get(), file.c_str())], mjcf, length);
    model = mj_loadXML(file.c_str(), files.get(), error.data(), static_cast<int>(error.size()));
  }
  mj_deleteVFS(files.get());
  if (!model) throw DataError{"MuJoCo cannot load the model of " + name + ": " + error.data()};
  return {model, MujocoDelete{}};
}

}  // namespace detail

// The model of a task, shared by all its environments. **Load models in one thread**: MuJoCo has global state while it
// loads. From then on, errors of MuJoCo are DataErrors.
class Body {
 public:
  // Throws BuildError for an incomplete task, and DataError if MuJoCo refuses the model.
  explicit Body(Task task) : task_{std::move(task)} {
    if (task_.ticks_per_action < 1 || task_.ticks_per_episode < 1 || task_.features < 1 || !task_.reset || !task_.observe || !task_.reward)
      throw BuildError{"the task \"" + task_.name + "\" needs reset, observe and reward, and at least 1 feature, tick per action and tick per episode"};
    detail::take_over_errors();
    model_ = detail::load_mjcf(task_.name, task_.mjcf);
    for (int i = 0; i < model_->nu; ++i)
      if (!(model_->actuator_ctrlrange[2 * i] < model_->actuator_ctrlrange[2 * i + 1]))
        throw BuildError{"actuator " + std::to_string(i) + " of " + task_.name + " has no range: write ctrllimited=\"true\" ctrlrange=\"-1 1\" to say what " +
                         "actions from -1 to 1 mean"};
  }

  const Task& task() const { return task_; }
  const mjModel& model() const { return *model_; }
  std::int64_t actions() const { return model_->nu; }

 private:
  Task task_;
  std::shared_ptr<const mjModel> model_;
};

// An environment that observes features of the body's state. An action is held for some time steps. Its reward is the
// mean of theirs, in [0, 1], where 1 is the best.
class BodyEnvironment {
 public:
  using Observation = float;

  // Throws DataError if MuJoCo has no memory for it.
  explicit BodyEnvironment(Body body) : body_{std::move(body)}, data_{mj_makeData(&body_.model())} {
    if (!data_) throw DataError{"MuJoCo cannot make the state of " + body_.task().name};
  }

  Shape observation_shape() const { return Shape{body_.task().features}; }
  std::int64_t action_size() const { return body_.actions(); }
  const Body& body() const { return body_; }
  const mjData& data() const { return *data_; }

  void reset(std::uint64_t episode) {
    PhiloxStream random{episode, 0};
    mj_resetData(&body_.model(), data_.get());
    body_.task().reset(body_.model(), *data_, random);
    mj_forward(&body_.model(), data_.get());
    ticks_ = 0;
  }
  void observe(std::span<float> out) const { body_.task().observe(body_.model(), *data_, out.data()); }

  // Throws DataError for an action that is not finite, and if the simulation has become unstable.
  Outcome act(std::span<const float> action) {
    const Task& task = body_.task();
    for (std::size_t i = 0; i < action.size(); ++i) {
      if (!std::isfinite(action[i])) throw DataError{"action " + std::to_string(i) + " of " + task.name + " is " + std::to_string(action[i])};
      const mjtNum* range = body_.model().actuator_ctrlrange + 2 * i;
      data_->ctrl[i] = range[0] + (range[1] - range[0]) * (static_cast<double>(action[i]) + 1) / 2;
    }
    double reward = 0;
    for (int i = 0; i < task.ticks_per_action; ++i) {
      mj_step2(&body_.model(), data_.get());
      mj_step1(&body_.model(), data_.get());  // so positions and velocities of all parts belong to the new state
      require_stable();
      reward += task.reward(body_.model(), *data_);
    }
    ticks_ += task.ticks_per_action;
    return {static_cast<float>(reward / task.ticks_per_action), 1, ticks_ >= task.ticks_per_episode};
  }

 private:
  void require_stable() const {
    for (const auto kind : {mjWARN_BADQPOS, mjWARN_BADQVEL, mjWARN_BADQACC})
      if (data_->warning[kind].number > 0)
        throw DataError{"the simulation of " + body_.task().name + " has become unstable: " + mju_warningText(kind, data_->warning[kind].lastinfo)};
  }

  Body body_;
  std::unique_ptr<mjData, detail::MujocoDelete> data_;
  int ticks_ = 0;
};

}  // namespace replicator::rl
