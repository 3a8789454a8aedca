// SPDX-License-Identifier: Apache-2.0
// NVIDIA's cuDNN: how its calls are checked, and who owns what.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/libraries.cuh>

namespace replicator::cuda::cudnn {

// Throws DeviceError with the call, the error's name and text, and what cuDNN says of its cause.
inline void require(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char details[1024] = "";
  cudnnGetLastErrorString(details, sizeof details);
  throw DeviceError{std::string{"cuDNN: "} + call + " gave " + cudnnGetErrorString(status) + (details[0] ? std::string{": "} + details : "")};
}

// Of a handle or descriptor.
template <class T, cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)>
class Owner {
 public:
  Owner() { require(create(&value_), "the making of a handle or descriptor"); }
  Owner(Owner&& other) noexcept : value_{std::exchange(other.value_, nullptr)} {}
  Owner& operator=(Owner&&) = delete;
  ~Owner() {
    if (value_) (void)destroy(value_);
  }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};

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

// The calling thread's handle for its current GPU: handles are of one GPU, and not for several threads at a time.
inline cudnnHandle_t handle() {
  thread_local std::map<int, Handle> own;
  int device = 0;
  REPLICATOR_CUDA_CHECK(cudaGetDevice(&device));
  return own[device].get();
}

}  // namespace replicator::cuda::cudnn
