// SPDX-License-Identifier: Apache-2.0
// Softmax, cross-entropy and accuracy of logits against classes. All of it is made of elementwise nodes and reductions.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/number_text.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>

namespace replicator {

// The types that class labels may have.
template <class T>
concept LabelElement = std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

namespace detail {

inline void require_classes(std::string_view what, AnyTensor logits, AnyTensor labels, Location where) {
  const Shape& shape = logits.shape();
  if (shape.rank() > 0 && shape[-1] > 0 && labels.shape() == Shape{std::span{shape.begin(), shape.rank() - 1}}) return;
  throw BuildError{detail::call_text(logits.graph().replica(), what, where) + ": the logits must be [.., C] and the labels [..]; found " + logits.type().text() +
                   " and " + labels.type().text() + ": the classes are the last axis of the logits, and there is a label for each of the rest"};
}

// 0, 1, ..., classes - 1 as [classes].
template <FloatingElement T>
AnyTensor class_numbers(Graph& graph, std::int64_t classes, Location where) {
  Array<T> numbers{Shape{classes}};
  for (std::int64_t i = 0; i < classes; ++i) numbers[i] = static_cast<T>(i);
  return constant_node(graph, std::move(numbers).any(), where);
}

// x minus its maximum along the axis, so that exp cannot overflow. The maximum cancels in every use, so no gradient goes through it.
inline AnyTensor below_maximum(AnyTensor x, std::int64_t axis, std::string_view what, Location where) {
  const AnyTensor maximum = reduce(ReduceKind::max, x, Axes{axis}.kept(), what, where);
  const AnyTensor fixed = compute(x.graph(), StopGradient{}, {maximum}, where);
  return apply(detail::ScalarOp::subtract, {x, fixed}, where);
}

}  // namespace detail

// exp(x) / sum(exp(x)) along an axis. This is one node, because its derivative is simpler than those of its parts:
// y (u - sum(y u)).
struct Softmax {
  static constexpr std::string_view name = "softmax";
  std::int64_t axis = 0;

  template <class V>
  void describe(V& v) const {
    v("axis", axis);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const {
    if (!is_floating(inputs[0].dtype)) throw BuildError{"found " + inputs[0].text() + ": cast it to a floating type"};
    if (inputs[0].shape[axis] == 0) throw BuildError{"found " + inputs[0].text() + ", whose axis " + std::to_string(axis) + " has no elements: there is nothing to add up to 1"};
    return {inputs[0]};
  }
  template <class = void>
  std::vector<AnyTensor> expand(const ExpansionContext& at) const {
    const AnyTensor& x = at.inputs[0];
    const AnyTensor e = apply(detail::ScalarOp::exponential, {detail::below_maximum(x, axis, name, at.where)}, at.where);
    const AnyTensor total = detail::reduce(ReduceKind::sum, e, Axes{axis}.kept(), name, at.where);
    const AnyTensor part = detail::map_at(
        at.graph, x.dtype(), at.where, [](Symbol t) { return 1 / t; }, total);  // the total is at least 1
    return {apply(detail::ScalarOp::multiply, {e, part}, at.where)};
  }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    const AnyTensor& y = at.outputs[0];
    const AnyTensor& upstream = at.upstream[0];
    const AnyTensor both = apply(detail::ScalarOp::multiply, {y, upstream}, at.where);
    const AnyTensor mean = detail::reduce(ReduceKind::sum, both, Axes{axis}.kept(), name, at.where);  // weighted by y
    return {detail::map_at(
        at.graph, y.dtype(), at.where, [](Symbol u, Symbol m, Symbol p) { return (u - m) * p; }, upstream, mean, y)};
  }
};

// exp(x) / sum(exp(x)) along an axis (the last by default). Same shape.
template <FloatingElement T>
Tensor<T> softmax(Tensor<T> x, std::int64_t axis = -1, std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(softmax(cast<float>(x, where), axis, where), where);
  return Tensor<T>{compute(x.graph(), Softmax{detail::resolve_axes({axis}, x.shape(), "softmax", where)[0]}, {x}, where)};
}

// x - log(sum(exp(x))) along an axis (the last by default). Same shape.
template <FloatingElement T>
Tensor<T> log_softmax(Tensor<T> x, std::int64_t axis = -1,
                      std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(log_softmax(cast<float>(x, where), axis, where), where);
  const AnyTensor shifted = detail::below_maximum(x, axis, "log_softmax", where);
  const AnyTensor e = apply(detail::ScalarOp::exponential, {shifted}, where);
  const AnyTensor total = detail::reduce(ReduceKind::sum, e, Axes{axis}.kept(), "log_softmax", where);
  return Tensor<T>{detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol s, Symbol t) { return s - log(t); }, shifted, total)};
}

