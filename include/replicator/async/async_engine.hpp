// SPDX-License-Identifier: Apache-2.0
// AsyncEngine: the engine of the asynchronous regime (--regime async). Its replicas continue to work between two calls
// of the program.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <replicator/async/async_step.hpp>
#include <replicator/async/require_async.hpp>
#include <replicator/async/running_steps.hpp>
#include <replicator/async/stop_agreement.hpp>
#include <replicator/engine/host_engine.hpp>
#include <replicator/engine/require_valid.hpp>

namespace replicator::detail {

class AsyncEngine final : public HostEngine {
 public:
  explicit AsyncEngine(Deployment deployment) : HostEngine{possible(std::move(deployment))} {
    require_groups_fit(host().deployment(), host().placement(), host().job().rank());
  }

  std::unique_ptr<StepDriver> drive(int ordinal, bool checkpointed, MakeInputs inputs, Trace trace) override {
    host().require_outside_step("replicate()");
    host().failure().told([this] { running_steps_.rest_together("a step is replicated"); });  // the step declares and reads variables
    auto made = host().make_inputs(inputs);
    host().checkpoints().begin(ordinal, checkpointed);
    return std::make_unique<AsyncStep>(host(), stop_, running_steps_, ordinal, std::move(made), trace);
  }
  std::string digest() override {
    host().require_outside_step("digest()");
    running_steps_.rest_together("a digest is made");
    auto digest = host().digest();
    host().job().barrier("digests made");  // without it, another process could continue and change variables here
    return digest;
  }
  int stop_signal() override { return stop_.signal(); }
  const AnyArray& value(const std::string& name, int local_replica) const override {
    const auto* newest = running_steps_.newest(name);
    require_newest_known();
    return newest ? *newest : host().variables().value(name, local_replica);
  }
  void set(const std::string& name, const AnyArray& value, std::optional<int> local_replica, Location) override {
    host().require_outside_step("set()");
    running_steps_.change();
    require_newest_known();
    host().variables().set(name, value, local_replica);
  }

 private:
  static Deployment possible(Deployment deployment) {
    require_valid(deployment);
    require_async_possible(deployment);
    return deployment;
  }
  // After a failure this process may lack updates of other processes.
  void require_newest_known() const {
    if (processes() > 1) host().failure().answer();
  }

  StopAgreement stop_{host().job(), {deployment().deadline, deployment().late}};
  RunningSteps running_steps_{stop_};
};

inline const bool async_engine_registered = register_engine<AsyncEngine>(EngineKind::asynchronous);

}  // namespace replicator::detail
