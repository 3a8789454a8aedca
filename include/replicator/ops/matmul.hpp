// SPDX-License-Identifier: Apache-2.0
// Products of matrices, plain or in batches.
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/tensor.hpp>

namespace replicator {

// y = op(a) op(b), op being the transpose of the last two axes where asked; [M, K] [K, N] or [B, M, K] [B, K, N].
struct Matmul {
  static constexpr std::string_view name = "matmul";
  bool transpose_a = false;
  bool transpose_b = false;

  template <class V>
  void describe(V& v) const {
    v("transpose_a", transpose_a);
    v("transpose_b", transpose_b);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const;
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// The extents of a product: y is batch matrices of rows x columns, each element a sum of `depth` terms.
struct MatmulExtents {
  std::int64_t batch = 1, rows = 0, columns = 0, depth = 0;
};

inline MatmulExtents matmul_extents(const Matmul& op, const Shape& a, const Shape& b) {
  const std::size_t m = a.rank() - 2;
  return {m ? a[0] : 1, a[m + (op.transpose_a ? 1 : 0)], b[m + (op.transpose_b ? 0 : 1)],
          a[m + (op.transpose_a ? 0 : 1)]};
}

inline std::vector<TensorType> Matmul::infer_shape(std::span<const TensorType> inputs) const {
  const auto& a = inputs[0];
  const auto& b = inputs[1];
  const std::size_t rank = a.shape.rank();
  if (b.shape.rank() != rank || (rank != 2 && rank != 3))
    throw BuildError{"found " + a.text() + " and " + b.text() + ": both must be matrices, or both batches of matrices"};
  if (a.dtype != b.dtype || !(is_floating(a.dtype) || a.dtype == DType::int32))
    throw BuildError{"found " + a.text() + " and " + b.text() + ": both must be float32, float64 or int32"};
  if (rank == 3 && a.shape[0] != b.shape[0])
    throw BuildError{"a " + a.shape.text() + " is a batch of " + std::to_string(a.shape[0]) + ", b " + b.shape.text() +
                     " of " + std::to_string(b.shape[0])};
  const auto extents = matmul_extents(*this, a.shape, b.shape);
  if (const std::int64_t depth = b.shape[rank - (transpose_b ? 1 : 2)]; depth != extents.depth)
    throw BuildError{"a " + a.shape.text() + (transpose_a ? " transposed" : "") + " has " +
                     std::to_string(extents.depth) + " columns, but b " + b.shape.text() +
                     (transpose_b ? " transposed" : "") + " has " + std::to_string(depth) + " rows"};
  Shape shape;
  if (rank == 3) shape.push_back(extents.batch);
  shape.push_back(extents.rows);
  shape.push_back(extents.columns);
  return {{a.dtype, shape}};
}

inline std::vector<AnyTensor> Matmul::gradient(const GradientContext& at) const {
  const auto& a = at.inputs[0];
  const auto& b = at.inputs[1];
  const auto& dy = at.upstream[0];
  const bool ta = transpose_a;
  const bool tb = transpose_b;
  const auto product = [&](bool left, bool right, AnyTensor l, AnyTensor r) {
    return compute(at.graph, Matmul{left, right}, {l, r}, at.where);
  };
  std::vector<AnyTensor> result(2);
  // d op(a) = dy op(b)^T and d op(b) = op(a)^T dy; the transpose of the whole where the operand was transposed.
  if (at.wanted[0]) result[0] = ta ? product(tb, true, b, dy) : product(false, !tb, dy, b);
  if (at.wanted[1]) result[1] = tb ? product(true, ta, dy, a) : product(!ta, false, a, dy);
  return result;
}

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// op(a) op(b): [M, K] [K, N] -> [M, N], or with an equal batch extent in front of all three.
// Throws BuildError where the extents do not fit.
template <Element T>
Tensor<T> matmul(Tensor<T> a, Tensor<T> b, MatmulOptions options,
                 std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(a.graph(), Matmul{options.transpose_a, options.transpose_b}, {a, b}, where)};
}
template <Element T>
Tensor<T> matmul(Tensor<T> a, Tensor<T> b, std::source_location where = std::source_location::current()) {
  return matmul(a, b, MatmulOptions{}, where);
}

}  // namespace replicator
