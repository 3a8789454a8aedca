// SPDX-License-Identifier: Apache-2.0
// The operations that take a part of a tensor (Slice), make a tensor a part of a larger one (Pad), and join parts (Concat). Each
// is in the gradient of another. Any dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/tensor.hpp>
#include <replicator/ops/movement/axis.hpp>

namespace replicator {

// Takes elements begin, begin + step, ... before end along each axis.
struct Slice {
  static constexpr std::string_view name = "slice";
  AxisValues begin, end, step;

  template <class V>
  void describe(V& v) const {
    v("begin", begin);
    v("end", end);
    v("step", step);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const auto& x = inputs[0];
    detail::require_per_axis("begin", begin, x);
    detail::require_per_axis("end", end, x);
    detail::require_per_axis("step", step, x);
    Shape shape;
    for (std::size_t i = 0; i < x.shape.rank(); ++i) {
      if (begin[i] < 0 || end[i] < begin[i] || end[i] > x.shape[i] || step[i] < 1)
        throw BuildError{"asked for elements " + std::to_string(begin[i]) + " to " + std::to_string(end[i]) +
                         " in steps of " + std::to_string(step[i]) + " of axis " + std::to_string(i) + " of " +
                         x.text() + ": begin is at least 0, end at least begin and at most " + std::to_string(x.shape[i]) + ", the step at least 1"};
      shape.push_back(end[i] == begin[i] ? 0 : (end[i] - begin[i] - 1) / step[i] + 1);
    }
    return {{x.dtype, shape}};
  }
  template <class = void>
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

// Puts `low` elements of `value` before x along each axis, `high` behind it, and `inner` between any two of its elements.
struct Pad {
  static constexpr std::string_view name = "pad";
  AxisValues low, high, inner;
  Number value = 0;

  template <class V>
  void describe(V& v) const {
    v("low", low);
    v("high", high);
    v("inner", inner);
    v("value", value);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    const auto& x = inputs[0];
    detail::require_per_axis("low", low, x);
    detail::require_per_axis("high", high, x);
    detail::require_per_axis("inner", inner, x);
    Shape shape;
    for (std::size_t i = 0; i < x.shape.rank(); ++i) {
      if (low[i] < 0 || high[i] < 0 || inner[i] < 0)
        throw BuildError{"asked to pad axis " + std::to_string(i) + " by " + std::to_string(low[i]) + " and " +
                         std::to_string(high[i]) + ": padding starts at 0, slice takes elements away"};
      const auto between = x.shape[i] > 0 ? Shape::product(x.shape[i] - 1, inner[i]) : 0;
      shape.push_back(Shape::sum(Shape::sum(low[i], high[i]), Shape::sum(x.shape[i], between)));
    }
    return {{x.dtype, shape}};
  }
  template <class = void>
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
  // The sum of several pads, as the gradient of a tensor that was cut into slices. Parts that lie side by side along one axis
  // are joined, so that n of them cost one tensor and not n.
  template <class = void>
  static AnyTensor sum(Graph& graph, std::span<const AnyTensor> pads, Location where);
};

template <class>
std::vector<AnyTensor> Pad::gradient(const GradientContext& at) const {
  Slice slice{low, {}, inner};
  for (std::size_t i = 0; i < low.size(); ++i) {
    slice.end.push_back(at.upstream[0].shape()[i] - high[i]);
    ++slice.step[i];
  }
  return {compute(at.graph, std::move(slice), {at.upstream[0]}, at.where)};
}

template <class>
std::vector<AnyTensor> Slice::gradient(const GradientContext& at) const {
  const Shape& x = at.inputs[0].shape();
  const Shape& y = at.upstream[0].shape();
  if (y.elements() == 0) return {fill(at.graph, at.inputs[0].type(), 0, at.where)};
  Pad pad{begin, {}, step, 0};
  for (std::size_t i = 0; i < begin.size(); ++i) {
    pad.high.push_back(x[i] - begin[i] - ((y[i] - 1) * step[i] + 1));
    --pad.inner[i];
  }
  return {compute(at.graph, std::move(pad), {at.upstream[0]}, at.where)};
}

// Joins the inputs along an axis, one after the other. All other extents are equal.
struct Concat {
  static constexpr std::string_view name = "concat";
  std::int64_t axis = 0;

