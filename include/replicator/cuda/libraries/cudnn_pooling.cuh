// SPDX-License-Identifier: Apache-2.0
// Kernels of pooling on GPUs by cuDNN's plain calls: maxima, averages, and the gradient of averages. They take float32, float64
// and bfloat16, and images in the layout in which they are offered.
//
// The gradient of maxima (MaxPoolSpread) and its transpose have kernels of our own in pooling.cuh. One reason is that cuDNN does
// not say which of equal elements gets a gradient. Behind a ReLU many windows hold only zeros, so GPUs would differ from CPUs by
// more than rounding. The other reason is that cuDNN asks for the maxima, which that operation is not given.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/image_layout.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/libraries/cudnn.cuh>
#include <replicator/cuda/libraries/owned.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/pooling.hpp>

namespace replicator::detail::cuda::cudnn {

// A pooling, its images x and the pooled images y as cuDNN is given them.
class PoolingProblem {
 public:
  PoolingProblem(const PoolingOptions& o, cudnnPoolingMode_t mode, const Shape& of_x, const Shape& of_y, DType dtype, cudnnTensorFormat_t format)
      : in_double_{dtype == DType::float64} {
    set_images(x, format, dtype, of_x);
    set_images(y, format, dtype, of_y);
    require(cudnnSetPooling2dDescriptor(pooling.get(), mode, CUDNN_PROPAGATE_NAN, counted(o.window[0]), counted(o.window[1]),
                                        counted(o.padding.low[0]), counted(o.padding.low[1]), counted(o.stride[0]), counted(o.stride[1])),
            "cudnnSetPooling2dDescriptor");
  }

  // Whether cuDNN takes the pooling. It pads both sides alike. Windows must be small: of large windows it was seen to give wrong
  // maxima where there are more than 2^23 of them (cuDNN 9.2, issue 508 of FluxML's NNlib.jl).
  static bool takes(const PoolingOptions& o, const Shape& of_x, const Shape& of_y, DType dtype) {
    constexpr std::int64_t most = 16;
    return is_floating(dtype) && o.window[0] <= most && o.window[1] <= most && o.padding.low == o.padding.high && are_counted({o.stride}) &&
           are_counted({&of_x, &of_y});
  }

  // The factors of the new result and of the old one. They are double for images of double, otherwise float.
  const void* one() const { return factor<1>(); }
  const void* zero() const { return factor<0>(); }

  TensorDescriptor x, y;
  PoolingDescriptor pooling;

 private:
  template <int value>
  const void* factor() const {
    static constexpr float of_float = value;
    static constexpr double of_double = value;
    return in_double_ ? static_cast<const void*>(&of_double) : &of_float;
  }
  bool in_double_;
};

template <class Op>
cudnnPoolingMode_t pooling_mode(const Op& op) {
  if constexpr (std::is_same_v<Op, MaxPool>) return CUDNN_POOLING_MAX_DETERMINISTIC;
  else return op.options.count_include_pad ? CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
}

struct PoolForward {
  static constexpr bool gives_x = false;
  static cudnnStatus_t run(cudnnHandle_t on, const PoolingProblem& p, const void* x, void* y) {
    return cudnnPoolingForward(on, p.pooling.get(), p.one(), p.x.get(), x, p.zero(), p.y.get(), y);
  }
};
// The gradient of averages depends on dy alone. cuDNN does not read the values of x and y, which other gradients need.
struct AverageBackward {
  static constexpr bool gives_x = true;
  static cudnnStatus_t run(cudnnHandle_t on, const PoolingProblem& p, const void* dy, void* dx) {
    return cudnnPoolingBackward(on, p.pooling.get(), p.one(), p.y.get(), dy, p.y.get(), dy, p.x.get(), dx, p.zero(), p.x.get(), dx);
  }
};

template <class Call>
class PoolingExecutable final : public Executable {
 public:
  PoolingExecutable(PoolingProblem problem, ImageLayout layout, const KernelRequest& request) : problem_{std::move(problem)} {
    input_layouts = {layout.of(request.inputs[0].shape)};
    output_layouts = {layout.of(request.outputs[0].shape)};
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const cudnnHandle_t on = handle();
    require(cudnnSetStream(on, stream_of(launch.stream)), "cudnnSetStream");
    require(Call::run(on, problem_, launch.inputs[0], launch.outputs[0]), "a pooling");
  }

 private:
  PoolingProblem problem_;
};

// Whether cuDNN computes this pooling. It only says so when it runs, and then it is too late to take another kernel. So it is
// tried on one image, with the descriptors of the real ones. Throws DeviceError where the GPU has no memory for that image.
template <class Call>
bool is_computed(const PoolingOptions& o, cudnnPoolingMode_t mode, Shape x, Shape y, DType dtype, cudnnTensorFormat_t format) {
  x[0] = y[0] = 1;
  const PoolingProblem problem{o, mode, x, y, dtype, format};
  const auto of_x = device_bytes(TensorType{dtype, x}.bytes()), of_y = device_bytes(TensorType{dtype, y}.bytes());
  if (!of_x || !of_y) throw DeviceError{"the GPU has no memory to try a pooling of " + TensorType{dtype, x}.text() + ": give each replica smaller images"};
  require(cudnnSetStream(handle(), nullptr), "cudnnSetStream");
  const auto status = Call::run(handle(), problem, (Call::gives_x ? of_y : of_x)->get(), (Call::gives_x ? of_x : of_y)->get());
  if (declines(status)) return false;
  require(status, "a pooling");
  REPLICATOR_CUDA_CHECK(cudaStreamSynchronize(nullptr));
  return true;
}

// Null, so that our own kernel is used, where cuDNN does not compute this pooling.
template <class Op, class Call>
std::unique_ptr<Executable> make_pooling(const KernelRequest& request) {
  const Op& op = *request.operation.get<Op>();
  const auto &input = request.inputs[0], &output = request.outputs[0];
  const Shape &x = (Call::gives_x ? output : input).shape, &y = (Call::gives_x ? input : output).shape;
  if (!PoolingProblem::takes(op.options, x, y, output.dtype)) return nullptr;
  const ImageLayout layout = image_layout(request.offered[0], input.shape);
  const auto format = layout.channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  if (!is_computed<Call>(op.options, pooling_mode(op), x, y, output.dtype, format)) return nullptr;
  return std::make_unique<PoolingExecutable<Call>>(PoolingProblem{op.options, pooling_mode(op), x, y, output.dtype, format}, layout, request);
}

inline constexpr Kernel max_pool{"cuDNN max pool", &make_pooling<MaxPool, PoolForward>};
inline constexpr Kernel average_pool{"cuDNN average pool", &make_pooling<AveragePool, PoolForward>};
inline constexpr Kernel average_pool_transpose{"cuDNN average pool transpose", &make_pooling<AveragePoolTranspose, AverageBackward>};

inline const bool pooling_registered = register_kernel<MaxPool>(DeviceKind::cuda, KernelTier::library, &max_pool) &&
                                       register_kernel<AveragePool>(DeviceKind::cuda, KernelTier::library, &average_pool) &&
                                       register_kernel<AveragePoolTranspose>(DeviceKind::cuda, KernelTier::library, &average_pool_transpose);

}  // namespace replicator::detail::cuda::cudnn
