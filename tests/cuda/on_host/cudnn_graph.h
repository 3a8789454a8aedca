// SPDX-License-Identifier: Apache-2.0
// A stand-in on the host for the part of cuDNN's graph interface that is called. Descriptors are as strict as cuDNN's about
// attributes and their order, and a test may set the engines. Two kinds of graphs are computed by definition. One has arithmetic, a
// convolution, and then arithmetic or the statistics of its result. The other is one of a convolution's gradients.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <utility>

enum cudnnBackendDescriptorType_t {
  CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
  CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
  CUDNN_BACKEND_ENGINE_DESCRIPTOR,
  CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
  CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
  CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 10,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
  CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
  CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
  CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
  CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
  CUDNN_BACKEND_TENSOR_DESCRIPTOR
};
enum cudnnBackendAttributeType_t {
  CUDNN_TYPE_HANDLE,
  CUDNN_TYPE_DATA_TYPE,
  CUDNN_TYPE_BOOLEAN,
  CUDNN_TYPE_INT64,
  CUDNN_TYPE_FLOAT,
  CUDNN_TYPE_VOID_PTR = 6,
  CUDNN_TYPE_CONVOLUTION_MODE,
  CUDNN_TYPE_HEUR_MODE,
  CUDNN_TYPE_NAN_PROPOGATION = 10,
  CUDNN_TYPE_NUMERICAL_NOTE,
  CUDNN_TYPE_POINTWISE_MODE = 14,
  CUDNN_TYPE_BACKEND_DESCRIPTOR,
  CUDNN_TYPE_GENSTATS_MODE
};
enum cudnnBackendAttributeName_t {
  CUDNN_ATTR_POINTWISE_MODE,
  CUDNN_ATTR_POINTWISE_MATH_PREC,
  CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
  CUDNN_ATTR_CONVOLUTION_COMP_TYPE = 100,
  CUDNN_ATTR_CONVOLUTION_CONV_MODE,
  CUDNN_ATTR_CONVOLUTION_DILATIONS,
  CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
  CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
  CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
  CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
  CUDNN_ATTR_ENGINEHEUR_MODE = 200,
  CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
  CUDNN_ATTR_ENGINEHEUR_RESULTS,
  CUDNN_ATTR_ENGINECFG_ENGINE = 300,
  CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400,
  CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
  CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA = 700,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
  CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750,
  CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
  CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
  CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
  CUDNN_ATTR_OPERATION_GENSTATS_MODE = 770,
  CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC,
  CUDNN_ATTR_OPERATION_GENSTATS_XDESC,
  CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
  CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC,
  CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800,
  CUDNN_ATTR_OPERATIONGRAPH_OPS,
  CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900,
  CUDNN_ATTR_TENSOR_DATA_TYPE,
  CUDNN_ATTR_TENSOR_DIMENSIONS,
  CUDNN_ATTR_TENSOR_STRIDES,
  CUDNN_ATTR_TENSOR_UNIQUE_ID = 906,
  CUDNN_ATTR_TENSOR_IS_VIRTUAL,
  CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000,
  CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
  CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003,
  CUDNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303
};
enum cudnnPointwiseMode_t {
  CUDNN_POINTWISE_ADD,
  CUDNN_POINTWISE_MUL,
  CUDNN_POINTWISE_SUB = 9,
  CUDNN_POINTWISE_RELU_FWD = 100
};
enum cudnnGenStatsMode_t {
  CUDNN_GENSTATS_SUM_SQSUM
};
enum cudnnBackendHeurMode_t {
  CUDNN_HEUR_MODE_FALLBACK = 2,
  CUDNN_HEUR_MODE_A
};
enum cudnnBackendNumericalNote_t {
  CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
  CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
  CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
  CUDNN_NUMERICAL_NOTE_FFT,
  CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
  CUDNN_NUMERICAL_NOTE_WINOGRAD,
  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
  CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP,
  CUDNN_NUMERICAL_NOTE_TYPE_COUNT
};
using cudnnBackendDescriptor_t = void*;

