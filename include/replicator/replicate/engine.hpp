// SPDX-License-Identifier: Apache-2.0
// What a Replicator is made of, as seen by the types of steps: it can be compiled apart from the user's files.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/graph/graph.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/input_context.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/step_driver.hpp>

namespace replicator::detail {

// Devices, processes and variables. In a job of several processes drive, digest and save_checkpoint are called by all at the same time.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual const Deployment& deployment() const = 0;
  virtual int first_replica() const = 0;  // of this host
  virtual int end_replica() const = 0;
  virtual int process() const = 0;
  virtual int processes() const = 0;
  virtual InputContext input_context(int replica) const = 0;
  // A replay has input of its own for step `ordinal`, whose elements have components of these types; null where input_fn is to be
  // asked.
  virtual std::unique_ptr<InputSource> recorded_input(int ordinal, std::span<const DType> components) const = 0;

  // The number of the step that is made next.
  virtual int next_ordinal(bool checkpointed) const = 0;
  // A step of this Replicator with that number. `inputs` is called once, and again where this host is given other replicas.
  virtual std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, MakeInputs inputs, Trace trace) = 0;

  // SHA-256 over name, type and bytes of every variable in the order of names: mirrored ones once, replica-local ones of all
  // replicas in order.
  virtual std::string digest() = 0;
  virtual std::string save_checkpoint() = 0;
  virtual int stop_signal() = 0;
  virtual std::vector<std::string> variables() const = 0;
  virtual const VariableDeclaration& declaration(const std::string& name) const = 0;
  virtual const AnyArray& value(const std::string& name, int local_replica) const = 0;
  virtual void set(const std::string& name, const AnyArray& value) = 0;
};

// The engines that a program may have. Each one's header fills its slot, in whichever file of the program includes it.
enum class EngineKind {
  synchronous,
  asynchronous,
  elastic
};
struct EngineMaker {
  std::unique_ptr<Engine> (*make)(Deployment);
};
inline constinit std::atomic<const EngineMaker*> engine_slots[3]{};

// For an inline variable of an engine's header.
template <class ThisEngine>
bool register_engine(EngineKind kind) {
  static constexpr EngineMaker maker{[](Deployment deployment) -> std::unique_ptr<Engine> { return std::make_unique<ThisEngine>(std::move(deployment)); }};
  engine_slots[static_cast<std::size_t>(kind)].store(&maker);
  return true;
}

// A replay is of one process, so it needs no elastic job.
inline EngineKind engine_kind(const Deployment& deployment) {
  if (deployment.regime == Regime::asynchronous) return EngineKind::asynchronous;
  return deployment.elastic && deployment.see.replay.empty() ? EngineKind::elastic : EngineKind::synchronous;
}

// Throws BuildError where the program was built without the engine that the deployment asks for.
inline std::unique_ptr<Engine> make_engine(Deployment deployment) {
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
