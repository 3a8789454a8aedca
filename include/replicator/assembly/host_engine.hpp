// SPDX-License-Identifier: Apache-2.0
// The engine of a program: a Host, and steps that it drives.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/async_step.hpp>
#include <replicator/elastic/elastic_engine.hpp>
#include <replicator/engine/host.hpp>
#include <replicator/engine/read_ahead_step.hpp>
#include <replicator/replicate/engine.hpp>

namespace replicator {

class HostEngine final : public Engine {
 public:
  explicit HostEngine(Deployment deployment) : host_{std::move(deployment)} {}

  const Deployment& deployment() const override { return host_.deployment(); }
  int first_replica() const override { return host_.placement().begin(); }
  int end_replica() const override { return host_.placement().end(); }
  int process() const override { return host_.job().rank(); }
  int processes() const override { return host_.job().size(); }

  InputContext input_context(int replica) const override { return host_.input_context(replica); }
  std::unique_ptr<InputSource> recorded_input(int ordinal, std::span<const DType> components) const override {
    return host_.replay() ? host_.replay()->input(ordinal, components) : nullptr;
  }
  int next_ordinal(bool checkpointed) const override { return host_.checkpoints().next_ordinal(checkpointed); }
  std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, MakeInputs inputs, Trace trace) override {
    host_.require_outside_step("replicate()");
    const bool asynchronous = deployment().regime == Regime::asynchronous;
    if (asynchronous) host_.failure().told([this] { at_work_.rest_together("a step is replicated"); });  // variables are declared, and read
    auto made = host_.building().run(inputs);
    auto from = host_.checkpoints().begin(ordinal, checkpointed);
    if (asynchronous) return std::make_unique<AsyncStep>(host_, stop_, at_work_, ordinal, std::move(made), trace);
    return std::make_unique<ReadAheadStep>(host_, ordinal, std::move(from), std::move(made), std::move(trace));
  }

  std::string digest() override {
    host_.require_outside_step("digest()");
    at_work_.rest_together("a digest is made");
    auto digest = host_.digest();
    if (deployment().regime == Regime::asynchronous) host_.job().barrier("digests made");  // others could go on, and change variables here
    return digest;
  }
  std::string save_checkpoint() override {
    host_.require_outside_step("save_checkpoint()");
    return host_.save_checkpoint();
  }
  int stop_signal() override { return deployment().regime == Regime::asynchronous ? stop_.signal() : host_.stop_signal(); }
  std::vector<std::string> variables() const override { return host_.variables().names(); }
  const VariableDeclaration& declaration(const std::string& name) const override { return host_.variables().declaration(name); }
  const AnyArray& value(const std::string& name, int local_replica) const override {
    const auto* newest = at_work_.newest(name);
    require_newest_known();
    return newest ? *newest : host_.variables().value(name, local_replica);
  }
  void set(const std::string& name, const AnyArray& value) override {
    host_.require_outside_step("set()");
    at_work_.change();
    require_newest_known();
    host_.variables().set(name, value);
  }

 private:
  // What other processes have updated was not brought here where something failed.
  void require_newest_known() const {
    if (deployment().regime == Regime::asynchronous && processes() > 1) host_.failure().answer();
  }

  Host host_;
  // Of the asynchronous regime.
  StopAgreement stop_{host_.job(), {deployment().deadline, deployment().late}};
  AtWork at_work_{stop_};
};

inline const bool host_engine_registered = [] {
  engine_slot.store([](Deployment deployment) -> std::unique_ptr<Engine> {
    if (deployment.elastic && deployment.see.replay.empty()) return std::make_unique<ElasticEngine>(std::move(deployment));
    return std::make_unique<HostEngine>(std::move(deployment));
  });
  return true;
}();

}  // namespace replicator
