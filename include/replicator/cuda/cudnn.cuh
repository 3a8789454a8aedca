// SPDX-License-Identifier: Apache-2.0
// NVIDIA's cuDNN: how its calls are checked, and who owns what.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <string>

#include <replicator/core/error.hpp>
#include <replicator/core/layout.hpp>
#include <replicator/cuda/libraries.cuh>
#include <replicator/cuda/owned.cuh>

namespace replicator::cuda::cudnn {

// Throws DeviceError with the call, the error's name and text, and what cuDNN says of its cause.
inline void require(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char details[1024] = "";
  cudnnGetLastErrorString(details, sizeof details);
  throw DeviceError{std::string{"cuDNN: "} + call + " gave " + cudnnGetErrorString(status) + (details[0] ? std::string{": "} + details : "")};
}

// cuDNN 9 calls parameters bad, too, that it does not support together.
inline bool declines(cudnnStatus_t status) {
  const auto category = CUDNN_STATUS_CATEGORY(status);
  return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

template <class T, cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)>
class Owner : public Owned<T, destroy> {
 public:
  Owner() : Owned<T, destroy>{made()} {}

 private:
  static T made() {
    T value = nullptr;
    require(create(&value), "the making of a handle or descriptor");
    return value;
  }
};

// What an algorithm may ask for beside its operands.
inline constexpr std::size_t most_workspace = std::size_t{1} << 30;

// How the four-dimensional tensors lie that cuDNN is given in a format.
inline Layout layout_in(cudnnTensorFormat_t format, const Shape& shape) {
  return format == CUDNN_TENSOR_NHWC ? simplest(channels_last(shape), shape) : Layout{};
}

using Handle = Owner<cudnnHandle_t, &cudnnCreate, &cudnnDestroy>;
using TensorDescriptor = Owner<cudnnTensorDescriptor_t, &cudnnCreateTensorDescriptor, &cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Owner<cudnnFilterDescriptor_t, &cudnnCreateFilterDescriptor, &cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor = Owner<cudnnConvolutionDescriptor_t, &cudnnCreateConvolutionDescriptor, &cudnnDestroyConvolutionDescriptor>;

// "cuDNN 9.19.0"
inline std::string describe() {
  const std::size_t version = cudnnGetVersion();  // 91900
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}
inline const bool described = (describe_cudnn.store(&describe), true);

// The calling thread's for its current GPU.
inline cudnnHandle_t handle() { return handle_for_current_gpu<Handle>(); }

}  // namespace replicator::cuda::cudnn
