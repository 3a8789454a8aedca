// SPDX-License-Identifier: Apache-2.0
// Checked calls of NVIDIA's cuDNN, and owners of its handles and descriptors.
#pragma once

#include <cudnn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/cuda/libraries/libraries.cuh>
#include <replicator/cuda/libraries/owned.cuh>
#include <replicator/ops/window.hpp>

namespace replicator::detail::cuda::cudnn {

// Throws DeviceError with the call, the error's name, and cuDNN's words on its cause.
inline void require(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char details[1024] = "";
  cudnnGetLastErrorString(details, sizeof details);
  throw DeviceError{std::string{"cuDNN: "} + call + " gave " + cudnnGetErrorString(status) + (details[0] ? std::string{": "} + details : "")};
}

// Whether cuDNN does not support what was asked for. cuDNN 9 also reports bad parameters where it does not support a combination.
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

// Largest workspace that an algorithm may ask for, in bytes.
inline constexpr std::size_t most_workspace = std::size_t{1} << 30;

// Layout of the four-dimensional tensors that cuDNN is given in a format.
inline Layout layout_in(cudnnTensorFormat_t format, const Shape& shape) {
  return format == CUDNN_TENSOR_NHWC ? simplest(channels_last(shape), shape) : Layout{};
}

using Handle = Owner<cudnnHandle_t, &cudnnCreate, &cudnnDestroy>;
using TensorDescriptor = Owner<cudnnTensorDescriptor_t, &cudnnCreateTensorDescriptor, &cudnnDestroyTensorDescriptor>;
using PoolingDescriptor = Owner<cudnnPoolingDescriptor_t, &cudnnCreatePoolingDescriptor, &cudnnDestroyPoolingDescriptor>;

// Whether the plain calls take these sizes: they count in int, and take no tensor without elements.
inline bool are_counted(std::initializer_list<Extents2d> pairs) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  return std::all_of(pairs.begin(), pairs.end(), [](const Extents2d& pair) { return pair[0] <= most && pair[1] <= most; });
}
inline bool are_counted(std::initializer_list<const Shape*> shapes) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  return std::all_of(shapes.begin(), shapes.end(), [](const Shape* s) { return s->elements() > 0 && s->elements() <= most; });
}
inline int counted(std::int64_t value) { return static_cast<int>(value); }

inline cudnnDataType_t data_type(DType dtype) {
  if (dtype == DType::bfloat16) return CUDNN_DATA_BFLOAT16;
  return dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

// Describes images [N, C, H, W].
inline void set_images(const TensorDescriptor& images, cudnnTensorFormat_t format, DType dtype, const Shape& s) {
  require(cudnnSetTensor4dDescriptor(images.get(), format, data_type(dtype), counted(s[0]), counted(s[1]), counted(s[2]), counted(s[3])),
          "cudnnSetTensor4dDescriptor");
}

// For example "cuDNN 9.19.0".
inline std::string describe() {
  const std::size_t version = cudnnGetVersion();  // 91900
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}
inline const bool described = (describe_cudnn.store(&describe), true);

// The calling thread's handle for its current GPU.
inline cudnnHandle_t handle() { return handle_for_current_gpu<Handle>(); }

}  // namespace replicator::detail::cuda::cudnn
