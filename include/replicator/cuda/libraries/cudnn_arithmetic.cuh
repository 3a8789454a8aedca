// SPDX-License-Identifier: Apache-2.0
// Expressions as operations of cuDNN's graphs. Each instruction is one operation, on tensors that are never in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <replicator/core/shape.hpp>
#include <replicator/cuda/libraries/cudnn_graph.cuh>
#include <replicator/graph/expression.hpp>

namespace replicator::detail::cuda::cudnn {

// The shape with enough axes of 1 before it that it has four.
inline Shape as_image(const Shape& shape) {
  Shape result;
  for (auto axis = shape.rank(); axis < 4; ++axis) result.push_back(1);
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
  return result;
}

struct ShapedTensor {
  cudnnBackendDescriptor_t tensor = nullptr;
  Shape shape;
};

// Throws Unsupported for all other operations.
inline cudnnPointwiseMode_t pointwise_mode(ScalarOp op) {
  switch (op) {
    case ScalarOp::add: return CUDNN_POINTWISE_ADD;
    case ScalarOp::subtract: return CUDNN_POINTWISE_SUB;
    case ScalarOp::multiply: return CUDNN_POINTWISE_MUL;
    case ScalarOp::rectify: return CUDNN_POINTWISE_RELU_FWD;
    default: throw Unsupported{};
  }
}

class GraphArithmetic {
 public:
  // Passing tensors are numbered from `next` on.
  GraphArithmetic(OperationGraph& graph, std::int64_t next) : graph_{graph}, next_{next} {}

  ShapedTensor passing(const TensorType& type) { return {graph_.tensor(image_tensor(next_++, type, CUDNN_TENSOR_NHWC, true)), type.shape}; }

  // Adds the operations of an expression with one output, which is `result`. Values before it are in float32.
  void add(const Expression& e, std::span<const ShapedTensor> inputs, const ShapedTensor& result) {
    std::vector<ShapedTensor> values;
    for (const auto& f : e.code) {
      if (f.op == ScalarOp::input) {
        values.push_back(inputs[f.a]);
        continue;
      }
      const bool two = operands_of(f.op) == 2;
      auto a = values[f.a], b = two ? values[f.b] : ShapedTensor{};
      const Shape shape = two ? *broadcast(a.shape, b.shape) : a.shape;
      if (two && f.op != ScalarOp::subtract && !(a.shape == shape)) std::swap(a, b);  // the operand with the full shape first
      values.push_back(values.size() == e.outputs[0] ? result : passing({DType::float32, shape}));
      add(f.op, a, b, values.back());
    }
  }

 private:
  void add(ScalarOp op, const ShapedTensor& a, const ShapedTensor& b, const ShapedTensor& to) {
    auto& mode = graph_.keep(Descriptor{CUDNN_BACKEND_POINTWISE_DESCRIPTOR})
                     .set(CUDNN_ATTR_POINTWISE_MODE, pointwise_mode(op))
                     .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (op == ScalarOp::rectify) mode.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
    auto& operation = graph_.keep(Descriptor{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR})
                          .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode.finalise().get())
                          .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a.tensor)
                          .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.tensor);
    if (b.tensor) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b.tensor);
    graph_.add(operation);
  }

  OperationGraph& graph_;
  std::int64_t next_;
};

}  // namespace replicator::detail::cuda::cudnn
