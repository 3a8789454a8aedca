// SPDX-License-Identifier: Apache-2.0
// What a Replicator is made of, as seen by the types of steps: it can be compiled apart from the user's files.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <replicator/graph/graph.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/input_context.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/step_driver.hpp>

namespace replicator {

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

using MakeEngine = std::unique_ptr<Engine> (*)(Deployment);

// Filled by assembly/host_engine.hpp, in whichever file of the program includes it.
inline constinit std::atomic<MakeEngine> engine_slot{nullptr};

inline std::unique_ptr<Engine> make_engine(Deployment deployment) {
  const auto make = engine_slot.load();
  if (!make)
    throw BuildError{"this program has no engine: include <replicator/replicator.hpp> without <replicator/with/compiled.hpp> on the include path, "
                     "or link the CMake target replicator::compiled"};
  return make(std::move(deployment));
}

}  // namespace replicator
