// SPDX-License-Identifier: Apache-2.0
// The kernel of FusedConvolution on GPUs by cuDNN's graph interface, with channels last. The operations that are fused with the
// convolution run while its operands are loaded, and while its results are in registers. It is up to cuDNN which graphs have an
// engine, and above all a deterministic one. All other graphs run by the kernels of their parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <replicator/cuda/libraries/cudnn_arithmetic.cuh>
#include <replicator/cuda/libraries/cudnn_graph.cuh>
#include <replicator/cuda/libraries/cudnn_graph_executable.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/fusion/fused_convolution.hpp>

namespace replicator::detail::cuda::cudnn {

// A fused convolution as cuDNN is given it. Bound tensors are numbered as in the operation: inputs, then outputs.
struct FusedProblem {
  FusedConvolution operation;
  std::vector<TensorType> inputs, outputs;

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
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution_descriptor(graph, operation.options))
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
    return {graph.tensor(image_tensor(static_cast<std::int64_t>(number), {type.dtype, shape}, CUDNN_TENSOR_NHWC)), shape};
  }
};

inline std::unique_ptr<Executable> make_fused_convolution(const KernelRequest& r) {
  const auto empty = [](const TensorType& type) { return type.shape.elements() == 0; };
  if (r.choice.row_major_images || std::any_of(r.inputs.begin(), r.inputs.end(), empty) || empty(r.outputs[0])) return nullptr;
  try {
    const FusedProblem problem{*r.operation.get<FusedConvolution>(), {r.inputs.begin(), r.inputs.end()}, {r.outputs.begin(), r.outputs.end()}};
    return std::make_unique<GraphExecutable>([problem] { return problem.graph(); }, r, CUDNN_TENSOR_NHWC);
  } catch (const Unsupported&) {
    return nullptr;
  }
}

inline constexpr Kernel fused_convolution{"cuDNN graph", &make_fused_convolution};
inline const bool fused_convolution_registered = register_kernel<FusedConvolution>(DeviceKind::cuda, KernelTier::library, &fused_convolution);

}  // namespace replicator::detail::cuda::cudnn
