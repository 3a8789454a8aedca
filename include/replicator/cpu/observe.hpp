// SPDX-License-Identifier: Apache-2.0
// The kernel of Observe on every kind of device: it shows values to functions on the host.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/program_exception.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/graph/operation.hpp>
#include <replicator/ops/observe.hpp>

namespace replicator::detail {

template <DeviceKind kind>
class ObserveKernel final : public Executable {
 public:
  ObserveKernel(const Observe& op, const TensorType& type) : op_{op}, type_{type} {
    input_layouts.resize(1);
    output_layouts.resize(1);
    in_place = {0};
    needs_host = true;
  }
  static std::unique_ptr<Executable> make(const KernelRequest& request) {
    return std::make_unique<ObserveKernel>(*request.operation.get<Observe>(), request.inputs[0]);
  }

  void run(const Launch& launch) const override {
    const auto& support = support_of(kind);
    const auto* input = launch.inputs[0];
    auto* output = launch.outputs[0];
    if (support.runs_on_host()) {
      if (output != input && type_.bytes()) std::memcpy(output, input, type_.bytes());
      return show(launch, input);
    }
    std::vector<std::byte> host(type_.bytes());
    if (!host.empty()) support.copy(launch.stream, host.data(), input, host.size());
    if (output != input && !host.empty()) support.copy(launch.stream, output, input, host.size());
    support.synchronise(launch.stream);
    show(launch, host.data());
  }

 private:
  void show(const Launch& launch, const std::byte* data) const {
    const auto& context = launch.context;
    if (context.repeated) return;
    const Observation seen{type_, data, static_cast<int>(context.replica), context.uniform, context.step};
    try {
      (*op_.observer)(seen);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // the program's own
      report_program_exception("in " + op_.what + ", " + seen.text(), error);
      throw;
    }
  }

  Observe op_;
  TensorType type_;
};

inline const Kernel observe_on_cpu{"observe", &ObserveKernel<DeviceKind::cpu>::make};
inline const Kernel observe_on_cuda{"observe", &ObserveKernel<DeviceKind::cuda>::make};
inline const bool observe_registered = register_kernel<Observe>(DeviceKind::cpu, KernelTier::reference, &observe_on_cpu) &&
                                       register_kernel<Observe>(DeviceKind::cuda, KernelTier::reference, &observe_on_cuda);
}  // namespace replicator::detail
