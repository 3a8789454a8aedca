// SPDX-License-Identifier: Apache-2.0
// A pass that makes sums over a convolution's result outputs of the convolution. Both statistics of a batch norm are such sums.
// The variance is the sum of (y - m)^2. It is computed as (sum of y^2) - m (2 (sum of y) - n m). Apart from rounding, this is the
// same for any m, but digits cancel where the mean is large beside the deviation. So the pass changes bits, and only runs where
// it is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/fusion/fused_convolution.hpp>

namespace replicator::detail::passes {

namespace detail {

// What a reduction sums for each channel, over the images and positions of a convolution's result y.
struct ChannelSum {
  enum class Of : std::uint8_t {
    values,
    squares,
    squares_around
  } of = Of::values;
  std::uint32_t convolution = 0;
  Value around;  // for each channel, the value that is subtracted from y before it is squared
};

class StatisticsFusion {
 public:
  explicit StatisticsFusion(const Graph& graph) : graph_{graph}, rewriter_{graph}, sums_(graph.nodes().size()), fused_(graph.nodes().size()) {
    for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
      if ((sums_[i] = channel_sum(graph.node(i)))) fused_[sums_[i]->convolution] = true;
  }

  Graph run() && {
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      if (fused_[i]) emit_convolution(i);
      else if (sums_[i]) emit_sum(i, *sums_[i]);
      else rewriter_.copy(i);
    }
    return std::move(rewriter_).finish();
  }

 private:
  std::optional<ChannelSum> channel_sum(const Node& node) const {
    const auto* reduce = operation_of<Reduce>(node);
    if (!reduce || reduce->kind != ReduceKind::sum || reduce->axes != std::vector<std::int64_t>{0, 2, 3} || reduce->domain.rank() != 4 ||
        reduce->dtypes != std::vector{DType::float32} || reduce->expression->compute != DType::float32)
      return std::nullopt;
    const auto& code = reduce->expression->code;
    const auto result = reduce->expression->outputs[0];
    if (const auto of = convolution(node, code[result])) return ChannelSum{ChannelSum::Of::values, *of, {}};
    if (code[result].op != ScalarOp::multiply || code[result].a != code[result].b) return std::nullopt;
    const auto& squared = code[code[result].a];
    if (const auto of = convolution(node, squared)) return ChannelSum{ChannelSum::Of::squares, *of, {}};
    if (squared.op != ScalarOp::subtract || code[squared.b].op != ScalarOp::input) return std::nullopt;
    const Value around = node.inputs[code[squared.b].a];
    const auto of = convolution(node, code[squared.a]);
    if (!of || !(graph_.type(around).shape == Shape{1, reduce->domain[1], 1, 1})) return std::nullopt;
    return ChannelSum{ChannelSum::Of::squares_around, *of, around};
  }
  // The convolution that the instruction reads the result of, if the reduction is over all of it.
  std::optional<std::uint32_t> convolution(const Node& node, const ScalarInstruction& instruction) const {
    if (instruction.op != ScalarOp::input) return std::nullopt;
    const Value read = node.inputs[instruction.a];
    const auto& type = graph_.type(read);
    if (!operation_of<Convolution>(graph_.node(read.node)) || !FusedConvolution::takes(type.dtype) ||
        !(type.shape == operation_of<Reduce>(node)->domain))
      return std::nullopt;
    return read.node;
  }

  void emit_convolution(std::uint32_t index) {
    Node node = rewriter_.renewed(index);
    std::vector<TensorType> inputs;
    for (const auto input : node.inputs) inputs.push_back(rewriter_.to().type(input));
    FusedConvolution operation{operation_of<Convolution>(node)->options};
    operation.statistics = true;
    node.outputs = operation.infer_shape(inputs);
    node.what = Compute{operation};
    rewriter_.replace(index, {{rewriter_.to().add(std::move(node)), 0}});
  }
  void emit_sum(std::uint32_t index, const ChannelSum& sum) {
    const auto made = rewriter_({sum.convolution, 0}).node;
    if (sum.of == ChannelSum::Of::squares_around) rewriter_.replace(index, {squares_around(index, sum, {made, 1}, {made, 2})});
    else rewriter_.replace(index, {{made, sum.of == ChannelSum::Of::values ? 1u : 2u}});
  }
  // Rounding must not make the result negative, because its square root is taken.
  Value squares_around(std::uint32_t index, const ChannelSum& sum, Value values, Value squares) {
    const auto& type = graph_.type({index, 0});
    const double n = static_cast<double>(graph_.type({sum.convolution, 0}).shape.elements()) / static_cast<double>(type.shape.elements());
    auto formula = [n](Symbol s, Symbol q, Symbol m) { return max(q - m * (2 * s - n * m), 0); };
    auto expression = replicator::detail::record(formula, DType::float32, std::make_index_sequence<3>{});
    const Map map{std::make_shared<const Expression>(std::move(expression)), type.shape, {DType::float32}};
    return add_like(index, map, {values, squares, in_one_axis(index, rewriter_(sum.around), type.shape)});
  }
  // The value as it was before it got the axes of an image.
  Value in_one_axis(std::uint32_t index, Value around, const Shape& channels) {
    const auto& node = rewriter_.to().node(around.node);
    if (operation_of<Reshape>(node) && rewriter_.to().type(node.inputs[0]).shape == channels) return node.inputs[0];
    return add_like(index, Reshape{channels}, {around});
  }
  // Adds a node with the old node's source line, label, device and marks.
  Value add_like(std::uint32_t old, AnyOperation operation, std::vector<Value> inputs) {
    std::vector<TensorType> types;
    for (const auto input : inputs) types.push_back(rewriter_.to().type(input));
    auto outputs = operation.infer_shape(types);
    const auto& node = graph_.node(old);
    return {rewriter_.to().add({Compute{std::move(operation)}, std::move(inputs), std::move(outputs), node.where, node.label, node.device, node.marks}), 0};
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<std::optional<ChannelSum>> sums_;  // by node
  std::vector<bool> fused_;
};

}  // namespace detail

// For graphs in which elementwise operations are part of the reductions that use them.
inline Graph fuse_statistics(const Graph& graph) { return detail::StatisticsFusion{graph}.run(); }

}  // namespace replicator::detail::passes
