// SPDX-License-Identifier: Apache-2.0
// Kernels of convolution on GPUs by cuDNN's plain calls, for float32 and bfloat16. Images and weights have channels last. They
// are row-major where cuDNN cannot do that, or KernelChoice asks for it. Sums are in float32. float32 is shortened to TF32 only
// where KernelChoice allows it.
//
// The algorithm must add the products themselves, always in the same order. Of such algorithms it is the one that cuDNN expects
// to be fastest on the calling thread's GPU. All GPUs of a process must be of one kind, because it makes its kernels for the first of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/libraries/cudnn.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/convolution_shapes.hpp>

namespace replicator::detail::cuda::cudnn {

// A convolution and its three tensors as cuDNN is given them.
class ConvolutionProblem {
 public:
  ConvolutionProblem(const ConvolutionShapes& s, DType dtype, cudnnTensorFormat_t format, cudnnMathType_t arithmetic) {
    set_images(x, format, dtype, s.x);
    set_images(y, format, dtype, s.y);
    require(cudnnSetFilter4dDescriptor(w.get(), data_type(dtype), format, counted(s.w[0]), counted(s.w[1]), counted(s.w[2]), counted(s.w[3])),
            "cudnnSetFilter4dDescriptor");
    const auto& o = s.options;
    require(cudnnSetConvolution2dDescriptor(convolution.get(), counted(o.padding.low[0]), counted(o.padding.low[1]), counted(o.stride[0]),
                                            counted(o.stride[1]), counted(o.dilation[0]), counted(o.dilation[1]), CUDNN_CROSS_CORRELATION,
                                            CUDNN_DATA_FLOAT),
            "cudnnSetConvolution2dDescriptor");
    require(cudnnSetConvolutionGroupCount(convolution.get(), counted(o.groups)), "cudnnSetConvolutionGroupCount");
    set_arithmetic(arithmetic);
  }
  void set_arithmetic(cudnnMathType_t type) {
    require(cudnnSetConvolutionMathType(convolution.get(), type), "cudnnSetConvolutionMathType");
  }

  // Whether cuDNN takes the convolution. It pads both sides alike.
  static bool takes(const ConvolutionShapes& s, DType dtype) {
    const auto& o = s.options;
    return (dtype == DType::float32 || dtype == DType::bfloat16) && are_counted({&s.x, &s.w, &s.y}) &&
           are_counted({o.padding.low, o.stride, o.dilation}) && o.padding.low == o.padding.high;
  }

  TensorDescriptor x, y;
  FilterDescriptor w;
  ConvolutionDescriptor convolution;
};

inline constexpr float one = 1, zero = 0;
inline constexpr int most_algorithms = 16;

// The three kinds of call. `in_order` has the algorithms that add all products of two factors, always in the same order. NVIDIA's
// manual calls them deterministic. So are Winograd's and Fourier's, but these add transformed factors. `rank` lists algorithms,
// the fastest first.
struct Forward {
  using Performance = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr std::array in_order{CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                       CUDNN_CONVOLUTION_FWD_ALGO_GEMM};
  static cudnnStatus_t rank(const ConvolutionProblem& p, int& count, Performance* ranked) {
    return cudnnGetConvolutionForwardAlgorithm_v7(handle(), p.x.get(), p.w.get(), p.convolution.get(), p.y.get(), most_algorithms, &count, ranked);
  }
  static cudnnStatus_t workspace(const ConvolutionProblem& p, const Performance& by, std::size_t& bytes) {
    return cudnnGetConvolutionForwardWorkspaceSize(handle(), p.x.get(), p.w.get(), p.convolution.get(), p.y.get(), by.algo, &bytes);
  }
  static cudnnStatus_t run(cudnnHandle_t on, const ConvolutionProblem& p, const Performance& by, const Launch& l) {
    return cudnnConvolutionForward(on, &one, p.x.get(), l.inputs[0], p.w.get(), l.inputs[1], p.convolution.get(), by.algo, l.scratch,
                                   by.memory, &zero, p.y.get(), l.outputs[0]);
  }
};
struct ToData {
  using Performance = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr std::array in_order{CUDNN_CONVOLUTION_BWD_DATA_ALGO_1};
  static cudnnStatus_t rank(const ConvolutionProblem& p, int& count, Performance* ranked) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle(), p.w.get(), p.y.get(), p.convolution.get(), p.x.get(), most_algorithms,
                                                       &count, ranked);
  }
  static cudnnStatus_t workspace(const ConvolutionProblem& p, const Performance& by, std::size_t& bytes) {
    return cudnnGetConvolutionBackwardDataWorkspaceSize(handle(), p.w.get(), p.y.get(), p.convolution.get(), p.x.get(), by.algo, &bytes);
  }
  static cudnnStatus_t run(cudnnHandle_t on, const ConvolutionProblem& p, const Performance& by, const Launch& l) {
    return cudnnConvolutionBackwardData(on, &one, p.w.get(), l.inputs[1], p.y.get(), l.inputs[0], p.convolution.get(), by.algo, l.scratch,
                                        by.memory, &zero, p.x.get(), l.outputs[0]);
  }
};
struct ToWeights {
  using Performance = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr std::array in_order{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1};
  static cudnnStatus_t rank(const ConvolutionProblem& p, int& count, Performance* ranked) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle(), p.x.get(), p.y.get(), p.convolution.get(), p.w.get(), most_algorithms,
                                                         &count, ranked);
  }
  static cudnnStatus_t workspace(const ConvolutionProblem& p, const Performance& by, std::size_t& bytes) {
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle(), p.x.get(), p.y.get(), p.convolution.get(), p.w.get(), by.algo, &bytes);
  }
  static cudnnStatus_t run(cudnnHandle_t on, const ConvolutionProblem& p, const Performance& by, const Launch& l) {
    return cudnnConvolutionBackwardFilter(on, &one, p.x.get(), l.inputs[0], p.y.get(), l.inputs[1], p.convolution.get(), by.algo, l.scratch,
                                          by.memory, &zero, p.w.get(), l.outputs[0]);
  }
};

