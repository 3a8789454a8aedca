// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph interface: operations on tensors, which an engine computes in as few kernels as it can. Everything is a
// descriptor. It is given attributes, then finalised, and from then on only read. Names are those of NVIDIA's cuDNN backend reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <replicator/core/dtype.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/cuda/libraries/cudnn.cuh>
#include <replicator/ops/convolution.hpp>

namespace replicator::detail::cuda::cudnn {

// Thrown where cuDNN cannot compute a graph. It is caught where another kernel can be taken.
struct Unsupported : DeviceError {
  Unsupported() : DeviceError{"cuDNN has no engine on this GPU for a graph that it was to compute"} {}
};

inline void require_supported(cudnnStatus_t status, const char* call) {
  if (declines(status) || status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED) throw Unsupported{};
  require(status, call);
}

// cuDNN's names for types of attributes. Pointers to data are pointers to bytes, because a descriptor is a pointer to void.
template <class T>
inline constexpr cudnnBackendAttributeType_t attribute_type{};
template <>
inline constexpr auto attribute_type<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr auto attribute_type<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr auto attribute_type<std::int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr auto attribute_type<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr auto attribute_type<const std::byte*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr auto attribute_type<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr auto attribute_type<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr auto attribute_type<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;
template <>
inline constexpr auto attribute_type<cudnnBackendDescriptor_t> = CUDNN_TYPE_BACKEND_DESCRIPTOR;
template <>
inline constexpr auto attribute_type<cudnnGenStatsMode_t> = CUDNN_TYPE_GENSTATS_MODE;
template <>
inline constexpr auto attribute_type<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto attribute_type<cudnnNanPropagation_t> = CUDNN_TYPE_NAN_PROPOGATION;
template <>
inline constexpr auto attribute_type<bool> = CUDNN_TYPE_BOOLEAN;

// An owned descriptor. Throws Unsupported where cuDNN declines, and DeviceError for any other failure.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) : descriptor_{made(type)} {}
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

  template <class T>
  Descriptor& set_all(cudnnBackendAttributeName_t name, std::span<const T> values) {
    require_supported(cudnnBackendSetAttribute(get(), name, attribute_type<T>, static_cast<std::int64_t>(values.size()), values.data()),
                      "cudnnBackendSetAttribute");
    return *this;
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set_all(name, std::span<const T>{&value, 1});
  }
  Descriptor& finalise() {
    require_supported(cudnnBackendFinalize(get()), "cudnnBackendFinalize");
    return *this;
  }

  // Reads into `values`, and shortens it where there are fewer. Descriptors are filled, not replaced.
  template <class T>
  void read(cudnnBackendAttributeName_t name, std::vector<T>& values) const {
    std::int64_t count = 0;
    require_supported(cudnnBackendGetAttribute(get(), name, attribute_type<T>, static_cast<std::int64_t>(values.size()), &count, values.data()),
                      "cudnnBackendGetAttribute");
    if (static_cast<std::size_t>(count) < values.size()) values.resize(static_cast<std::size_t>(count));
  }
  // The number of values.
  template <class T>
  std::int64_t count(cudnnBackendAttributeName_t name) const {
    std::int64_t count = 0;
    require_supported(cudnnBackendGetAttribute(get(), name, attribute_type<T>, 0, &count, nullptr), "cudnnBackendGetAttribute");
    return count;
  }

 private:
  static cudnnBackendDescriptor_t made(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t value = nullptr;
    require(cudnnBackendCreateDescriptor(type, &value), "cudnnBackendCreateDescriptor");
    return value;
  }
  Owned<cudnnBackendDescriptor_t, &cudnnBackendDestroyDescriptor> descriptor_;
};

// A tensor of a graph. The buffer with its number is bound when the graph runs. A `passing` tensor has no buffer: one operation
// gives it to others of the graph, and it is never in memory.
struct GraphTensor {
  std::int64_t number = 0;
  DType dtype = DType::float32;
  std::vector<std::int64_t> extents, strides;  // in elements
  bool passing = false;
};

// Operations in the order in which they are added. They share tensors by their descriptors.
class OperationGraph {
 public:
  // Alignment of values and workspaces in memory, in bytes.
  static constexpr std::int64_t alignment = 16;

  cudnnBackendDescriptor_t tensor(const GraphTensor& t) {
    return keep(Descriptor{CUDNN_BACKEND_TENSOR_DESCRIPTOR})
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.number)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(t.dtype))
        .set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span{t.extents})
        .set_all(CUDNN_ATTR_TENSOR_STRIDES, std::span{t.strides})
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.passing)
        .finalise()
        .get();
  }
  Descriptor& keep(Descriptor descriptor) { return *kept_.emplace_back(std::make_unique<Descriptor>(std::move(descriptor))); }
  void add(Descriptor& operation) { operations_.push_back(operation.finalise().get()); }

  Descriptor& finalise(cudnnHandle_t on) {
    return keep(Descriptor{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR})
        .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, on)
        .set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const cudnnBackendDescriptor_t>{operations_})
        .finalise();
  }

 private:
  std::vector<std::unique_ptr<Descriptor>> kept_;  // pointers, so that addresses stay
  std::vector<cudnnBackendDescriptor_t> operations_;
};

// Images, or weights of a convolution, in a format. The shape has four axes.
inline GraphTensor image_tensor(std::int64_t number, const TensorType& type, cudnnTensorFormat_t format, bool passing = false) {
  const auto& s = type.shape;
  GraphTensor result{number, type.dtype, {s[0], s[1], s[2], s[3]}, {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}, passing};
  if (format == CUDNN_TENSOR_NHWC) result.strides = {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]};
  return result;
}

// How a convolution moves its windows. The channels of its tensors tell the groups. Sums are in float32.
inline cudnnBackendDescriptor_t convolution_descriptor(OperationGraph& graph, const ConvolutionOptions& options) {
  const auto pair = [](const Extents2d& extents) { return std::vector<std::int64_t>(extents.begin(), extents.end()); };
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

}  // namespace replicator::detail::cuda::cudnn
