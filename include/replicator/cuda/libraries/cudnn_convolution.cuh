// SPDX-License-Identifier: Apache-2.0
// Kernels of a convolution and of its two gradients on GPUs by cuDNN's graph interface, for float32 and bfloat16. Images and
// weights have channels last. They are row-major where cuDNN cannot do that, or KernelChoice asks for it. Sums are in float32.
//
// cudnn_plan.cuh says which engines may compute. Where none does, a plain loop runs, and a line on stderr says so.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include <replicator/cuda/libraries/cudnn.cuh>
#include <replicator/cuda/libraries/cudnn_graph.cuh>
#include <replicator/cuda/libraries/cudnn_graph_executable.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/operation.hpp>
#include <replicator/ops/convolution.hpp>

namespace replicator::detail::cuda::cudnn {

// cuDNN's names for an operation with two inputs.
struct ConvolutionNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, alpha, beta, first, second, result;
};
template <class Op>
inline constexpr ConvolutionNames names_of{};
template <>
inline constexpr ConvolutionNames names_of<Convolution>{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
template <>
inline constexpr ConvolutionNames names_of<ConvolutionBackwardData>{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                                                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX};
template <>
inline constexpr ConvolutionNames names_of<ConvolutionBackwardWeights>{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                                                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW};

// A convolution, or one of its gradients, as cuDNN is given it.
template <class Op>
struct ConvolutionProblem {
  Op operation;
  TensorType first, second, result;
  cudnnTensorFormat_t format;

  OperationGraph graph() const {
    constexpr auto& names = names_of<Op>;
    OperationGraph graph;
    const auto tensor = [&](std::int64_t number, const TensorType& type) { return graph.tensor(image_tensor(number, type, format)); };
    graph.add(graph.keep(Descriptor{names.operation})
                  .set(names.convolution, convolution_descriptor(graph, operation.options))
                  .set(names.first, tensor(0, first))
                  .set(names.second, tensor(1, second))
                  .set(names.result, tensor(2, result))
                  .set(names.alpha, 1.0f)
                  .set(names.beta, 0.0f));
    return graph;
  }
};

// Says once on stderr that a plain loop computes a convolution, and why. `advice` says what helps.
inline void tell_of_loop(const KernelRequest& request, std::string_view why, std::string_view advice) {
  static std::mutex gate;
  static auto& told = *new std::set<std::string>;
  const std::string line = "replicator: " + std::string{request.operation.name()} + " of " + request.inputs[0].text() + " and " + request.inputs[1].text() +
                           " (" + request.operation.attributes() + ") runs by a plain loop, which is many times slower than cuDNN: " + std::string{why} +
                           ". " + std::string{advice} + "\n";
  const std::lock_guard lock{gate};
  if (told.insert(line).second) std::fputs(line.c_str(), stderr);
}

// Null, so that the plain loop runs, where cuDNN has no engine that may be taken. cuDNN is given no tensor that int cannot count.
template <class Op>
std::unique_ptr<Executable> make_convolution(const KernelRequest& request) {
  const auto &first = request.inputs[0], &second = request.inputs[1], &result = request.outputs[0];
  if (first.shape.elements() == 0 || second.shape.elements() == 0 || result.shape.elements() == 0) return nullptr;
  if (result.dtype != DType::float32 && result.dtype != DType::bfloat16) {
    tell_of_loop(request, "cuDNN is asked for float32 and bfloat16 only", "Compute it in one of these");
    return nullptr;
  }
  if (!are_counted({&first.shape, &second.shape, &result.shape})) {
    tell_of_loop(request, "a tensor has 2^31 elements or more", "Give each replica fewer images of a step");
    return nullptr;
  }
  for (const auto format : {CUDNN_TENSOR_NHWC, CUDNN_TENSOR_NCHW}) {
    if (format == CUDNN_TENSOR_NHWC && request.choice.row_major_images) continue;
    const ConvolutionProblem<Op> problem{*request.operation.get<Op>(), first, second, result, format};
    try {
      return std::make_unique<GraphExecutable>([problem] { return problem.graph(); }, request, format);
    } catch (const Unsupported&) {
      continue;
    }
  }
  if (request.choice.fastest)
    tell_of_loop(request, "cuDNN has no engine for it on this GPU", "Try numbers of channels that are multiples of 8, or another type");
  else
    tell_of_loop(request, "cuDNN has no engine for it on this GPU that adds in one fixed order",
                 "Try numbers of channels that are multiples of 8, or allow more engines by --fastest-kernels");
  return nullptr;
}

inline constexpr Kernel convolution{"cuDNN convolution", &make_convolution<Convolution>};
inline constexpr Kernel convolution_backward_data{"cuDNN convolution", &make_convolution<ConvolutionBackwardData>};
inline constexpr Kernel convolution_backward_weights{"cuDNN convolution", &make_convolution<ConvolutionBackwardWeights>};

inline const bool convolution_registered =
    register_kernel<Convolution>(DeviceKind::cuda, KernelTier::library, &convolution) &&
    register_kernel<ConvolutionBackwardData>(DeviceKind::cuda, KernelTier::library, &convolution_backward_data) &&
    register_kernel<ConvolutionBackwardWeights>(DeviceKind::cuda, KernelTier::library, &convolution_backward_weights);

}  // namespace replicator::detail::cuda::cudnn
