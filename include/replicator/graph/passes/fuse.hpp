// SPDX-License-Identifier: Apache-2.0
// Elementwise fusion: inlines a Map into all Maps and Reduces that use it, where that saves memory traffic.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

namespace detail {

// Limits of a fused expression: instructions and inputs.
inline constexpr std::size_t largest_fused_expression = 32;
inline constexpr std::size_t most_fused_inputs = 8;

// Whether a scalar operation is too expensive to be computed twice.
inline bool expensive(ScalarOp op) {
  return op == ScalarOp::exponential || op == ScalarOp::logarithm || op == ScalarOp::hyperbolic_tangent ||
         op == ScalarOp::error_function || op == ScalarOp::sine || op == ScalarOp::cosine || op == ScalarOp::power;
}

// An elementwise node as an expression on values of the new graph.
struct Elementwise {
  Expression expression;
  std::vector<Value> inputs;
};

class Fusion {
 public:
  explicit Fusion(const Graph& graph) : graph_{graph}, rewriter_{graph}, users_{users_of(graph)}, inlined_(graph.nodes().size()) {
    for (const auto result : graph.results()) kept_.insert(result.node);
  }

  Graph run() && {
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto& node = graph_.node(i);
      if (const auto* map = operation_of<Map>(node)) {
        auto fused = gather(node, *map->expression);
        if (worth_inlining(i, *map, fused)) inlined_[i] = std::move(fused);
        else emit(i, Map{std::make_shared<const Expression>(std::move(fused.expression)), map->domain, map->dtypes}, fused.inputs);
      } else if (const auto* reduce = operation_of<Reduce>(node)) {
        auto fused = gather(node, *reduce->expression);
        emit(i, Reduce{reduce->kind, std::make_shared<const Expression>(std::move(fused.expression)), reduce->axes, reduce->domain, reduce->dtypes},
             fused.inputs);
      } else {
        rewriter_.copy(i);
      }
    }
    return std::move(rewriter_).finish();
  }

 private:
  // The node's expression, with the expressions of its inlined inputs substituted.
  Elementwise gather(const Node& node, const Expression& expression) {
    Elementwise result;
    result.expression.compute = expression.compute;
    std::vector<std::uint16_t> renamed;
    for (const auto& instruction : expression.code) {
      auto f = instruction;
      if (f.op == ScalarOp::input) {
        const Value value = node.inputs[f.a];
        const auto* constant = constant_of(value, expression.compute);
        if (constant) renamed.push_back(splice(result, {*constant, {}}));
        else renamed.push_back(inlined_[value.node] ? splice(result, *inlined_[value.node]) : operand(result, rewriter_(value)));
        continue;
      }
      rename(f, renamed);
      renamed.push_back(append(result.expression, f));
    }
    for (const auto output : expression.outputs) result.expression.outputs.push_back(renamed[output]);
    result.expression.inputs = static_cast<std::uint16_t>(result.inputs.size());
    return result;
  }
  // The expression of a value that has the same number everywhere, of this type. Null for other values.
  const Expression* constant_of(Value value, DType compute) const {
    const Node* node = &graph_.node(value.node);
    while (operation_of<Reshape>(*node)) node = &graph_.node(node->inputs[0].node);
    const auto* map = operation_of<Map>(*node);
    if (!map || !node->inputs.empty() || map->expression->outputs.size() != 1 || map->expression->compute != compute) return nullptr;
    return map->dtypes[0] == compute ? &*map->expression : nullptr;
  }
  // Leaves out a multiplication by one, such as those of the gradient of a sum.
  static std::uint16_t append(Expression& expression, const ScalarInstruction& f) {
    const auto is_one = [&](std::uint16_t i) {
      const auto& of = expression.code[i];
      return is_floating(expression.compute) && of.op == ScalarOp::constant && std::bit_cast<double>(of.bits) == 1;
    };
    if (f.op == ScalarOp::multiply && is_one(f.a)) return f.b;
    if (f.op == ScalarOp::multiply && is_one(f.b)) return f.a;
    return expression.append(f);
  }
  static void rename(ScalarInstruction& f, const std::vector<std::uint16_t>& renamed) {
    const int n = operands_of(f.op);
    if (n > 0) f.a = renamed[f.a];
    if (n > 1) f.b = renamed[f.b];
    if (n > 2) f.c = renamed[f.c];
  }
  static std::uint16_t operand(Elementwise& into, Value value) {
    std::size_t i = 0;
    while (i < into.inputs.size() && into.inputs[i] != value) ++i;
    if (i == into.inputs.size()) into.inputs.push_back(value);
    return into.expression.input(static_cast<std::uint16_t>(i));
  }
  static std::uint16_t splice(Elementwise& into, const Elementwise& part) {
    std::vector<std::uint16_t> renamed;
    for (auto f : part.expression.code) {
      if (f.op == ScalarOp::input) {
        renamed.push_back(operand(into, part.inputs[f.a]));
        continue;
      }
      rename(f, renamed);
      renamed.push_back(append(into.expression, f));
    }
    return renamed[part.expression.outputs[0]];
  }

