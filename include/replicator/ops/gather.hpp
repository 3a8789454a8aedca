// SPDX-License-Identifier: Apache-2.0
// gather takes slices of a tensor at indices along an axis. scatter_add is its transpose: it adds up slices at indices.
//
//   gather:       x [A.., n, B..], indices [I..]        -> y [A.., I.., B..],  y[a, i, b] = x[a, indices[i], b]
//   scatter_add:  x [A.., I.., B..], indices [I..], n   -> y [A.., n, B..],    y[a, j, b] = sum of x[a, i, b] where indices[i] = j
//
// Both are linear in x and each other's transpose, so gradients of any order need no other operation. Indices are int32 or int64
// and count from 0. They are checked when the step runs: an index outside of [0, n) throws DataError, which names the index, its
// place and the user's line.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/movement/axis.hpp>
#include <replicator/ops/movement/transpose.hpp>

namespace replicator {

// The types that indices may have.
template <class T>
concept IndexElement = std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

namespace detail {
inline void require_indices(const TensorType& indices) {
  if (indices.dtype != DType::int32 && indices.dtype != DType::int64)
    throw BuildError{"found indices of " + indices.text() + ": they must be int32 or int64"};
}
// What the program gave, where it did not give gather's own indices: see take_along_axis. There are as many indices. One that does
// not exist becomes itself if it is negative, else the number of elements of `whole` + (itself - the extent).
struct IndexOrigin {
  TensorType indices, whole;
  std::int64_t axis = 0;

  std::int64_t value(std::int64_t index) const { return index < 0 ? index : index - whole.shape.elements() + whole.shape[axis]; }
};

// Throws DataError for the index with number i, in row-major order, into an axis of `whole`.
[[noreturn]] inline void refuse_index(const TensorType& indices, std::int64_t i, std::int64_t value, const TensorType& whole, std::int64_t axis,
                                      const std::optional<IndexOrigin>& origin) {
  if (origin) refuse_index(origin->indices, i, origin->value(value), origin->whole, origin->axis, {});
  Shape place = indices.shape;
  std::int64_t rest = i;
  for (std::size_t a = place.rank(); a-- > 0;) {
    place[a] = rest % indices.shape[a];
    rest /= indices.shape[a];
  }
  throw DataError{"the index " + std::to_string(value) + " at " + place.text() + " of the indices " + indices.text() +
                  " lies outside of axis " + std::to_string(axis) + " of " + whole.text() +
                  ": indices count from 0 and must be below " + std::to_string(whole.shape[static_cast<std::size_t>(axis)])};
}
// The shape with `taken` axes from `axis` on replaced by others.
inline Shape replace_axes(const Shape& x, std::size_t axis, std::size_t taken, std::span<const std::int64_t> instead) {
  Shape result{std::span{x.begin(), axis}};
  for (const auto extent : instead) result.push_back(extent);
  for (std::size_t i = axis + taken; i < x.rank(); ++i) result.push_back(x[i]);
  return result;
}
}  // namespace detail

// Inputs x, indices. The axis counts from the front.
struct Gather {
  static constexpr std::string_view name = "gather";
  std::int64_t axis = 0;
  std::optional<detail::IndexOrigin> origin = {};
  std::string asked_as = {};  // the call of another operation or layer, such as take_along_axis; empty: gather

