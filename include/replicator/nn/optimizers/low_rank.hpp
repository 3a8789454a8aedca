// SPDX-License-Identifier: Apache-2.0
// PowerSGD: low-rank gradient compression with error feedback. A gradient moves as two thin matrices.
// Source: Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization",
// 2019.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/update.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/slice.hpp>

namespace replicator::nn {

struct LowRankOptions {
  std::int64_t rank = 4;    // columns of the two matrices; at most the gradient's rows or columns
  double least_saving = 2;  // compress only if that divides the moved elements by more than this; 0: always compress
};

// Defines how gradients move. Those of vectors and scalars move whole. Any other gradient is a matrix [n, m]: its first
// axis by all others. Below, r is the rank, G_i the gradient of replica i, E_i its error (what it kept back), and Q is
// [m, r].
//   M_i = G_i + E_i;  P = orthonormal columns of the mean of M_i Q;  the mean gradient is P Q'^T, Q' the mean of Q_i = M_i^T P
//   E_i = M_i - P Q_i^T;  Q = Q', its columns of unit length
// So (n + m) r elements move instead of n m. Nothing is lost over the steps: summed over them, the mean gradients given
// to the optimizer plus the mean of the E_i equal the mean of the G_i.
//
// Variables, float32 for bfloat16 gradients:
// - "<name>/error": replica-local, initially 0. It takes the memory of one gradient for each replica.
// - "<name>/directions" [m, r]: mirrored, initially normal.
//
// The products are those of any step, and the means follow the tree over the replicas. So the bits are the same on
// every placement.
class LowRank {
 public:
  // Throws BuildError for a rank below 1, and unless least_saving is finite and not negative.
  explicit LowRank(LowRankOptions options) : options_{options} {
    if (options_.rank < 1) detail::refuse_option("low_rank", "rank", static_cast<double>(options_.rank), "be at least 1");
    detail::require_not_negative("low_rank", "least_saving", options_.least_saving);
  }

  // The rank for a gradient of this shape; 0 if it moves whole.
  std::int64_t rank_of(const Shape& shape) const {
    if (shape.rank() < 2 || shape.elements() == 0) return 0;
    const auto rows = shape[0], columns = shape.elements() / rows;
    const auto rank = std::min({options_.rank, rows, columns});
    const auto moved = static_cast<double>((rows + columns) * rank);
    return options_.least_saving == 0 || static_cast<double>(rows * columns) > options_.least_saving * moved ? rank : 0;
  }

