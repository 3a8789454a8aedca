// SPDX-License-Identifier: Apache-2.0
// Products of matrices, one by one or in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/mixed_precision.hpp>

namespace replicator {

// y = op(a) op(b): [.., M, K] [.., K, N] -> [.., M, N]. op transposes the last two axes where that is asked for. The leading axes
// broadcast as in NumPy.
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
  double work(std::span<const TensorType> inputs) const;
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// The sizes that kernels get: y is `batch` matrices of rows x columns, and each element is a sum of `depth` terms.
struct MatmulExtents {
  std::int64_t batch = 1, rows = 0, columns = 0, depth = 0;
};

// The matrices of a and b that make matrix n of y. n counts through `extents`, row-major. An operand's matrix lies at the sum of
// index * stride, in matrices. A stride of 0 repeats it.
struct MatmulBatch {
  std::size_t rank = 0;
  std::int64_t extents[Shape::max_rank]{}, a[Shape::max_rank]{}, b[Shape::max_rank]{};

  struct Pair {
    std::int64_t a = 0, b = 0;
  };
  Pair of(std::int64_t n) const {
    Pair result;
    for (std::size_t axis = rank; axis-- > 0; n /= extents[axis]) {
      result.a += n % extents[axis] * a[axis];
      result.b += n % extents[axis] * b[axis];
    }
    return result;
  }
};

namespace detail {

inline Shape batch_axes(const Shape& x) { return Shape{std::span{x.begin(), x.rank() - 2}}; }
inline bool is_one_matrix(const Shape& x) { return batch_axes(x).elements() == 1; }

// The rows of all matrices as one matrix.
inline AnyTensor rows_of(AnyTensor x, Location where) {
  const Shape& shape = x.shape();
  const std::int64_t columns = shape[shape.rank() - 1], rows = shape[shape.rank() - 2];
  return reshape(x, Shape{batch_axes(shape).elements() * rows, columns}, where);
}

// Sums x over the axes along which `shape` was repeated to make it.
inline AnyTensor sum_repeated(AnyTensor x, const Shape& shape, Location where) {
  if (const auto axes = repeated_axes(shape, x.shape()); !axes.empty()) {
    detail::Expression e;
    e.compute = compute_type(x.dtype());
    e.inputs = 1;
    e.outputs = {e.input(0)};
    x = reduce_node(x.graph(), ReduceKind::sum, std::move(e), {&x, 1}, x.shape(), axes, x.dtype(), where);
  }
  return reshape(x, shape, where);
}

}  // namespace detail

// Where b is one matrix and a is not transposed, the rows of all matrices of a count as rows of one matrix.
inline MatmulExtents matmul_extents(const Matmul& op, const Shape& a, const Shape& b) {
  const std::size_t m = a.rank() - 2, n = b.rank() - 2;
  MatmulExtents e{broadcast(detail::batch_axes(a), detail::batch_axes(b))->elements(), a[m + (op.transpose_a ? 1 : 0)],
                  b[n + (op.transpose_b ? 0 : 1)], a[m + (op.transpose_a ? 0 : 1)]};
  if (!op.transpose_a && detail::is_one_matrix(b)) {
    e.rows *= e.batch;
    e.batch = 1;
  }
  return e;
}

// For the extents that matmul_extents gives. Axes that are one axis in both operands are merged.
inline MatmulBatch matmul_batch(const Matmul& op, const Shape& a, const Shape& b) {
  MatmulBatch result;
  if (matmul_extents(op, a, b).batch == 1) return result;
  const Shape left = detail::batch_axes(a), right = detail::batch_axes(b), y = *broadcast(left, right);
  const auto left_strides = left.strides(), right_strides = right.strides();
  const auto stride = [&](const Shape& operand, const auto& strides, std::size_t axis) -> std::int64_t {
    const std::size_t missing = y.rank() - operand.rank();
    return axis < missing || operand[axis - missing] == 1 ? 0 : strides[axis - missing];
  };
  for (std::size_t axis = 0; axis < y.rank(); ++axis) {
    if (y[axis] == 1) continue;
    const std::int64_t by_a = stride(left, left_strides, axis), by_b = stride(right, right_strides, axis);
    const std::size_t last = result.rank - 1;
    if (result.rank > 0 && result.a[last] == by_a * y[axis] && result.b[last] == by_b * y[axis])
      result.extents[last] *= y[axis];
    else
      result.extents[result.rank++] = y[axis];
    result.a[result.rank - 1] = by_a;
    result.b[result.rank - 1] = by_b;
  }
  return result;
}

inline double Matmul::work(std::span<const TensorType> inputs) const {
  const auto e = matmul_extents(*this, inputs[0].shape, inputs[1].shape);
  return 2.0 * static_cast<double>(e.batch) * static_cast<double>(e.rows) * static_cast<double>(e.columns) * static_cast<double>(e.depth);
}

inline std::vector<TensorType> Matmul::infer_shape(std::span<const TensorType> inputs) const {
  const auto& a = inputs[0];
  const auto& b = inputs[1];
  if (a.shape.rank() < 2 || b.shape.rank() < 2)
    throw BuildError{"found " + a.text() + " and " + b.text() +
                     ": both must be matrices or batches of them; make a vector a row or a column with rp::reshape"};
  if (a.dtype != b.dtype || !(is_floating(a.dtype) || a.dtype == DType::int32 || a.dtype == DType::int64))
    throw BuildError{"found " + a.text() + " and " + b.text() +
                     ": both must be float32, float64, bfloat16, int32 or int64; cast with rp::cast to one that holds the sums"};
  const auto batch = broadcast(detail::batch_axes(a.shape), detail::batch_axes(b.shape));
  if (!batch)
    throw BuildError{"found " + a.text() + " and " + b.text() +
                     ", whose axes before the last two cannot be broadcast together: make the extents equal or 1"};
  const std::size_t m = a.shape.rank() - 2, n = b.shape.rank() - 2;
  const std::int64_t rows = a.shape[m + (transpose_a ? 1 : 0)], columns = b.shape[n + (transpose_b ? 0 : 1)];
  const std::int64_t depth = a.shape[m + (transpose_a ? 0 : 1)], other = b.shape[n + (transpose_b ? 1 : 0)];
  if (depth != other)
    throw BuildError{"a " + a.shape.text() + (transpose_a ? " transposed" : "") + " has " + std::to_string(depth) +
                     " columns, but b " + b.shape.text() + (transpose_b ? " transposed" : "") + " has " +
                     std::to_string(other) + " rows: they must be equal; {.transpose_a = true} and {.transpose_b = true} turn an operand round"};
  Shape shape = *batch;
  shape.push_back(rows);
  shape.push_back(columns);
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
  // d op(a) = dy op(b)^T and d op(b) = op(a)^T dy. Where the operand was transposed, the product is transposed.
  if (at.wanted[0])
    result[0] = detail::sum_repeated(ta ? product(tb, true, b, dy) : product(false, !tb, dy, b), a.shape(), at.where);
  if (at.wanted[1] && !ta && detail::is_one_matrix(b.shape())) {
    // One product over all rows instead of a sum over the batch.
    const AnyTensor rows = detail::rows_of(a, at.where), slopes = detail::rows_of(dy, at.where);
    result[1] =
        reshape(tb ? product(true, false, slopes, rows) : product(true, false, rows, slopes), b.shape(), at.where);
  } else if (at.wanted[1]) {
    result[1] = detail::sum_repeated(tb ? product(true, ta, dy, a) : product(!ta, false, a, dy), b.shape(), at.where);
  }
  return result;
}

struct MatmulOptions {
  bool transpose_a = false;  // transposes its last two axes
  bool transpose_b = false;
};

// op(a) op(b): [.., M, K] [.., K, N] -> [.., M, N]. The leading axes broadcast as in NumPy. The options transpose the last two
// axes of an operand. Sums of int32 and int64 wrap around. Throws BuildError where the extents do not fit, and for uint8 and bool.
template <Element T>
Tensor<T> matmul(Tensor<T> a, Tensor<T> b, MatmulOptions options,
                 std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::product_node(Matmul{options.transpose_a, options.transpose_b}, a, b, where)};
}
template <Element T>
Tensor<T> matmul(Tensor<T> a, Tensor<T> b, std::source_location where = std::source_location::current()) {
  return matmul(a, b, MatmulOptions{}, where);
}

namespace detail {
// A variable of T, for instance.
template <class V, class T>
concept ReadsAs = !requires { typename V::element_type; }
&&std::convertible_to<const V&, Tensor<T>>;
}  // namespace detail

// Refuses tensors of two element types.
template <Element A, detail::DifferentTypes<A> B>
Tensor<A> matmul(Tensor<A> a, Tensor<B>, MatmulOptions = {}) {
  detail::refuse_types<A, B>();
  return a;
}

// The same for a product with a variable: rp::matmul(x, weight).
template <Element T, detail::ReadsAs<T> V>
Tensor<T> matmul(Tensor<T> a, const V& b, MatmulOptions options = {}, std::source_location where = std::source_location::current()) {
  return matmul(a, Tensor<T>(b), options, where);
}
template <Element T, detail::ReadsAs<T> V>
Tensor<T> matmul(const V& a, Tensor<T> b, MatmulOptions options = {}, std::source_location where = std::source_location::current()) {
  return matmul(Tensor<T>(a), b, options, where);
}

}  // namespace replicator