  std::string title() const { return asked_as.empty() ? std::string{name} : asked_as; }
  template <class V>
  void describe(V& v) const {
    v("axis", axis);
    if (!asked_as.empty()) v("of", asked_as);
    if (!origin) return;
    v("of_shape", origin->whole.shape);
    v("of_axis", origin->axis);
    v("of_indices", origin->indices.shape);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const Shape& x = inputs[0].shape;
    const Shape& indices = inputs[1].shape;
    detail::require_indices(inputs[1]);
    const auto at = static_cast<std::size_t>(detail::require_axis(axis, x.rank()));
    if (x.rank() - 1 + indices.rank() > Shape::max_rank)
      throw BuildError{"found " + inputs[0].text() + " and indices " + inputs[1].text() +
                       ": the result would have more than 8 dimensions"};
    return {{inputs[0].dtype, detail::replace_axes(x, at, 1, {indices.begin(), indices.rank()})}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// Inputs x, indices. `extent` is the result's extent along the axis. In x the axes of the indices begin at this axis. Each
// element adds its terms to 0 in the row-major order of the indices.
struct ScatterAdd {
  static constexpr std::string_view name = "scatter_add";
  std::int64_t axis = 0;
  std::int64_t extent = 0;

  template <class V>
  void describe(V& v) const {
    v("axis", axis);
    v("extent", extent);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const Shape& x = inputs[0].shape;
    const Shape& indices = inputs[1].shape;
    detail::require_indices(inputs[1]);
    if (inputs[0].dtype == DType::boolean || inputs[0].dtype == DType::uint8)
      throw BuildError{"found " + inputs[0].text() + ", whose sums do not fit: cast it to int32 or a floating type"};
    const auto rank = static_cast<std::int64_t>(x.rank()), taken = static_cast<std::int64_t>(indices.rank());
    bool fits = axis >= 0 && axis + taken <= rank;
    for (std::int64_t i = 0; fits && i < taken; ++i)
      fits = x[static_cast<std::size_t>(axis + i)] == indices[static_cast<std::size_t>(i)];
    if (!fits)
      throw BuildError{"found " + inputs[0].text() + " and indices " + inputs[1].text() + ": from axis " +
                       std::to_string(axis) + " on x must have the extents of the indices"};
    if (rank - taken + 1 > static_cast<std::int64_t>(Shape::max_rank) || extent < 0)
      throw BuildError{"asked for extent " + std::to_string(extent) + " at axis " + std::to_string(axis) + " of " +
                       inputs[0].text() + ": extents start at 0, and 8 dimensions are the most"};
    return {{inputs[0].dtype, detail::replace_axes(x, static_cast<std::size_t>(axis), indices.rank(), {&extent, 1})}};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    return {compute(at.graph, Gather{axis}, {at.upstream[0], at.inputs[1]}, at.where), AnyTensor{}};
  }
};

inline std::vector<AnyTensor> Gather::gradient(const GradientContext& at) const {
  const ScatterAdd transpose{axis, at.inputs[0].shape()[static_cast<std::size_t>(axis)]};
  return {compute(at.graph, transpose, {at.upstream[0], at.inputs[1]}, at.where), AnyTensor{}};
}

// x [A.., n, B..], indices [I..] -> [A.., I.., B..]: the slices of x at the indices along an axis (-1: the last). Any dtype.
// Throws BuildError for an axis that does not exist. An index outside of [0, n) throws DataError in the step.
template <Element T, Element I>
Tensor<T> gather(Tensor<T> x, Tensor<I> indices, std::int64_t axis = 0,
                 std::source_location where = std::source_location::current()) {
  static_assert(IndexElement<I>, "replicator: gather takes indices of int32 or int64: rp::cast<std::int32_t>(indices)");
  const auto from_front =
      detail::at_line("gather", where, [&] { return detail::require_axis(axis, x.shape().rank()); });
  return Tensor<T>{compute(x.graph(), Gather{from_front}, {x, indices}, where)};
}

// x [A.., I.., B..], indices [I..] -> [A.., extent, B..]: zeros, plus the slices of x at the indices along an axis of the result
// (-1: the last), added in the order of the indices. Takes floating types, int32 and int64. Throws BuildError for uint8 and bool,
// and as gather does.
template <Element T, Element I>
Tensor<T> scatter_add(Tensor<T> x, Tensor<I> indices, std::int64_t extent, std::int64_t axis = 0,
                      std::source_location where = std::source_location::current()) {
  static_assert(IndexElement<I>, "replicator: scatter_add takes indices of int32 or int64: rp::cast<std::int32_t>(indices)");
  const auto from_front = detail::at_line("scatter_add", where, [&] {
    const std::size_t rank = x.shape().rank() + 1, taken = indices.shape().rank();
    return detail::require_axis(axis, rank > taken ? rank - taken : 0);
  });
  return Tensor<T>{compute(x.graph(), ScatterAdd{from_front, extent}, {x, indices}, where)};
}

}  // namespace replicator
