// SPDX-License-Identifier: Apache-2.0
// A convolution together with operations around it in a network. GPUs compute these while the operands are on their way. The
// prologue is arithmetic on the input: a batch norm's scale and bias, ReLU. The epilogue is arithmetic on the result: the same,
// and a residual sum. The statistics are the sums over the result that a batch norm needs.
//
// No user writes this operation. ops/fusion/fuse_convolutions.hpp makes it, after the derivatives.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/ops/convolution.hpp>

namespace replicator::detail {

// Inputs: first the inputs of the prologue, which computes x, or else x itself. Then w. Then the inputs of the epilogue, without
// its first one, the convolution's result.
//
// Outputs: the epilogue's result or else y itself, in the type of w. With statistics also the sum and the sum of squares of y for
// each channel, as float32 [O]. The kernel chooses whether x and y are rounded to bfloat16 before they are used.
struct FusedConvolution {
  static constexpr std::string_view name = "fused_convolution";
  static constexpr std::size_t most_inputs = 16;  // of the prologue or epilogue

  ConvolutionOptions options;
  Expression prologue = {};  // without outputs there is no prologue
  Expression epilogue = {};
  bool statistics = false;  // only without an epilogue

  static bool takes(DType dtype) { return dtype == DType::float32 || dtype == DType::bfloat16; }
  // Takes sums, differences, products and ReLU of float32.
  static bool takes(const Expression& e) {
    constexpr std::array known{ScalarOp::input, ScalarOp::add, ScalarOp::subtract, ScalarOp::multiply, ScalarOp::rectify};
    return e.compute == DType::float32 && e.outputs.size() == 1 && e.inputs <= most_inputs && e.code[e.outputs[0]].op != ScalarOp::input &&
           std::all_of(e.code.begin(), e.code.end(), [&](const auto& f) { return std::find(known.begin(), known.end(), f.op) != known.end(); });
  }
  bool has_prologue() const { return !prologue.outputs.empty(); }
  bool has_epilogue() const { return !epilogue.outputs.empty(); }
  // Number of inputs before w.
  std::size_t image_inputs() const { return has_prologue() ? prologue.inputs : 1; }
  TensorType image(std::span<const TensorType> inputs) const {
    return has_prologue() ? TensorType{inputs[image_inputs()].dtype, detail::broadcast_all(inputs.first(image_inputs()))} : inputs[0];
  }
  TensorType result(std::span<const TensorType> inputs) const {
    return Convolution{options}.infer_shape(std::array{image(inputs), inputs[image_inputs()]})[0];
  }

  template <class V>
  void describe(V& v) const {
    options.describe(v);
    v("prologue", prologue);
    v("epilogue", epilogue);
    v("statistics", statistics);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const auto y = result(inputs);
    if (!takes(y.dtype)) throw BuildError{"found " + inputs[0].text() + ": convolutions of float32 and bfloat16 are fused"};
    detail::require_domain(inputs.subspan(image_inputs() + 1), y.shape);
    const TensorType sum{DType::float32, {y.shape[1]}};
    return statistics ? std::vector{y, sum, sum} : std::vector{y};
  }
  double work(std::span<const TensorType> inputs) const {
    const auto elements = [](const TensorType& type) { return static_cast<double>(type.shape.elements()); };
    const auto x = image(inputs), y = result(inputs);
    return detail::convolution_work(y.shape, inputs[image_inputs()].shape) + static_cast<double>(prologue.code.size()) * elements(x) +
           (static_cast<double>(epilogue.code.size()) + (statistics ? 3 : 0)) * elements(y);
  }
  // For example "of relu(add(x0, x1)), with sums of its result".
  std::string formula(std::size_t length) const {
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (has_prologue()) add("of " + prologue.text(length));
    if (has_epilogue()) add("then " + epilogue.text(length));
    if (statistics) add("with sums of its result");
    if (text.size() > length) text.replace(length - 3, std::string::npos, "...");
    return text;
  }
};

}  // namespace replicator::detail