  template <class V>
  void describe(V& v) const {
    v("axis", axis);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    if (inputs.empty()) throw BuildError{"found nothing to put together: give at least one tensor"};
    TensorType result = inputs[0];
    const auto along = static_cast<std::size_t>(detail::require_axis(axis, result.shape.rank()));
    for (const auto& input : inputs.subspan(1)) {
      Shape expected = inputs[0].shape;
      if (input.shape.rank() == expected.rank()) expected[along] = input.shape[along];
      if (input.dtype != result.dtype || !(input.shape == expected))
        throw BuildError{"found " + inputs[0].text() + " and " + input.text() + ": all but the extent of axis " +
                         std::to_string(axis) + " must be equal"};
      result.shape[along] = Shape::sum(result.shape[along], input.shape[along]);
    }
    return {result};
  }
  template <class = void>
  std::vector<AnyTensor> gradient(const GradientContext& at) const;
};

template <class>
std::vector<AnyTensor> Concat::gradient(const GradientContext& at) const {
  const Shape whole = at.upstream[0].shape();
  const auto along = static_cast<std::size_t>(axis);
  std::int64_t first = 0;
  std::vector<AnyTensor> result;
  for (const auto& input : at.inputs) {
    Slice slice{AxisValues(whole.rank(), 0), AxisValues(whole.begin(), whole.end()), AxisValues(whole.rank(), 1)};
    slice.begin[along] = first;
    slice.end[along] = first += input.shape()[along];
    result.push_back(compute(at.graph, std::move(slice), {at.upstream[0]}, at.where));
  }
  return result;
}

namespace detail {

// A tensor that lies from `begin` to before `end` along one axis of a larger one.
struct PartAlongAxis {
  AnyTensor part;
  std::int64_t begin = 0, end = 0;
};

// The part that a node made by Pad is, if zeros surround it along no other axis than `axis` and nothing lies inside.
template <class = void>
std::optional<PartAlongAxis> part_along(std::int64_t axis, AnyTensor pad) {
  const Node& node = pad.graph().node(pad.value());
  const Pad& op = *node.get<Compute>()->operation.get<Pad>();
  if (op.low.empty() || !(op.value == Number{0})) return {};
  for (std::size_t i = 0; i < op.low.size(); ++i)
    if (op.inner[i] != 0 || (static_cast<std::int64_t>(i) != axis && (op.low[i] != 0 || op.high[i] != 0))) return {};
  const auto at = static_cast<std::size_t>(axis);
  return PartAlongAxis{AnyTensor{pad.graph(), node.inputs[0]}, op.low[at], pad.shape()[at] - op.high[at]};
}

// The first axis along which a node made by Pad has zeros.
inline std::int64_t padded_axis(AnyTensor pad) {
  const Pad& op = *pad.graph().node(pad.value()).get<Compute>()->operation.get<Pad>();
  std::size_t axis = 0;
  while (axis + 1 < op.low.size() && op.low[axis] == 0 && op.high[axis] == 0) ++axis;
  return static_cast<std::int64_t>(axis);
}

// Joins parts that do not overlap, by where they begin, with zeros between them. The result is of type `whole`.
template <class = void>
AnyTensor join_parts(Graph& graph, const std::map<std::int64_t, PartAlongAxis>& parts, std::int64_t axis, const TensorType& whole, Location where) {
  const auto along = static_cast<std::size_t>(axis);
  std::vector<AnyTensor> all;
  std::int64_t filled = 0;
  const auto fill_up_to = [&](std::int64_t begin) {
    if (filled == begin) return;
    TensorType gap = whole;
    gap.shape[along] = begin - filled;
    all.push_back(fill(graph, gap, 0, where));
  };
  for (const auto& [begin, part] : parts) {
    fill_up_to(begin);
    all.push_back(part.part);
    filled = part.end;
  }
  fill_up_to(whole.shape[along]);
  return graph.tensor(add_compute(graph, Concat{axis}, all, where));
}

}  // namespace detail

template <class>
AnyTensor Pad::sum(Graph& graph, std::span<const AnyTensor> pads, Location where) {
  struct Layer {  // parts that do not overlap
    AnyTensor only;
    std::map<std::int64_t, detail::PartAlongAxis> parts;
  };
  std::vector<Layer> layers;
  const std::int64_t axis = detail::padded_axis(pads[0]);
  const auto takes = [](const Layer& layer, const detail::PartAlongAxis& part) {
    if (layer.parts.empty()) return false;
    const auto next = layer.parts.lower_bound(part.begin);
    return (next == layer.parts.end() || part.end <= next->first) && (next == layer.parts.begin() || std::prev(next)->second.end <= part.begin);
  };
  for (const AnyTensor& pad : pads) {
    const auto part = detail::part_along(axis, pad);
    std::size_t l = 0;
    while (l < layers.size() && !(part && takes(layers[l], *part))) ++l;
    if (l == layers.size()) layers.push_back({pad, {}});
    if (part) layers[l].parts.emplace(part->begin, *part);
  }
  AnyTensor sum;
  for (const Layer& layer : layers) {
    const AnyTensor next = layer.parts.size() > 1 ? detail::join_parts(graph, layer.parts, axis, pads[0].type(), where) : layer.only;
    sum = sum ? detail::apply(detail::ScalarOp::add, {sum, next}, where) : next;
  }
  return sum;
}

}  // namespace replicator
