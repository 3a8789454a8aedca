// SPDX-License-Identifier: Apache-2.0
// Products of matrices to test with, and the definition in double.
#pragma once

#include <rapidcheck.h>

#include <string>
#include <vector>

#include <replicator/ops/matmul.hpp>

#include "evaluate.hpp"

namespace replicator::test {

struct MatmulCase {
  Matmul op;
  Shape a, b;

  std::string text() const {
    AttributePrinter printer;
    op.describe(printer);
    return a.text() + " " + b.text() + " " + printer.text();
  }
};

inline MatmulCase draw_matmul(std::int64_t largest) {
  const auto extent = [&] { return *rc::gen::inRange<std::int64_t>(1, largest + 1); };
  const auto yes = [] { return *rc::gen::arbitrary<bool>(); };
  const std::int64_t rows = extent(), columns = extent(), depth = extent(),
                     batch = *rc::gen::inRange<std::int64_t>(0, 4);
  MatmulCase c{{yes(), yes()}, {}, {}};
  if (batch > 0) c.a.push_back(batch), c.b.push_back(batch);
  c.a.push_back(c.op.transpose_a ? depth : rows);
  c.a.push_back(c.op.transpose_a ? rows : depth);
  c.b.push_back(c.op.transpose_b ? columns : depth);
  c.b.push_back(c.op.transpose_b ? depth : columns);
  return c;
}

// The largest relative difference between the kernel and the definition on random values.
template <Element T>
double matmul_error(const MatmulCase& c, const EvaluateOptions& options = {}) {
  const auto a = random_array<T>(c.a, 1).any(), b = random_array<T>(c.b, 2).any();
  const TensorType types[] = {a.type(), b.type()};
  const auto outputs = c.op.infer_shape(types);
  const auto e = matmul_extents(c.op, c.a, c.b);
  const auto as = doubles(a), bs = doubles(b);
  std::vector<double> y;
  for_each_index(Shape{e.batch, e.rows, e.columns}, [&](const std::vector<std::int64_t>& i) {
    double sum = 0;
    for (std::int64_t k = 0; k < e.depth; ++k)
      sum += as[static_cast<std::size_t>(i[0] * e.rows * e.depth +
                                         (c.op.transpose_a ? k * e.rows + i[1] : i[1] * e.depth + k))] *
             bs[static_cast<std::size_t>(i[0] * e.depth * e.columns +
                                         (c.op.transpose_b ? i[2] * e.depth + k : k * e.columns + i[2]))];
    y.push_back(sum);
  });
  const AnyOperation op = c.op;
  return largest_difference(array_of(run_kernel(op, {held(a), held(b)}, outputs, options)[0]), array_of(outputs[0], y));
}

}  // namespace replicator::test