namespace on_host {

struct Engine {
  int number = 0;
  std::vector<cudnnBackendNumericalNote_t> notes;
  cudnnStatus_t plan = CUDNN_STATUS_SUCCESS;  // status of finalising a plan with it
  std::int64_t workspace = 512;
  double milliseconds = 1;  // of a run
};
// The engines that are ranked for graphs, and the one that computed the last graph (-1: none).
struct Engines {
  std::vector<Engine> ranked{
      {0, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}}, {1, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}}, {2, {}}};
  std::vector<Engine> fallback = {};
  cudnnStatus_t graph = CUDNN_STATUS_SUCCESS;          // status of finalising a graph
  cudnnStatus_t channels_last = CUDNN_STATUS_SUCCESS;  // the same, where its images have channels last
  std::function<void()> running = [] {};               // called during every run
  int last = -1;
  int runs = 0;
};
inline Engines engines;

// A descriptor with its attributes. Descriptors that it refers to must outlive it, as far as is known of cuDNN's.
struct Backend {
  cudnnBackendDescriptorType_t type;
  std::map<cudnnBackendAttributeName_t, std::vector<char>> attributes = {};
  bool finalised = false;
  mutable std::atomic<bool> runs = false;  // for plans
  Engine engine = {};                      // for engines and their configurations
  const Backend* graph = nullptr;          // for configurations

  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto& bytes = attributes.at(name);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <class T>
  T one(cudnnBackendAttributeName_t name) const {
    T value{};
    std::memcpy(&value, attributes.at(name).data(), sizeof value);
    return value;
  }
  const Backend& other(cudnnBackendAttributeName_t name) const { return *static_cast<const Backend*>(one<void*>(name)); }
};