// Whether an algorithm may be taken. cuDNN must call it deterministic as well. KernelChoice::fastest allows any.
template <class Call>
bool may_be_taken(const typename Call::Performance& by, const KernelChoice& choice) {
  if (by.status != CUDNN_STATUS_SUCCESS) return false;
  const bool known = std::find(Call::in_order.begin(), Call::in_order.end(), by.algo) != Call::in_order.end();
  return choice.fastest || (known && by.determinism == CUDNN_DETERMINISTIC);
}

// The arithmetic of products. For float32, tensor cores know only TF32, so they are left out unless TF32 is allowed.
inline cudnnMathType_t arithmetic_of(DType dtype, const KernelChoice& choice) {
  if (dtype == DType::bfloat16) return CUDNN_TENSOR_OP_MATH;
  return choice.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

// Chooses an algorithm, and sets the problem's arithmetic to the algorithm's. Empty where no algorithm that may be taken has a
// small enough workspace.
template <class Call>
std::optional<typename Call::Performance> choose_algorithm(ConvolutionProblem& problem, cudnnMathType_t arithmetic, const KernelChoice& choice) {
  std::array<typename Call::Performance, most_algorithms> ranked{};
  int count = 0;
  const auto status = Call::rank(problem, count, ranked.data());
  if (declines(status)) return std::nullopt;
  require(status, "the ranking of algorithms of a convolution");
  for (int i = 0; i < count; ++i) {
    auto by = ranked[static_cast<std::size_t>(i)];
    if (!may_be_taken<Call>(by, choice)) continue;
    // cuDNN may have ranked it with TF32 arithmetic.
    problem.set_arithmetic(arithmetic == CUDNN_FMA_MATH ? arithmetic : by.mathType);
    if (Call::workspace(problem, by, by.memory) == CUDNN_STATUS_SUCCESS && by.memory <= most_workspace) return by;
  }
  return std::nullopt;
}

template <class Call>
class ConvolutionExecutable final : public Executable {
 public:
  ConvolutionExecutable(ConvolutionProblem problem, const typename Call::Performance& by, cudnnTensorFormat_t format, const KernelRequest& request)
      : problem_{std::move(problem)}, by_{by} {
    for (const auto& input : request.inputs) input_layouts.push_back(layout_in(format, input.shape));
    output_layouts = {layout_in(format, request.outputs[0].shape)};
    in_place = {-1};
    scratch_bytes = by_.memory;
  }
  void run(const Launch& launch) const override {
    const cudnnHandle_t on = handle();
    require(cudnnSetStream(on, stream_of(launch.stream)), "cudnnSetStream");
    require(Call::run(on, problem_, by_, launch), "a convolution");
  }

 private:
  ConvolutionProblem problem_;
  typename Call::Performance by_;
};

// Null, so that the plain loops are used, where cuDNN has no fitting algorithm.
template <class Op, class Call>
std::unique_ptr<Executable> make_convolution(const KernelRequest& request) {
  const auto shapes = shapes_of(*request.operation.get<Op>(), request);
  const DType dtype = request.outputs[0].dtype;
  if (!ConvolutionProblem::takes(shapes, dtype)) return nullptr;
  const auto arithmetic = arithmetic_of(dtype, request.choice);
  for (const auto format : {CUDNN_TENSOR_NHWC, CUDNN_TENSOR_NCHW}) {
    if (format == CUDNN_TENSOR_NHWC && request.choice.row_major_images) continue;
    ConvolutionProblem problem{shapes, dtype, format, arithmetic};
    if (const auto by = choose_algorithm<Call>(problem, arithmetic, request.choice))
      return std::make_unique<ConvolutionExecutable<Call>>(std::move(problem), *by, format, request);
  }
  return nullptr;
}

inline constexpr Kernel convolution{"cuDNN convolution", &make_convolution<Convolution, Forward>};
inline constexpr Kernel convolution_backward_data{"cuDNN convolution", &make_convolution<ConvolutionBackwardData, ToData>};
inline constexpr Kernel convolution_backward_weights{"cuDNN convolution", &make_convolution<ConvolutionBackwardWeights, ToWeights>};

inline const bool convolution_registered =
    register_kernel<Convolution>(DeviceKind::cuda, KernelTier::library, &convolution) &&
    register_kernel<ConvolutionBackwardData>(DeviceKind::cuda, KernelTier::library, &convolution_backward_data) &&
    register_kernel<ConvolutionBackwardWeights>(DeviceKind::cuda, KernelTier::library, &convolution_backward_weights);

}  // namespace replicator::detail::cuda::cudnn
