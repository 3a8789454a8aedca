// SPDX-License-Identifier: Apache-2.0
// What a Replicator is made of, as seen by the types of steps: it can be compiled apart from the user's files.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <replicator/graph/graph.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/input_context.hpp>
#include <replicator/replicate/input_source.hpp>
#include <replicator/replicate/step_driver.hpp>
#include <replicator/runtime/trace_ring.hpp>

namespace replicator {

// A step, ready to run on this host's devices.
struct CompiledStep {
  CompiledStep() = default;
  CompiledStep(const CompiledStep&) = delete;
  CompiledStep& operator=(const CompiledStep&) = delete;
  virtual ~CompiledStep() = default;
};

// Where a step of a resumed run goes on.
struct Resumption {
  std::uint64_t done = 0;  // steps
  bool finished = false;   // the input has ended
  std::shared_ptr<const int> life;  // kept as long as the step lives
};

// Devices, processes and variables. In a job of several processes compile, run and digest are called by all at the same time.
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
  // A step of this Replicator with that number, by the inputs of this host's replicas.
  virtual std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, std::vector<std::unique_ptr<InputSource>> inputs, Trace trace) = 0;
  // From the traced graphs of this host's replicas to programs. `ordinal`: which step of the Replicator this is.
  virtual std::unique_ptr<CompiledStep> compile(std::span<const Graph> traced, int ordinal) = 0;
  // One step. `inputs[r]`: the element of this host's replica r; `has_next[r]`: it has another one.
  virtual StepResults run(CompiledStep& step, std::span<const std::vector<AnyArray>> inputs, std::span<const bool> has_next,
                          std::uint64_t number) = 0;
  // Input or step function of a replica of this host has failed: in a job of several processes nobody may wait for this one.
  virtual void failed_alone(const std::exception_ptr& error) = 0;
  // Where the reading of input for these replicas is to be recorded; null where it is not.
  virtual std::shared_ptr<InputTrace> input_trace(std::size_t replicas) = 0;
  // The resolved graphs for Graphviz, and what the devices of this process execute as JSON.
  virtual std::string resolved_dot(const CompiledStep& step) const = 0;
  virtual std::string plan_json(const CompiledStep& step) const = 0;
  // Of device 0: its collectives, the nodes that cost most, its memory.
  virtual std::string explain(const CompiledStep& step, ExplainOptions options) = 0;

  // SHA-256 over name, type and bytes of every variable in the order of names: mirrored ones once, replica-local ones of all
  // replicas in order.
  virtual std::string digest() = 0;
  virtual std::string save_checkpoint() = 0;
  virtual std::vector<std::string> variables() const = 0;
  virtual const VariableDeclaration& declaration(const std::string& name) const = 0;
  virtual const AnyArray& value(const std::string& name, int local_replica) const = 0;
  virtual void set(const std::string& name, const AnyArray& value) = 0;
};

using MakeEngine = std::unique_ptr<Engine> (*)(Deployment);

// Filled by replicate/host_engine.hpp, in whichever file of the program includes it.
inline constinit std::atomic<MakeEngine> engine_slot{nullptr};

inline std::unique_ptr<Engine> make_engine(Deployment deployment) {
  const auto make = engine_slot.load();
  if (!make)
    throw BuildError{"this program has no engine: include <replicator/replicator.hpp> without <replicator/with/compiled.hpp> on the include path, "
                     "or link the CMake target replicator::compiled"};
  return make(std::move(deployment));
}

}  // namespace replicator