struct Attribute {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeType_t type;
  std::int64_t count;  // 0: any number
  bool optional = false;
};
// All attributes that must be set before a descriptor is finalised, and those that may be.
inline const std::map<cudnnBackendAttributeName_t, Attribute>& attributes() {
  static const auto table = [] {
    std::map<cudnnBackendAttributeName_t, Attribute> result;
    const auto add = [&](cudnnBackendDescriptorType_t of, cudnnBackendAttributeType_t type, std::int64_t count, auto... names) {
      (result.emplace(names, Attribute{of, type, count}), ...);
    };
    add(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE, 1, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    add(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_TYPE_CONVOLUTION_MODE, 1, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
    add(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_TYPE_INT64, 1, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    add(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_TYPE_INT64, 2, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
        CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    add(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE, 1, CUDNN_ATTR_TENSOR_DATA_TYPE);
    add(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_INT64, 1, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    add(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_INT64, 4, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES);
    add(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_BOOLEAN, 1, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_POINTWISE_MODE, 1, CUDNN_ATTR_POINTWISE_MODE);
    add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE, 1, CUDNN_ATTR_POINTWISE_MATH_PREC);
    add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_NAN_PROPOGATION, 1, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION);
    add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    for (const auto name : {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_TENSOR_IS_VIRTUAL})
      result.at(name).optional = true;
    add(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_TYPE_FLOAT, 1, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    add(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    add(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_TYPE_FLOAT, 1, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
    add(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
    add(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_TYPE_FLOAT, 1, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
    add(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
    add(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_TYPE_GENSTATS_MODE, 1, CUDNN_ATTR_OPERATION_GENSTATS_MODE);
    add(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE, 1, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC);
    add(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, CUDNN_ATTR_OPERATION_GENSTATS_XDESC,
        CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC);
    add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_TYPE_HANDLE, 1, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
    add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    add(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_TYPE_HEUR_MODE, 1, CUDNN_ATTR_ENGINEHEUR_MODE);
    add(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    add(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_TYPE_HANDLE, 1, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    add(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    add(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_TYPE_INT64, 0, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    add(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_TYPE_VOID_PTR, 0, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    add(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_TYPE_VOID_PTR, 1, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    return result;
  }();
  return table;
}
inline std::size_t size_of_attribute(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_BOOLEAN: return 1;
    default: return 4;
  }
}

inline cudnnTensorStruct tensor_of(const Backend& t) {
  cudnnTensorStruct result{};
  const auto extents = t.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), strides = t.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  std::copy(extents.begin(), extents.end(), result.extents);
  std::copy(strides.begin(), strides.end(), result.strides);
  result.type = t.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  return result;
}

// A virtual tensor passes from one operation to others and is never in memory.
inline bool is_virtual(const Backend& tensor) {
  return tensor.attributes.count(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0 && tensor.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
}
inline std::vector<const Backend*> tensors_of(const Backend& operation, std::initializer_list<cudnnBackendAttributeName_t> names) {
  std::vector<const Backend*> result;
  for (const auto name : names)
    if (operation.attributes.count(name) != 0) result.push_back(&operation.other(name));
  return result;
}
inline std::vector<const Backend*> inputs_of(const Backend& operation) {
  return tensors_of(operation, {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC});
}
inline std::vector<const Backend*> outputs_of(const Backend& operation) {
  return tensors_of(operation, {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
                                CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC});
}

// A convolution or one of its gradients. `result` is one of its tensors.
struct Convolution {
  const Backend &how, &x, &w, &y, &result;
  float alpha, beta;

  // Empty where the operation is another.
  static std::optional<Convolution> of(const Backend& o) {
    using Name = cudnnBackendAttributeName_t;
    const auto made = [&](Name how, Name x, Name w, Name y, Name result, Name alpha, Name beta) {
      return Convolution{o.other(how), o.other(x), o.other(w), o.other(y), o.other(result), o.one<float>(alpha), o.one<float>(beta)};
    };
    if (o.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      return made(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    if (o.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
      return made(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
    if (o.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
      return made(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
    return std::nullopt;
  }
  cudnnConvolutionStruct windows() const {
    cudnnConvolutionStruct result;
    const auto pair = [&](cudnnBackendAttributeName_t name, std::int64_t(&to)[2]) {
      const auto values = how.all<std::int64_t>(name);
      std::copy(values.begin(), values.end(), to);
    };
    pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, result.padding);
    pair(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, result.stride);
    pair(CUDNN_ATTR_CONVOLUTION_DILATIONS, result.dilation);
    result.groups = tensor_of(x).extents[1] / tensor_of(w).extents[1];
    return result;
  }
  bool lie_in(cudnnTensorFormat_t format) const {
    for (const auto* tensor : {&x, &w, &y}) {
      const auto t = tensor_of(*tensor);
      cudnnTensorStruct same;
      describe(&same, format, t.type, t.extents[0], t.extents[1], t.extents[2], t.extents[3]);
      if (!std::equal(t.strides, t.strides + 4, same.strides)) return false;
    }
    return true;
  }
  bool fits() const {
    const auto of_x = tensor_of(x), of_w = tensor_of(w), of_y = tensor_of(y);
    const auto c = windows();
    const auto behind = how.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    for (int i = 0; i < 2; ++i) {
      const auto reach = of_x.extents[i + 2] + c.padding[i] + behind[static_cast<std::size_t>(i)] - c.dilation[i] * (of_w.extents[i + 2] - 1) - 1;
      if (of_y.extents[i + 2] != reach / c.stride[i] + 1) return false;
    }
    return of_x.extents[0] == of_y.extents[0] && of_w.extents[0] == of_y.extents[1] && of_x.extents[1] == of_w.extents[1] * c.groups;
  }
  cudnnStatus_t status() const {
    const bool known = alpha == 1 && beta == 0 && how.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2 &&
                       how.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION &&
                       how.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT;
    if (!known || tensor_of(x).type != tensor_of(w).type) return CUDNN_STATUS_NOT_SUPPORTED;
    if (!fits()) return CUDNN_STATUS_BAD_PARAM;
    if (lie_in(CUDNN_TENSOR_NCHW)) return CUDNN_STATUS_SUCCESS;
    return lie_in(CUDNN_TENSOR_NHWC) ? engines.channels_last : CUDNN_STATUS_NOT_SUPPORTED;
  }
};

inline bool is_supported_statistics(const Backend& statistics) {
  const auto y = tensor_of(statistics.other(CUDNN_ATTR_OPERATION_GENSTATS_XDESC));
  for (const auto* output : outputs_of(statistics)) {
    const auto sums = tensor_of(*output);
    if (sums.type != CUDNN_DATA_FLOAT || sums.extents[0] * sums.extents[2] * sums.extents[3] != 1 || sums.extents[1] != y.extents[1] || sums.strides[1] != 1)
      return false;
  }
  return true;
}
// An extent of 1 broadcasts to any extent.
inline bool is_supported_arithmetic(const Backend& pointwise) {
  const auto mode = pointwise.other(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const auto inputs = inputs_of(pointwise);
  if (inputs.size() != (mode == CUDNN_POINTWISE_RELU_FWD ? 1 : 2)) return false;
  const auto y = tensor_of(*outputs_of(pointwise)[0]);
  for (int axis = 0; axis < 4; ++axis) {
    std::int64_t largest = 1;
    for (const auto* input : inputs) {
      const auto extent = tensor_of(*input).extents[axis];
      if (extent != 1 && extent != y.extents[axis]) return false;
      largest = std::max(largest, extent);
    }
    if (largest != y.extents[axis]) return false;
  }
  return true;
}

// Accepts a graph of one convolution, with arithmetic on its input and result, or statistics. A virtual tensor must be written
// before it is read.
inline cudnnStatus_t understand(const Backend& graph) {
  std::vector<const Backend*> given;
  int convolutions = 0;
  for (const auto* operation : graph.all<const Backend*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const auto* input : inputs_of(*operation))
      if (is_virtual(*input) && std::find(given.begin(), given.end(), input) == given.end()) return CUDNN_STATUS_BAD_PARAM;
    const auto outputs = outputs_of(*operation);
    given.insert(given.end(), outputs.begin(), outputs.end());
    if (const auto convolution = Convolution::of(*operation)) {
      if (++convolutions > 1) return CUDNN_STATUS_NOT_SUPPORTED;
      if (const auto status = convolution->status(); status != CUDNN_STATUS_SUCCESS) return status;
    } else if (!(operation->type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR ? is_supported_statistics(*operation) : is_supported_arithmetic(*operation))) {
      return CUDNN_STATUS_NOT_SUPPORTED;
    }
  }
  return convolutions == 1 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

// Computes a graph when it runs. Virtual tensors have memory of their own.
class GraphRun {
 public:
  GraphRun(const Backend& graph, const std::map<std::int64_t, void*>& data) : operations_{graph.all<const Backend*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)}, data_{data} {}

  // Whether all tensors that are not virtual have memory, and it is aligned.
  bool complete() const {
    for (const auto* operation : operations_)
      for (const auto& tensors : {inputs_of(*operation), outputs_of(*operation)})
        for (const auto* tensor : tensors)
          if (!is_virtual(*tensor)) {
            const auto found = data_.find(tensor->one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
            if (found == data_.end() || reinterpret_cast<std::uintptr_t>(found->second) % 16 != 0) return false;
          }
    return true;
  }
  void compute(void* workspace, std::size_t bytes) {
    for (const auto* operation : operations_) {
      if (const auto convolution = Convolution::of(*operation)) run(*convolution, workspace, bytes);
      else if (operation->type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR) sum(*operation);
      else apply(*operation);
    }
  }

 private:
  void* at(const Backend& tensor) {
    if (!is_virtual(tensor)) return data_.at(tensor.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
    auto& memory = passing_[&tensor];
    const auto t = tensor_of(tensor);
    memory.resize(static_cast<std::size_t>(t.extents[0] * t.extents[1] * t.extents[2] * t.extents[3]));
    return memory.data();
  }
  void run(const Convolution& c, void* workspace, std::size_t bytes) {
    const auto x = tensor_of(c.x), w = tensor_of(c.w), y = tensor_of(c.y);
    const auto* out = &c.result == &c.x ? &x : &c.result == &c.w ? &w
                                                                 : &y;
    const auto windows = c.windows();
    convolve(&x, at(c.x), &w, at(c.w), &y, at(c.y), &windows, out, at(c.result), workspace, bytes);
  }
  template <class F>
  static void for_each_index(const cudnnTensorStruct& t, F f) {
    for (std::int64_t n = 0; n < t.extents[0]; ++n)
      for (std::int64_t c = 0; c < t.extents[1]; ++c)
        for (std::int64_t i = 0; i < t.extents[2]; ++i)
          for (std::int64_t j = 0; j < t.extents[3]; ++j) f(std::initializer_list<std::int64_t>{n, c, i, j});
  }
  static std::int64_t offset(const cudnnTensorStruct& t, std::initializer_list<std::int64_t> index) {
    std::int64_t result = 0;
    for (int axis = 0; axis < 4; ++axis)
      if (t.extents[axis] > 1) result += index.begin()[axis] * t.strides[axis];
    return result;
  }
  void sum(const Backend& statistics) {
    const Backend& input = *inputs_of(statistics)[0];
    const auto y = tensor_of(input);
    const auto outputs = outputs_of(statistics);
    std::vector<double> sums(static_cast<std::size_t>(y.extents[1])), squares = sums;
    for_each_index(y, [&](std::initializer_list<std::int64_t> index) {
      const double value = read(&y, at(input), offset(y, index));
      const auto channel = static_cast<std::size_t>(index.begin()[1]);
      sums[channel] += value;
      squares[channel] += value * value;
    });
    std::copy(sums.begin(), sums.end(), static_cast<float*>(at(*outputs[0])));
    std::copy(squares.begin(), squares.end(), static_cast<float*>(at(*outputs[1])));
  }
  void apply(const Backend& pointwise) {
    const Backend& how = pointwise.other(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const bool keeps_nan = how.attributes.count(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) != 0 &&
                           how.one<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) == CUDNN_PROPAGATE_NAN;
    const auto inputs = inputs_of(pointwise);
    const Backend& output = *outputs_of(pointwise)[0];
    const auto y = tensor_of(output);
    for_each_index(y, [&](std::initializer_list<std::int64_t> index) {
      float values[2]{};
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto t = tensor_of(*inputs[i]);
        values[i] = read(&t, at(*inputs[i]), offset(t, index));
      }
      const auto [a, b] = values;
      const float rectified = a > 0 || (keeps_nan && a != a) ? a : 0;
      const float result = mode == CUDNN_POINTWISE_ADD ? a + b : mode == CUDNN_POINTWISE_SUB ? a - b
                                                             : mode == CUDNN_POINTWISE_MUL   ? a * b
                                                                                             : rectified;
      write(&y, at(output), offset(y, index), result);
    });
  }

  std::vector<const Backend*> operations_;
  std::map<std::int64_t, void*> data_;
  std::map<const Backend*, std::vector<float>> passing_;
};

// The status of finalising a descriptor that has all its attributes.
inline cudnnStatus_t check(const Backend& d) {
  if (d.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    const auto status = understand(d);
    return status == CUDNN_STATUS_SUCCESS ? engines.graph : status;
  }
  if (d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return d.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine.plan;
  if (d.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR &&
      d.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() != d.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size())
    return CUDNN_STATUS_BAD_PARAM;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace on_host

inline cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  return *made = new on_host::Backend{type}, CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) { return on_host::drop(static_cast<on_host::Backend*>(d)); }
inline cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                              std::int64_t count, const void* values) {
  auto& d = *static_cast<on_host::Backend*>(descriptor);
  const auto known = on_host::attributes().find(name);
  if (d.finalised || known == on_host::attributes().end() || known->second.of != d.type || known->second.type != type || count < 1 ||
      (known->second.count != 0 && known->second.count != count))
    return CUDNN_STATUS_BAD_PARAM;
  const auto* bytes = static_cast<const char*>(values);
  std::vector<char> kept(bytes, bytes + static_cast<std::size_t>(count) * on_host::size_of_attribute(type));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (std::int64_t i = 0; i < count; ++i)
      if (!static_cast<on_host::Backend* const*>(values)[i]->finalised) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  d.attributes[name] = std::move(kept);
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  auto& d = *static_cast<on_host::Backend*>(descriptor);
  if (d.finalised) return CUDNN_STATUS_BAD_PARAM;
  for (const auto& [name, attribute] : on_host::attributes())
    if (attribute.of == d.type && !attribute.optional && d.attributes.count(name) == 0) return CUDNN_STATUS_BAD_PARAM;
  const auto status = on_host::check(d);
  d.finalised = status == CUDNN_STATUS_SUCCESS;
  return status;
}
inline cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                              std::int64_t most, std::int64_t* count, void* values) {
  const auto& d = *static_cast<const on_host::Backend*>(descriptor);
  if (!d.finalised) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  const auto fill = [&](on_host::Backend* one, cudnnBackendDescriptorType_t wanted, const on_host::Engine& engine) {
    one->engine = engine;
    one->finalised = true;
    return one->type == wanted;
  };
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const bool first = d.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
    const auto& ranked = first ? on_host::engines.ranked : on_host::engines.fallback;
    *count = static_cast<std::int64_t>(ranked.size());
    if (most == 0) return CUDNN_STATUS_SUCCESS;
    *count = std::min(*count, most);
    for (std::int64_t i = 0; i < *count; ++i)
      if (!fill(static_cast<on_host::Backend**>(values)[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, ranked[static_cast<std::size_t>(i)]))
        return CUDNN_STATUS_BAD_PARAM;
    for (std::int64_t i = 0; i < *count; ++i) static_cast<on_host::Backend**>(values)[i]->graph = &d.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && d.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && type == CUDNN_TYPE_BACKEND_DESCRIPTOR && most == 1) {
    *count = 1;
    return fill(*static_cast<on_host::Backend**>(values), CUDNN_BACKEND_ENGINE_DESCRIPTOR, d.engine) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  }
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && type == CUDNN_TYPE_NUMERICAL_NOTE) {
    *count = static_cast<std::int64_t>(d.engine.notes.size());
    std::copy_n(d.engine.notes.begin(), std::min(*count, most), static_cast<cudnnBackendNumericalNote_t*>(values));
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && type == CUDNN_TYPE_INT64 && most == 1) {
    *count = 1;
    *static_cast<std::int64_t*>(values) = d.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine.workspace;
    return CUDNN_STATUS_SUCCESS;
  }
  return CUDNN_STATUS_BAD_PARAM;
}
inline cudnnStatus_t cudnnBackendExecute(cudnnHandle_t on, cudnnBackendDescriptor_t plan_descriptor, cudnnBackendDescriptor_t pack_descriptor) {
  const auto &plan = *static_cast<const on_host::Backend*>(plan_descriptor), &pack = *static_cast<const on_host::Backend*>(pack_descriptor);
  if (!plan.finalised || !pack.finalised) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  if (plan.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || pack.type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM;
  const auto& configuration = plan.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto numbers = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<std::int64_t, void*> data;
  for (std::size_t i = 0; i < numbers.size(); ++i) data[numbers[i]] = pointers[i];
  on_host::GraphRun graph{*configuration.graph, data};
  if (!graph.complete()) return CUDNN_STATUS_BAD_PARAM;
  if (plan.runs.exchange(true)) return CUDNN_STATUS_INTERNAL_ERROR;  // in another thread
  on_host::engines.running();
  std::atomic_ref{on_host::engines.last}.store(configuration.engine.number);
  ++std::atomic_ref{on_host::engines.runs};
  on_host::pass(configuration.engine.milliseconds);
  void* const workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  on_host::give(on->stream, [=, bytes = static_cast<std::size_t>(configuration.engine.workspace)]() mutable { graph.compute(workspace, bytes); });
  plan.runs = false;
  return CUDNN_STATUS_SUCCESS;
}
