// SPDX-License-Identifier: Apache-2.0
// Kernels by cuDNN's graph interface: a graph with its plans as an Executable.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/libraries/cudnn_plan.cuh>
#include <replicator/cuda/libraries/owned.cuh>
#include <replicator/graph/kernel.hpp>

namespace replicator::detail::cuda::cudnn {

// Runs a graph by an execution plan. A plan is for one GPU. It is made at the first launch on that GPU, which is never captured.
// All GPUs of a job are of one kind, so cuDNN ranks the same engines the same way on each. Plans are timed on the first GPU
// alone, and the others take the same engine.
class GraphExecutable final : public Executable {
 public:
  // `build` makes the graph. Bound tensors are numbered as in the operation: inputs, then outputs. Those with four axes lie in the
  // format. Throws Unsupported where cuDNN has no plan for the current GPU.
  GraphExecutable(std::function<OperationGraph()> build, const KernelRequest& request, cudnnTensorFormat_t format)
      : build_{std::move(build)}, inputs_{request.inputs.size()}, outputs_{request.outputs.size()}, dtype_{request.outputs[0].dtype}, choice_{request.choice} {
    const auto layout = [&](const Shape& shape) { return shape.rank() == 4 ? layout_in(format, shape) : Layout{}; };
    for (const auto& input : request.inputs) input_layouts.push_back(layout(input.shape));
    for (const auto& output : request.outputs) output_layouts.push_back(layout(output.shape));
    in_place.assign(outputs_, -1);
    auto plans = make_plans(build_(), dtype_, choice_, choice_.fastest ? most_timed : 1);
    if (plans.size() > 1) {
      std::vector<TensorType> tensors{request.inputs.begin(), request.inputs.end()};
      tensors.insert(tensors.end(), request.outputs.begin(), request.outputs.end());
      chosen_ = fastest_of(plans, tensors);
    }
    scratch_bytes = plans[chosen_].workspace();
    plans_.emplace(current_gpu(), std::move(plans[chosen_]));
  }
  // Throws DeviceError on a GPU for which cuDNN has no such plan, or only one that needs more scratch memory.
  void run(const Launch& launch) const override {
    const std::lock_guard lock{gate_};  // a plan must not run in two threads at once
    const auto& by = plan();
    if (by.workspace() > scratch_bytes)
      throw DeviceError{"cuDNN needs " + std::to_string(by.workspace()) + " bytes of scratch on this GPU, but " + std::to_string(scratch_bytes) +
                        " on the GPU that the step was planned for: all GPUs of a job must be of one kind"};
    const cudnnHandle_t on = handle();
    require(cudnnSetStream(on, stream_of(launch.stream)), "cudnnSetStream");
    std::vector<const std::byte*> data(launch.inputs, launch.inputs + inputs_);
    data.insert(data.end(), launch.outputs, launch.outputs + outputs_);
    by.run(on, data, launch.scratch);
  }

 private:
  // Of the current GPU. The caller holds the gate.
  const ExecutionPlan& plan() const {
    const int gpu = current_gpu();
    if (const auto known = plans_.find(gpu); known != plans_.end()) return known->second;
    auto plans = make_plans(build_(), dtype_, choice_, chosen_ + 1);
    if (plans.size() <= chosen_) throw Unsupported{};
    return plans_.emplace(gpu, std::move(plans[chosen_])).first->second;
  }

  std::function<OperationGraph()> build_;
  std::size_t inputs_, outputs_;
  DType dtype_;
  KernelChoice choice_;
  std::size_t chosen_ = 0;  // index of the engine among those that may be taken
  mutable std::mutex gate_;
  mutable std::map<int, ExecutionPlan> plans_;  // by GPU
};

}  // namespace replicator::detail::cuda::cudnn