// log(sum(exp(x))) along an axis (the last by default), without overflow. The axis disappears. Minus infinity where all of x is.
template <FloatingElement T>
Tensor<T> log_sum_exp(Tensor<T> x, std::int64_t axis = -1, std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(log_sum_exp(cast<float>(x, where), axis, where), where);
  const AnyTensor maximum = compute(x.graph(), StopGradient{}, {detail::reduce(ReduceKind::max, x, Axes{axis}.kept(), "log_sum_exp", where)}, where);
  const auto finite = [](Symbol m) { return select(abs(m) <= std::numeric_limits<T>::max(), m, 0); };
  const AnyTensor fixed = detail::map_at(x.graph(), dtype_of<T>, where, finite, maximum);
  const auto below = [](Symbol v, Symbol m) { return exp(v - m); };
  const AnyTensor total = detail::reduce(ReduceKind::sum, detail::map_at(x.graph(), dtype_of<T>, where, below, x, fixed), {axis}, "log_sum_exp", where);
  return Tensor<T>{detail::map_at(
      x.graph(), dtype_of<T>, where, [](Symbol t, Symbol m) { return log(t) + m; }, total, reshape(fixed, total.shape(), where))};
}

struct CrossEntropyOptions {
  double label_smoothing = 0;  // this part of the target is spread evenly over all classes (Szegedy et al., 2016)
  // An example with this label has loss 0 and no gradient. The mean over the others is
  // sum(loss) / sum(cast<float>(label != ignored)).
  std::optional<std::int64_t> ignored = {};
};

// The loss of each example: logits [.., C], labels [..] in [0, C) -> [..]. A label outside of [0, C) gives NaN, and so
// do its gradients.
// Throws BuildError where the shapes do not fit, or for a label_smoothing outside of [0, 1].
template <FloatingElement T, Element L>
Tensor<T> softmax_cross_entropy(Tensor<T> logits, Tensor<L> labels, const CrossEntropyOptions& options = {},
                                std::source_location where = std::source_location::current()) {
  static_assert(LabelElement<L>, "replicator: softmax_cross_entropy takes the number of each example's class as std::int32_t or std::int64_t: rp::cast<std::int32_t>(labels), or rp::argmax(labels) where they are one-hot");
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(softmax_cross_entropy(cast<float>(logits, where), labels, options, where), where);
  detail::require_classes("softmax_cross_entropy", logits, labels, where);
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1))
    throw BuildError{"softmax_cross_entropy at " + Location{where}.text() +
                     ": label_smoothing must lie in [0, 1], found " + detail::number_text(smoothing)};
  Graph& graph = logits.graph();
  const auto classes = logits.shape()[-1];
  Shape column = labels.shape();
  column.push_back(1);
  // loss = log sum_c exp(s_c) - sum_c target_c s_c, where s = logits - max: both sums are one pass over the logits.
  const AnyTensor shifted = detail::below_maximum(logits, -1, "softmax_cross_entropy", where);
  const AnyTensor numbers = detail::class_numbers<T>(graph, classes, where);
  const double rest = smoothing / static_cast<double>(classes);
  const auto weigh = [&](Symbol s, Symbol c, Symbol label) {
    if (smoothing == 0) return select(c == label, s, 0);  // a logit of minus infinity elsewhere does no harm
    return s * select(c == label, 1 - smoothing + rest, rest);
  };
  const AnyTensor hit =
      detail::map_at(graph, dtype_of<T>, where, weigh, shifted, numbers, reshape(labels.any(), column, where));
  const AnyTensor total = detail::reduce(ReduceKind::sum, apply(detail::ScalarOp::exponential, {shifted}, where), {-1},
                                         "softmax_cross_entropy", where);
  const AnyTensor target = detail::reduce(ReduceKind::sum, hit, {-1}, "softmax_cross_entropy", where);
  return Tensor<T>{detail::map_at(
      graph, dtype_of<T>, where,
      [&](Symbol t, Symbol h, Symbol label) {
        Symbol is_class = label >= 0 && label < classes;
        if (options.ignored) is_class = is_class || label == *options.ignored;
        const Symbol loss = (log(t) - h) * select(is_class, 1, std::numeric_limits<double>::quiet_NaN());  // a factor, so that gradients are NaN too
        return options.ignored ? select(label == *options.ignored, 0, loss) : loss;
      },
      total, target, labels)};
}

// The part of the examples that have their largest logit (the first of equal ones) at the label.
// [.., C], [..] -> scalar in [0, 1]. Throws BuildError where the shapes do not fit.
template <FloatingElement T, Element L>
Tensor<T> accuracy(Tensor<T> logits, Tensor<L> labels, std::source_location where = std::source_location::current()) {
  static_assert(LabelElement<L>, "replicator: accuracy takes the number of each example's class as std::int32_t or std::int64_t: rp::cast<std::int32_t>(labels), or rp::argmax(labels) where they are one-hot");
  if constexpr (std::is_same_v<T, bfloat16>) return cast<T>(accuracy(cast<float>(logits, where), labels, where), where);
  detail::require_classes("accuracy", logits, labels, where);
  Graph& graph = logits.graph();
  const auto classes = logits.shape()[-1];
  const AnyTensor maximum = detail::reduce(ReduceKind::max, logits, Axes{-1}.kept(), "accuracy", where);
  const AnyTensor candidates = detail::map_at(
      graph, dtype_of<T>, where,
      [&](Symbol x, Symbol m, Symbol c) { return select(x == m, c, static_cast<double>(classes)); }, logits, maximum,
      detail::class_numbers<T>(graph, classes, where));
  const AnyTensor best = detail::reduce(ReduceKind::min, candidates, {-1}, "accuracy", where);
  const Tensor<T> correct{detail::map_at(
      graph, dtype_of<T>, where, [](Symbol a, Symbol b) { return a == b; }, best, labels)};
  return mean(correct, {}, where);
}

}  // namespace replicator
