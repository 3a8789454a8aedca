// SPDX-License-Identifier: Apache-2.0
// Expressions for testing GPU kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::test {

using namespace replicator::detail;

inline constexpr DType compute_types[] = {DType::float32, DType::float64, DType::int32, DType::int64};
inline constexpr DType element_types[] = {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8, DType::boolean, DType::bfloat16};

inline bool only_floating(ScalarOp op) { return op == ScalarOp::square_root || (op >= ScalarOp::exponential && op <= ScalarOp::cosine); }
// Those that this compute type has.
inline std::vector<ScalarOp> operations_on(DType compute) {
  std::vector<ScalarOp> result;
  for (auto code = static_cast<int>(ScalarOp::negate); code <= static_cast<int>(ScalarOp::multiply_add); ++code)
    if (const auto op = static_cast<ScalarOp>(code); is_floating(compute) ? !needs_integers(op) : !only_floating(op)) result.push_back(op);
  return result;
}

// Of three inputs, an output for each operation.
inline Expression every_operation(DType compute) {
  Expression e;
  e.compute = compute;
  e.inputs = 3;
  const auto a = e.input(0), b = e.input(1), c = e.input(2);
  for (const auto op : operations_on(compute)) e.outputs.push_back(e.apply(op, a, operands_of(op) > 1 ? b : std::uint16_t{0}, operands_of(op) > 2 ? c : std::uint16_t{0}));
  return e;
}

struct DrawnExpression {
  Expression expression;
  Shape domain;
  std::vector<TensorType> inputs;  // broadcast to the domain
  std::vector<DType> stored;       // of the outputs
};

inline DrawnExpression random_expression(PhiloxStream& random) {
  DrawnExpression drawn;
  auto& e = drawn.expression;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(n))); };
  e.compute = compute_types[below(4)];
  for (auto rank = below(5); rank-- > 0;) drawn.domain.push_back(static_cast<std::int64_t>(1 + below(9)));
  e.inputs = static_cast<std::uint16_t>(1 + below(4));
  std::vector<std::uint16_t> values;
  for (std::uint16_t i = 0; i < e.inputs; ++i) {
    Shape shape;
    for (std::size_t axis = below(drawn.domain.rank() + 1); axis < drawn.domain.rank(); ++axis)
      shape.push_back(below(3) ? drawn.domain[axis] : 1);
    drawn.inputs.push_back({element_types[below(std::size(element_types))], below(2) ? drawn.domain : shape});
    values.push_back(e.input(i));
  }
  values.push_back(e.constant(static_cast<int>(below(9)) - 4));
  const auto operations = operations_on(e.compute);
  for (auto turns = 1 + below(20); turns-- > 0;) {
    const auto op = operations[below(operations.size())];
    const auto operand = [&](int place) { return operands_of(op) > place ? values[below(values.size())] : std::uint16_t{0}; };
    const auto a = operand(0), b = operand(1), c = operand(2);
    values.push_back(e.apply(op, a, b, c));
  }
  for (auto outputs = 1 + below(3); outputs-- > 0;) {
    e.outputs.push_back(values[values.size() - 1 - below(std::min<std::size_t>(values.size(), 4))]);
    drawn.stored.push_back(element_types[below(std::size(element_types))]);
  }
  return drawn;
}

}  // namespace replicator::test