 private:
  LowRankOptions options_;
};

// nn::wrap_optimizer(nn::sgd({.learning_rate = 0.1}), nn::low_rank({.rank = 4})).minimize(replica, loss);
inline LowRank low_rank(LowRankOptions options = {}, std::source_location where = std::source_location::current()) {
  return replicator::detail::at_line("optimizer", where, [&] { return LowRank{options}; });
}

namespace detail {

// Sums of squares of the columns in double: [n, r] -> [1, r].
template <class = void>
AnyTensor squares_of_columns(AnyTensor x, Location where) {
  replicator::detail::Expression e;
  e.compute = DType::float64;
  e.inputs = 1;
  e.outputs = {e.apply(replicator::detail::ScalarOp::multiply, e.input(0), e.input(0))};
  return reshape(reduce_node(x.graph(), ReduceKind::sum, std::move(e), {&x, 1}, x.shape(), {0}, DType::float64, where), Shape{1, x.shape()[1]}, where);
}

// Columns first to last - 1 of a matrix.
template <class = void>
AnyTensor columns_of(AnyTensor x, std::int64_t first, std::int64_t last, Location where) {
  if (first == 0 && last == x.shape()[1]) return x;
  return compute(x.graph(), Slice{{0, first}, {x.shape()[0], last}, {1, 1}}, {x}, where);
}

// Orthonormalises the columns of [n, r] by Gram-Schmidt in double. A column becomes zero if less than a millionth of it
// is left after the projections. In float32 it then depends on the columns before, and the rounding that is left of it
// would not be orthogonal to them.
template <class = void>
AnyTensor orthonormal_columns(AnyTensor x, Location where) {
  constexpr double smallest = 1e-6;
  Graph& graph = x.graph();
  const auto rank = x.shape()[1];
  AnyTensor rest = replicator::detail::map_at(
      graph, DType::float64, where, [](Symbol v) { return v; }, x);  // the columns from k on
  AnyTensor whole = squares_of_columns(rest, where);
  std::vector<AnyTensor> columns;
  for (std::int64_t k = 0; k < rank; ++k) {
    const AnyTensor column = columns_of(rest, 0, 1, where);
    const auto unit = [&](Symbol v, Symbol left, Symbol all) { return select(left > smallest * smallest * all, v / sqrt(left), 0); };
    columns.push_back(replicator::detail::map_at(graph, DType::float64, where, unit, column, squares_of_columns(column, where),
                                                 columns_of(whole, 0, 1, where)));
    if (k + 1 == rank) break;
    rest = columns_of(rest, 1, rank - k, where);
    whole = columns_of(whole, 1, rank - k, where);
    replicator::detail::Expression product;
    product.compute = DType::float64;
    product.inputs = 2;
    product.outputs = {product.apply(replicator::detail::ScalarOp::multiply, product.input(0), product.input(1))};
    const AnyTensor operands[] = {rest, columns.back()};
    const AnyTensor along = reshape(reduce_node(graph, ReduceKind::sum, std::move(product), operands, rest.shape(), {0}, DType::float64, where),
                                    Shape{1, rank - k - 1}, where);
    rest = replicator::detail::map_at(
        graph, DType::float64, where, [](Symbol v, Symbol u, Symbol a) { return v - u * a; }, rest, columns.back(), along);
  }
  const AnyTensor all = rank == 1 ? columns[0] : graph.tensor(add_compute(graph, Concat{1}, columns, where));
  return replicator::detail::map_at(
      graph, x.dtype(), where, [](Symbol v) { return v; }, all);
}

// The state of one gradient while it moves.
struct Factors {
  std::size_t index = 0;  // which gradient
  std::uint32_t error = 0, directions = 0;
  AnyTensor matrix;             // M_i [n, m]
  AnyTensor left;               // the mean of M_i Q, then P [n, r]
  AnyTensor right, mean_right;  // Q_i, Q' [m, r]
};

template <class = void>
AnyTensor multiplied(AnyTensor a, bool transpose_a, AnyTensor b, bool transpose_b, Location where) {
  return compute(a.graph(), Matmul{transpose_a, transpose_b}, {a, b}, where);
}
template <class = void>
AnyTensor mean_of(AnyTensor x, const std::string& label, Location where) {
  return mean_by_wire(replicator::detail::CollectiveKind::all_reduce, x, Wire::whole, label, where);
}

template <class = void>
Factors begin_factors(std::size_t index, const Trained& one, std::int64_t rank, Location where) {
  Graph& graph = one.gradient.graph();
  const VariableDeclaration owner = graph.variables()[one.variable];
  const DType type = replicator::detail::compute_type(one.gradient.dtype());
  const Shape shape = one.gradient.shape();
  const std::int64_t rows = shape[0], columns = shape.elements() / rows;
  Factors f;
  f.index = index;
  f.error = declare_slot(graph, one.variable, "error", {type, shape}, where, true);
  f.directions = graph.declare({owner.name + "/directions", {type, {columns, rank}}, VariableKind::mirrored, false, Initializer::normal(0, 1), where, owner.device});
  const auto add = [](Symbol g, Symbol e) { return g + e; };
  f.matrix = reshape(replicator::detail::map_at(graph, type, where, add, one.gradient, graph.read(f.error, where)), Shape{rows, columns}, where);
  f.left = mean_of(multiplied(f.matrix, false, graph.read(f.directions, where), false, where), owner.name + "/gradient/left", where);
  return f;
}

template <class = void>
void add_right(Factors& f, const std::string& name, Location where) {
  f.left = orthonormal_columns(f.left, where);
  f.right = multiplied(f.matrix, true, f.left, false, where);
  f.mean_right = mean_of(f.right, name + "/gradient/right", where);
}

// Assigns the error and the next directions. Directions without any gradient along them stay as they are. Returns P
// Q'^T.
template <class = void>
AnyTensor finish_factors(const Factors& f, const TensorType& gradient, Location where) {
  Graph& graph = f.matrix.graph();
  const DType type = f.matrix.dtype();
  const AnyTensor sent = multiplied(f.left, false, f.right, true, where);
  const AnyTensor kept = replicator::detail::map_at(
      graph, type, where, [](Symbol m, Symbol s) { return m - s; }, f.matrix, sent);
  graph.assign(f.error, reshape(kept, gradient.shape, where).value(), where);
  const AnyTensor operands[] = {f.mean_right, squares_of_columns(f.mean_right, where), graph.read(f.directions, where)};
  const auto unit = record_update(DType::float64, 3, [](const std::vector<Symbol>& x) -> std::vector<Symbol> {
    return {select(x[1] > 0, x[0] / sqrt(x[1]), x[2])};
  });
  graph.assign(f.directions, {add_compute(graph, Map{unit, f.right.shape(), {type}}, operands, where), 0}, where);
  const AnyTensor mean = reshape(multiplied(f.left, false, f.mean_right, true, where), gradient.shape, where);
  return type == gradient.dtype ? mean : replicator::detail::map_at(
                                             graph, gradient.dtype, where, [](Symbol v) { return v; }, mean);
}

// Asks for all left factors before the first right one, so that they move together.
template <class = void>
std::vector<AnyTensor> low_rank_means(const std::vector<Trained>& all, const LowRank& wire, Location where) {
  std::vector<AnyTensor> means(all.size());
  std::vector<Factors> factors;
  const auto name = [&](std::size_t i) { return all[i].gradient.graph().variables()[all[i].variable].name; };
  for (const auto i : order_of_making(all)) {
    const auto rank = wire.rank_of(all[i].gradient.shape());
    if (rank == 0) means[i] = mean_of(all[i].gradient, name(i) + "/gradient", where);
    else factors.push_back(begin_factors(i, all[i], rank, where));
  }
  for (auto& f : factors) add_right(f, name(f.index), where);
  for (const auto& f : factors) means[f.index] = finish_factors(f, all[f.index].gradient.type(), where);
  return means;
}

}  // namespace detail

// The mean over the replicas of each gradient, as exact as the rank allows. The all-reduces have the labels
// "<variable>/gradient/left" and "<variable>/gradient/right", or "<variable>/gradient" for gradients that move whole.
template <FloatingElement T>
std::vector<Tensor<T>> mean_over_replicas(const std::vector<Variable<T>>& variables, const std::vector<Tensor<T>>& gradients, const LowRank& wire,
                                          std::source_location where = std::source_location::current()) {
  std::vector<Tensor<T>> means;
  for (const auto& mean : detail::low_rank_means(trained(variables, gradients, where), wire, where)) means.emplace_back(mean);
  return means;
}

}  // namespace replicator::nn
