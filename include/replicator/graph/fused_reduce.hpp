// SPDX-License-Identifier: Apache-2.0
// FusedReduce: a reduction with an epilogue, which is elementwise arithmetic on its results. In a batch norm it makes mean, scale
// and running statistics of the sums. A GPU computes both in one launch.
//
// No user writes this operation. graph/passes/fuse_reduces.hpp makes it for kinds of devices that have a kernel of it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/map.hpp>

namespace replicator::detail {

// Inputs: first those of the reduction. Then what else the epilogue reads, with an element for each result or a single element.
//
// Outputs: those of the epilogue. They have the bits of a Reduce whose results a Map reads.
struct FusedReduce {
  static constexpr std::string_view name = "fused_reduce";

  Reduce reduce;              // its results are values of the type of computation
  ExpressionPtr epilogue;     // its inputs are the results, then the node's further inputs
  std::vector<Shape> shapes;  // of the outputs, which all have as many elements as a result
  std::vector<DType> dtypes;  // likewise

  std::size_t reduced_inputs() const { return reduce.expression->inputs; }
  // Of each result of the reduction.
  std::vector<TensorType> results(std::span<const TensorType> inputs) const { return reduce.infer_shape(inputs.first(reduced_inputs())); }

  template <class V>
  void describe(V& v) const {
    reduce.describe(v);
    v("epilogue", *epilogue);
    v("shapes", shapes);
    v("output dtypes", dtypes);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType>) const {
    std::vector<TensorType> result;
    for (std::size_t o = 0; o < shapes.size(); ++o) result.push_back({dtypes[o], shapes[o]});
    return result;
  }
  // For example "sum of x0, then div(x0, 8)".
  std::string formula(std::size_t length) const {
    std::string text = reduce.formula(length) + ", then " + epilogue->text(length);
    if (text.size() > length) text.replace(length - 3, std::string::npos, "...");
    return text;
  }
};

}  // namespace replicator::detail
