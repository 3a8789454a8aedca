// SPDX-License-Identifier: Apache-2.0
// Cumulative sums along an axis, from its beginning or from its end.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/movement/axis.hpp>

namespace replicator {

struct CumulativeSumOptions {
  bool exclusive = false;  // leaves out each element's own value: the first sum is 0
  bool reverse = false;    // sums from the end
};

// Each sum is the one before it plus one more term. The operation is linear, and its transpose walks the other way.
struct CumulativeSum {
  static constexpr std::string_view name = "cumulative_sum";
  std::int64_t axis = 0;  // from the front
  bool exclusive = false;
  bool reverse = false;

  template <class V>
  void describe(V& v) const {
    v("axis", axis);
    v("exclusive", exclusive);
    v("reverse", reverse);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    (void)detail::require_axis(axis, inputs[0].shape.rank());
    if (inputs[0].dtype == DType::boolean || inputs[0].dtype == DType::uint8)
      throw BuildError{"found " + inputs[0].text() + ", whose sums do not fit: cast it to int32 or a floating type"};
    return {inputs[0]};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    return {compute(at.graph, CumulativeSum{axis, exclusive, !reverse}, {at.upstream[0]}, at.where)};
  }
};

// y[.., i, ..] = x[.., 0, ..] + ... + x[.., i, ..] along an axis (-1: the last), added in this order. The options leave out x[i],
// or begin at the end. Takes floating types, int32 and int64. Throws BuildError for uint8 and bool.
template <Element T>
Tensor<T> cumulative_sum(Tensor<T> x, std::int64_t axis, CumulativeSumOptions options = {},
                         std::source_location where = std::source_location::current()) {
  const auto from_front =
      detail::at_line("cumulative_sum", where, [&] { return detail::require_axis(axis, x.shape().rank()); });
  return Tensor<T>{compute(x.graph(), CumulativeSum{from_front, options.exclusive, options.reverse}, {x}, where)};
}

}  // namespace replicator
