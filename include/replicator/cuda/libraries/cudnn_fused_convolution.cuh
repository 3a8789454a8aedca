// SPDX-License-Identifier: Apache-2.0
// The kernel of FusedConvolution on GPUs by cuDNN's graph interface, with channels last. The operations that are fused with the
// convolution run while its operands are loaded, and while its results are in registers. It is up to cuDNN which graphs have an
// engine, and above all a deterministic one. All other graphs run by the kernels of their parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/libraries/cudnn_arithmetic.cuh>
#include <replicator/cuda/libraries/cudnn_graph.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/fusion/fused_convolution.hpp>

namespace replicator::detail::cuda::cudnn {

struct FusedProblem {
  FusedConvolution operation;
  std::vector<TensorType> inputs, outputs;
  KernelChoice choice;

  DType dtype() const { return outputs[0].dtype; }
  // Bound tensors are numbered as in the operation: inputs, then outputs.
  OperationGraph graph() const {
    OperationGraph graph;
    GraphArithmetic arithmetic{graph, static_cast<std::int64_t>(inputs.size() + outputs.size())};
    std::vector<ShapedTensor> in, out;
    for (const auto& type : inputs) in.push_back(bound(graph, in.size(), type));
    for (std::size_t o = 0; o < outputs.size(); ++o) out.push_back(bound(graph, inputs.size() + o, o == 0 ? outputs[0] : channels(outputs[o])));
    const auto n = operation.image_inputs();
    const auto x = operation.has_prologue() ? arithmetic.passing(operation.image(inputs)) : in[0];
    if (operation.has_prologue()) arithmetic.add(operation.prologue, std::span{in}.first(n), x);
    const auto y = operation.has_epilogue() ? arithmetic.passing({DType::float32, outputs[0].shape}) : out[0];
    graph.add(graph.keep(Descriptor{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR})
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution(graph))
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x.tensor)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, in[n].tensor)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y.tensor)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f));
    if (operation.has_epilogue()) {
      in[n] = y;  // before the epilogue's other inputs
      arithmetic.add(operation.epilogue, std::span{in}.subspan(n), out[0]);
    }
    if (operation.statistics)
      graph.add(graph.keep(Descriptor{CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR})
                    .set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
                    .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
                    .set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y.tensor)
                    .set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, out[1].tensor)
                    .set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, out[2].tensor));
    return graph;
  }

 private:
  static TensorType channels(const TensorType& sums) { return {sums.dtype, {1, sums.shape[0], 1, 1}}; }
  static ShapedTensor bound(OperationGraph& graph, std::size_t number, const TensorType& type) {
    const Shape shape = as_image(type.shape);
    return {graph.tensor(channels_last_tensor(static_cast<std::int64_t>(number), {type.dtype, shape})), shape};
  }
  // The channels of x and w decide the groups.
  cudnnBackendDescriptor_t convolution(OperationGraph& graph) const {
    const auto pair = [](const Extents2d& extents) { return std::vector<std::int64_t>(extents.begin(), extents.end()); };
    const auto& options = operation.options;
    const auto dilation = pair(options.dilation), stride = pair(options.stride), low = pair(options.padding.low), high = pair(options.padding.high);
    return graph.keep(Descriptor{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR})
        .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
        .set_all(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span{dilation})
        .set_all(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span{stride})
        .set_all(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span{low})
        .set_all(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span{high})
        .finalise()
        .get();
  }
};

// Runs the graph by an execution plan. A plan is for one GPU. It is made at the first launch on that GPU, which is never
// captured. All GPUs of a job are of one kind, so cuDNN ranks the same engines the same way on each.
class FusedExecutable final : public Executable {
 public:
  explicit FusedExecutable(FusedProblem problem) : problem_{std::move(problem)} {
    for (const auto& input : problem_.inputs) input_layouts.push_back(layout(input.shape));
    for (const auto& output : problem_.outputs) output_layouts.push_back(layout(output.shape));
    in_place.assign(problem_.outputs.size(), -1);
    scratch_bytes = plan().workspace();
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
    std::vector<const std::byte*> data(launch.inputs, launch.inputs + problem_.inputs.size());
    data.insert(data.end(), launch.outputs, launch.outputs + problem_.outputs.size());
    by.run(on, data, launch.scratch);
  }

 private:
  static Layout layout(const Shape& shape) { return shape.rank() == 4 ? layout_in(CUDNN_TENSOR_NHWC, shape) : Layout{}; }
  // Of the current GPU. The caller holds the gate, or nobody else knows the object yet.
  const ExecutionPlan& plan() const {
    int device = 0;
    REPLICATOR_CUDA_CHECK(cudaGetDevice(&device));
    auto& plan = plans_[device];
    if (!plan) plan = make_plan(problem_.graph(), problem_.dtype(), problem_.choice);
    return *plan;
  }

  FusedProblem problem_;
  mutable std::mutex gate_;
  mutable std::map<int, std::unique_ptr<const ExecutionPlan>> plans_;  // by GPU
};

inline std::unique_ptr<Executable> make_fused_convolution(const KernelRequest& r) {
  const auto empty = [](const TensorType& type) { return type.shape.elements() == 0; };
  if (r.choice.row_major_images || std::any_of(r.inputs.begin(), r.inputs.end(), empty) || empty(r.outputs[0])) return nullptr;
  try {
    return std::make_unique<FusedExecutable>(
        FusedProblem{*r.operation.get<FusedConvolution>(), {r.inputs.begin(), r.inputs.end()}, {r.outputs.begin(), r.outputs.end()}, r.choice});
  } catch (const Unsupported&) {
    return nullptr;
  }
}

inline constexpr Kernel fused_convolution{"cuDNN graph", &make_fused_convolution};
inline const bool fused_convolution_registered = register_kernel<FusedConvolution>(DeviceKind::cuda, KernelTier::library, &fused_convolution);

}  // namespace replicator::detail::cuda::cudnn