  void emit(std::uint32_t old, AnyOperation operation, const std::vector<Value>& inputs) {
    const auto& node = graph_.node(old);
    rewriter_.replace(old, rewriter_.to().add({Compute{std::move(operation)}, inputs, node.outputs, node.where,
                                               node.label, node.device, node.marks}));
  }

  // Whether this user can take the expression in: it must run over the same domain, in the same type.
  bool fits(const Map& map, const Node& user) const {
    const auto* other_map = operation_of<Map>(user);
    const auto* other_reduce = operation_of<Reduce>(user);
    if (!other_map && !other_reduce) return false;
    const auto& domain = other_map ? other_map->domain : other_reduce->domain;
    const auto& expression = other_map ? *other_map->expression : *other_reduce->expression;
    return domain == map.domain && expression.compute == map.expression->compute;
  }

  // For i large inputs and c users: inlined, the users read i c times; stored, it costs i reads, a write and c reads.
  // Reduces over the same axes count once, because they will be merged.
  bool worth_inlining(std::uint32_t index, const Map& map, const Elementwise& fused) const {
    if (kept_.contains(index) || users_[index].empty() || map.dtypes.size() != 1 || map.dtypes[0] != map.expression->compute) return false;
    if (fused.expression.code.size() > largest_fused_expression || fused.inputs.size() > most_fused_inputs) return false;
    std::set<std::uint32_t> users;
    std::set<std::vector<std::int64_t>> reductions;
    for (const auto user : users_[index]) {
      const auto& node = graph_.node(user);
      if (!fits(map, node)) return false;
      if (const auto* reduce = operation_of<Reduce>(node)) reductions.insert(reduce->axes);
      else users.insert(user);
    }
    const auto c = users.size() + reductions.size();
    if (c > 1 && std::any_of(fused.expression.code.begin(), fused.expression.code.end(), [](const auto& f) { return expensive(f.op); })) return false;
    std::size_t i = 0;
    for (const auto input : fused.inputs)
      if (2 * rewriter_.to().type(input).shape.elements() > map.domain.elements()) ++i;
    return i * c <= i + 1 + c;
  }
  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<std::vector<std::uint32_t>> users_;
  std::vector<std::optional<Elementwise>> inlined_;
  std::set<std::uint32_t> kept_;
};

}  // namespace detail

// Repeats this where it joined nodes: a value that had several users may have one now.
inline Graph fuse(const Graph& graph) {
  Graph fused = detail::Fusion{graph}.run();
  for (auto before = graph.nodes().size(); fused.nodes().size() < before;) {
    before = fused.nodes().size();
    fused = detail::Fusion{fused}.run();
  }
  return fused;
}

}  // namespace replicator::detail::passes
