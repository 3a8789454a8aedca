// SPDX-License-Identifier: Apache-2.0
// Matrix products for tests, and the definition in double.
#pragma once

#include <rapidcheck.h>

#include <span>
#include <string>
#include <vector>

#include <replicator/ops/matmul.hpp>

#include "evaluate.hpp"

namespace replicator::test {

using namespace replicator::detail;

struct MatmulCase {
  Matmul op;
  Shape a, b;

  std::string text() const {
    AttributePrinter printer;
    op.describe(printer);
    return a.text() + " " + b.text() + " " + printer.text();
  }
};

// Random operands with up to three leading axes. An operand has all of them, the last few, or some with extent 1.
inline MatmulCase draw_matmul(std::int64_t largest) {
  const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
  const auto yes = [] { return *rc::gen::arbitrary<bool>(); };
  const std::int64_t rows = in(1, largest), columns = in(1, largest), depth = in(1, largest);
  MatmulCase c{{yes(), yes()}, {}, {}};
  const std::int64_t rank = in(0, 3), missing_in_a = yes() ? in(0, rank) : 0, missing_in_b = yes() ? in(0, rank) : 0;
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    const std::int64_t extent = in(1, 3), who = in(0, 3);
    if (axis >= missing_in_a) c.a.push_back(who == 0 ? 1 : extent);
    if (axis >= missing_in_b) c.b.push_back(who == 1 ? 1 : extent);
  }
  c.a.push_back(c.op.transpose_a ? depth : rows);
  c.a.push_back(c.op.transpose_a ? rows : depth);
  c.b.push_back(c.op.transpose_b ? columns : depth);
  c.b.push_back(c.op.transpose_b ? depth : columns);
  return c;
}

// The index in x of element (row, column) of the matrix at `index` of the result. The leading axes of x broadcast.
inline std::size_t place_in_matrices(const Shape& x, std::span<const std::int64_t> index, std::int64_t row,
                                     std::int64_t column) {
  std::vector<std::int64_t> at;
  for (std::size_t axis = 0; axis + 2 < x.rank(); ++axis)
    at.push_back(x[axis] == 1 ? 0 : index[axis + index.size() + 2 - x.rank()]);
  at.push_back(row);
  at.push_back(column);
  return static_cast<std::size_t>(offset_of({}, x, at));
}

// The largest relative difference between the kernel and the definition on random values.
template <Element T>
double matmul_error(const MatmulCase& c, const EvaluateOptions& options = {}) {
  const auto a = random_array<T>(c.a, 1).any(), b = random_array<T>(c.b, 2).any();
  const TensorType types[] = {a.type(), b.type()};
  const auto outputs = c.op.infer_shape(types);
  const auto as = doubles(a), bs = doubles(b);
  const std::int64_t depth = c.a[c.a.rank() - (c.op.transpose_a ? 2 : 1)];
  std::vector<double> y;
  for_each_index(outputs[0].shape, [&](const std::vector<std::int64_t>& i) {
    const std::span batch{i.data(), i.size() - 2};
    const std::int64_t row = i[i.size() - 2], column = i[i.size() - 1];
    double sum = 0;
    for (std::int64_t k = 0; k < depth; ++k)
      sum += as[place_in_matrices(c.a, batch, c.op.transpose_a ? k : row, c.op.transpose_a ? row : k)] *
             bs[place_in_matrices(c.b, batch, c.op.transpose_b ? column : k, c.op.transpose_b ? k : column)];
    y.push_back(sum);
  });
  const AnyOperation op = c.op;
  return largest_difference(array_of(run_kernel(op, {held(a), held(b)}, outputs, options)[0]), array_of(outputs[0], y));
}

}  // namespace replicator::test
