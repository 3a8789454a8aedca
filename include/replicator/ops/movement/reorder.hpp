// SPDX-License-Identifier: Apache-2.0
// Other orders of the elements along an axis: flip, roll, take_along_axis. And parts of matrices: tril, triu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/ops/movement/axis.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/ops/top_k.hpp>

namespace replicator {

namespace detail {

// The integers first, first + step, ... of a constant [n].
inline Tensor<std::int32_t> counted(Graph& graph, std::int64_t n, std::int64_t first, std::int64_t step, Location where) {
  Array<std::int32_t> numbers{Shape{n}};
  for (std::int64_t i = 0; i < n; ++i) numbers[i] = static_cast<std::int32_t>(first + i * step);
  return Tensor<std::int32_t>{constant_node(graph, std::move(numbers).any(), where)};
}

// x where column - row `op` diagonal, else 0.
template <Element T, class Keep>
Tensor<T> triangle(const char* name, Tensor<T> x, Keep keep, std::source_location where) {
  const std::size_t rank = x.shape().rank();
  if (rank < 2) throw BuildError{std::string{name} + " at " + Location{where}.text() + ": x must be [.., rows, columns], found " + x.any().type().text()};
  const std::int64_t rows = x.shape()[rank - 2], columns = x.shape()[rank - 1];
  const Tensor<std::int32_t> row{reshape(counted(x.graph(), rows, 0, 1, where), Shape{rows, 1}, Location{where})};
  const Tensor<std::int32_t> below = counted(x.graph(), columns, 0, 1, where) - row;
  return select(keep(below), x, T{}, where);
}

}  // namespace detail

// The elements in reverse order along an axis (-1: the last).
template <Element T>
Tensor<T> flip(Tensor<T> x, std::int64_t axis, std::source_location where = std::source_location::current()) {
  const auto at = detail::at_line("flip", where, [&] { return detail::require_axis(axis, x.shape().rank()); });
  const std::int64_t n = x.shape()[static_cast<std::size_t>(at)];
  return gather(x, detail::counted(x.graph(), n, n - 1, -1, where), at, where);
}

// The elements moved by `shift` places towards the end of an axis (-1: the last). What falls off the end comes back at the
// beginning. A negative shift moves them towards the beginning.
template <Element T>
Tensor<T> roll(Tensor<T> x, std::int64_t shift, std::int64_t axis, std::source_location where = std::source_location::current()) {
  const auto at = detail::at_line("roll", where, [&] { return detail::require_axis(axis, x.shape().rank()); });
  const std::int64_t n = x.shape()[static_cast<std::size_t>(at)];
  const std::int64_t forward = n == 0 ? 0 : (shift % n + n) % n;
  if (forward == 0) return x;
  return concat({slice_axis(x, at, n - forward, {}, where), slice_axis(x, at, 0, n - forward, where)}, at, where);
}

// x [.., rows, columns] with zeros above a diagonal: element (i, j) stays where j - i <= diagonal.
template <Element T>
Tensor<T> tril(Tensor<T> x, std::int32_t diagonal = 0, std::source_location where = std::source_location::current()) {
  return detail::triangle(
      "tril", x, [&](auto offset) { return offset <= diagonal; }, where);
}
// x [.., rows, columns] with zeros below a diagonal: element (i, j) stays where j - i >= diagonal.
template <Element T>
Tensor<T> triu(Tensor<T> x, std::int32_t diagonal = 0, std::source_location where = std::source_location::current()) {
  return detail::triangle(
      "triu", x, [&](auto offset) { return offset >= diagonal; }, where);
}

// x [A.., n, B..], indices [A.., k, B..] -> [A.., k, B..]: y[a, i, b] = x[a, indices[a, i, b], b] along an axis (-1: the last).
// PyTorch's gather, and NumPy's take_along_axis. Throws BuildError where another extent differs. An index outside of [0, n)
// throws DataError in the step, which names it.
template <Element T, IndexElement I>
Tensor<T> take_along_axis(Tensor<T> x, Tensor<I> indices, std::int64_t axis, std::source_location where = std::source_location::current()) {
  const auto at = detail::at_line("take_along_axis", where, [&] {
    const auto from_front = detail::require_axis(axis, x.shape().rank());
    Shape expected = x.shape();
    if (indices.shape().rank() == expected.rank()) expected[static_cast<std::size_t>(from_front)] = indices.shape()[static_cast<std::size_t>(from_front)];
    if (!(indices.shape() == expected))
      throw BuildError{"found " + x.any().type().text() + " and indices " + indices.any().type().text() + ": all extents but that of axis " +
                       std::to_string(from_front) + " must be equal"};
    return static_cast<std::size_t>(from_front);
  });
  // Places among all elements. For one that does not exist gather refuses what stands in its place.
  const Tensor<std::int64_t> places{detail::places_in_memory(indices, x.shape(), at, where)};
  const std::int64_t n = x.shape()[at], elements = x.shape().elements();
  const Tensor<std::int64_t> given{replicator::reshape(cast<std::int64_t>(indices, where).any(), places.shape(), Location{where})};
  const Tensor<std::int64_t> checked{detail::map_at(
      x.graph(), DType::int64, where, [&](Symbol i, Symbol place) { return select(i < 0, i, select(i < n, place, i + (elements - n))); }, given, places)};
  const Tensor<T> flat{replicator::reshape(x.any(), Shape{elements}, Location{where})};
  const Gather taken{0, detail::IndexOrigin{indices.any().type(), x.any().type(), static_cast<std::int64_t>(at)}, "take_along_axis"};
  return Tensor<T>{replicator::reshape(compute(x.graph(), taken, {flat, checked}, where), indices.shape(), Location{where})};
}

}  // namespace replicator
