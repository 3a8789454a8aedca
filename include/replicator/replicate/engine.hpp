// SPDX-License-Identifier: Apache-2.0
// Engine: the interface between the public types (Replicator, Step) and the code that runs them. It keeps that code out
// of the user's translation units, so that it can be compiled once, in a library.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <replicator/graph/graph.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/input_context.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/resumed_steps.hpp>
#include <replicator/replicate/step_driver.hpp>

namespace replicator::detail {

// Owns the devices, processes and variables of a Replicator. **In a job of several processes all of them call drive,
// digest and save_checkpoint at the same time.**
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual const Deployment& deployment() const = 0;
  virtual int first_replica() const = 0;  // of this process
  virtual int end_replica() const = 0;
  virtual int process() const = 0;
  virtual int processes() const = 0;
  virtual InputContext input_context(int replica) const = 0;
  // In a replay: the recorded input of step `ordinal`; `components` are the types of an element's components. Else
  // null: the input comes from input_fn.
  virtual std::unique_ptr<InputSource> recorded_input(int ordinal, const std::vector<DType>& components) const = 0;

  // The number of the next step that is built.
  virtual int next_ordinal(bool checkpointed) const = 0;
  // Builds the step with that number. `inputs` is called once, and again whenever this process gets other replicas.
  virtual std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, MakeInputs inputs, Trace trace) = 0;

  // SHA-256 over the name, type and bytes of every variable, in the order of names. A mirrored variable counts once, a
  // replica-local one with the values of all replicas, in order.
  virtual std::string digest() = 0;
  virtual std::string save_checkpoint() = 0;
  virtual int stop_signal() = 0;
  virtual std::vector<std::string> variables() const = 0;
  virtual const VariableDeclaration& declaration(const std::string& name) const = 0;
  virtual const AnyArray& value(const std::string& name, int local_replica) const = 0;
  // For all replicas, or one of this host. `where`: the line of the program.
  virtual void set(const std::string& name, const AnyArray& value, std::optional<int> local_replica, Location where) = 0;

  // For replicate(), not for engines: the lines (file, number) that gave all replicas the same input. The warning is printed
  // once for each.
  std::set<std::pair<std::string, std::uint_least32_t>> warned_of_equal_inputs;
  // For Step, not for engines.
  ResumedRun resumed_run;
};

// The engines that a program may contain. The header of an engine fills the engine's slot; any file of the program may
// include it.
enum class EngineKind {
  synchronous,
  asynchronous,
  elastic
};
struct EngineMaker {
  std::unique_ptr<Engine> (*make)(Deployment);
};
inline constinit std::atomic<const EngineMaker*> engine_slots[3]{};

// Initialises an inline variable of an engine's header, and so registers the engine.
template <class ThisEngine>
bool register_engine(EngineKind kind) {
  static constexpr EngineMaker maker{[](Deployment deployment) -> std::unique_ptr<Engine> { return std::make_unique<ThisEngine>(std::move(deployment)); }};
  engine_slots[static_cast<std::size_t>(kind)].store(&maker);
  return true;
}

// The engine that the deployment asks for. A replay is one process, so it never needs the elastic engine.
inline EngineKind engine_kind(const Deployment& deployment) {
  if (deployment.regime == Regime::asynchronous) return EngineKind::asynchronous;
  if (!deployment.elastic && !deployment.elastic_arbiter.empty())
    throw BuildError{"--elastic-arbiter is \"" + deployment.elastic_arbiter + "\", but this job is not elastic: give --elastic too, or leave it out"};
  return deployment.elastic && deployment.see.replay.empty() ? EngineKind::elastic : EngineKind::synchronous;
}

// Throws BuildError where the program was built without the requested engine.
template <class = void>
std::shared_ptr<Engine> make_engine(Deployment&& deployment) {
  const auto kind = engine_kind(deployment);
  if (const auto* maker = engine_slots[static_cast<std::size_t>(kind)].load()) return maker->make(std::move(deployment));
  if (kind == EngineKind::synchronous)
    throw BuildError{
        "this program has no engine: include <replicator/replicator.hpp> without <replicator/with/compiled.hpp> on the include path, "
        "or link the CMake target replicator::compiled"};
  const std::string asked = kind == EngineKind::elastic ? "--elastic" : "--regime async", folder = kind == EngineKind::elastic ? "elastic" : "async";
  throw BuildError{asked + " was given, but this program was built without it: include <replicator/" + folder + "/" + folder +
                   "_engine.hpp> in one file, or leave " + asked + " out"};
}

}  // namespace replicator::detail
