// SPDX-License-Identifier: Apache-2.0
// A convolution together with the sums over what it gives that a batch norm asks for: an epilogue that GPUs do before the result leaves
// their registers. No user writes it: fuse_statistics makes it of a convolution and reductions, behind the derivatives.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <replicator/ops/convolution.hpp>

namespace replicator {

// Inputs x, w, of float32 or bfloat16. Outputs y, as of Convolution; the sum and the sum of squares of y for each channel, [O] of float32. Whether
// these are of y before or after it is rounded to bfloat16 is the kernel's choice.
struct ConvolutionStatistics {
  static constexpr std::string_view name = "convolution_statistics";
  ConvolutionOptions options;

  static bool takes(DType dtype) { return dtype == DType::float32 || dtype == DType::bfloat16; }

  template <class V>
  void describe(V& v) const {
    options.describe(v);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const auto y = Convolution{options}.infer_shape(inputs)[0];
    if (!takes(y.dtype)) throw BuildError{"found " + inputs[0].text() + ": statistics are taken of float32 and bfloat16"};
    const TensorType sum{DType::float32, {y.shape[1]}};
    return {y, sum, sum};
  }
  double work(std::span<const TensorType> inputs) const {
    return Convolution{options}.work(inputs) + 3 * static_cast<double>(infer_shape(inputs)[0].shape.elements());
  }
};

}  // namespace replicator
