// SPDX-License-Identifier: Apache-2.0
// HostEngine: the engine of the synchronous regime. It owns one Host for the whole run, and the steps run on that Host.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <replicator/engine/host.hpp>
#include <replicator/engine/read_ahead_step.hpp>
#include <replicator/replicate/engine.hpp>

namespace replicator::detail {

class HostEngine : public Engine {
 public:
  explicit HostEngine(Deployment deployment) : host_{std::move(deployment)} {}

  const Deployment& deployment() const override { return host_.deployment(); }
  int first_replica() const override { return host_.placement().begin(); }
  int end_replica() const override { return host_.placement().end(); }
  int process() const override { return host_.job().rank(); }
  int processes() const override { return host_.job().size(); }

  InputContext input_context(int replica) const override { return host_.input_context(replica); }
  std::unique_ptr<InputSource> recorded_input(int ordinal, const std::vector<DType>& components) const override {
    return host_.replay() ? host_.replay()->input(ordinal, components) : nullptr;
  }
  int next_ordinal(bool checkpointed) const override { return host_.checkpoints().next_ordinal(checkpointed); }
  std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, MakeInputs inputs, Trace trace) override {
    host_.require_outside_step("replicate()");
    auto made = host_.make_inputs(inputs);
    auto from = host_.checkpoints().begin(ordinal, checkpointed);
    return std::make_unique<ReadAheadStep>(host_, ordinal, std::move(from), std::move(made), std::move(trace));
  }

  std::string digest() override {
    host_.require_outside_step("digest()");
    return host_.digest();
  }
  std::string save_checkpoint() override {
    host_.require_outside_step("save_checkpoint()");
    return host_.save_checkpoint();
  }
  int stop_signal() override { return host_.stop_signal(); }
  std::vector<std::string> variables() const override { return host_.variables().names(); }
  const VariableDeclaration& declaration(const std::string& name) const override { return host_.variables().declaration(name); }
  const AnyArray& value(const std::string& name, int local_replica) const override { return host_.variables().value(name, local_replica); }
  void set(const std::string& name, const AnyArray& value, std::optional<int> local_replica, Location where) override {
    host_.require_outside_step("set()");
    host_.set(name, value, local_replica, where);
  }

 protected:
  Host& host() { return host_; }
  const Host& host() const { return host_; }

 private:
  Host host_;
};

inline const bool host_engine_registered = register_engine<HostEngine>(EngineKind::synchronous);

}  // namespace replicator::detail
