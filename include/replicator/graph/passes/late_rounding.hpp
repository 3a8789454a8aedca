// SPDX-License-Identifier: Apache-2.0
// The pass that rounds to bfloat16 after a choice, instead of before it. A choice passes a value on or replaces it by 0, so
// the bits stay the same.
//
// The chosen value can then be stored in half the bytes. And fusion makes one pass of the choice and the computation of its
// operand. Example: the gradient that arrives at a relu behind a sum. Gradient, mask and sum are then read once, and not by
// each of the three users of the choice.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/passes/round_trips.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/graph/uniform_nodes.hpp>

namespace replicator::detail::passes {

namespace detail {

// The input that an expression passes on and reads nowhere else: select(condition, input, 0) or select(condition, 0,
// input). Empty for other expressions.
inline std::optional<std::uint16_t> handed_on(const Expression& e) {
  if (e.outputs.size() != 1 || e.compute != DType::float32) return std::nullopt;
  const auto& choice = e.code[e.outputs[0]];
  if (choice.op != ScalarOp::select) return std::nullopt;
  const auto is_zero = [&](std::uint16_t i) { return e.code[i] == ScalarInstruction{ScalarOp::constant, 0, 0, 0, 0}; };
  if (is_zero(choice.b) == is_zero(choice.c)) return std::nullopt;
  const std::uint16_t kept = is_zero(choice.b) ? choice.c : choice.b;
  if (e.code[kept].op != ScalarOp::input) return std::nullopt;
  int reads = 0;
  for (const auto& i : e.code) {
    const std::uint16_t operands[] = {i.a, i.b, i.c};
    for (int o = 0; o < operands_of(i.op); ++o) reads += operands[o] == kept;
  }
  if (reads != 1) return std::nullopt;
  return e.code[kept].a;
}

class LateRounding {
 public:
  explicit LateRounding(const Graph& graph) : graph_{graph}, rewriter_{graph}, uniform_{uniform_nodes(graph)}, uses_(graph.nodes().size()) {
    for (const auto& node : graph.nodes())
      for (const auto input : node.inputs) ++uses_[input.node];
    for (const auto result : graph.results()) ++uses_[result.node];
  }

  Graph run() && {
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      if (const auto exact = uniform_[i] ? std::nullopt : before_rounding(graph_.node(i))) choose_first(i, *exact);
      else rewriter_.copy(i);
    }
    return std::move(rewriter_).finish();
  }

 private:
  struct Rounded {
    std::uint16_t input;  // index of the chosen input
    Value exact;          // the value before rounding
  };

  // For a choice whose input is rounded for it alone, and that could be one pass with the computation of that input.
  std::optional<Rounded> before_rounding(const Node& node) const {
    const auto* choice = operation_of<Map>(node);
    if (!choice || choice->dtypes != std::vector{DType::float32}) return std::nullopt;
    const auto input = handed_on(*choice->expression);
    if (!input) return std::nullopt;
    const std::uint32_t rounding = node.inputs[*input].node;
    if (!is_conversion(graph_.node(rounding)) || uses_[rounding] != 1 || graph_.type(node.inputs[*input]).dtype != DType::bfloat16) return std::nullopt;
    const Value exact = graph_.node(rounding).inputs[0];
    const auto* computed = operation_of<Map>(graph_.node(exact.node));
    const bool one_pass = computed && uses_[exact.node] == 1 && computed->domain == choice->domain && computed->dtypes == choice->dtypes &&
                          graph_.node(exact.node).device == node.device;
    return one_pass ? std::optional{Rounded{*input, exact}} : std::nullopt;
  }

  void choose_first(std::uint32_t old, const Rounded& rounded) {
    const auto& map = *operation_of<Map>(graph_.node(old));
    Node choice = rewriter_.renewed(old);
    choice.inputs[rounded.input] = rewriter_(rounded.exact);
    choice.what = Compute{Map{map.expression, map.domain, {DType::bfloat16}}};
    choice.outputs[0].dtype = DType::bfloat16;
    replace_widened(rewriter_, old, std::move(choice));
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<bool> uniform_;
  std::vector<std::size_t> uses_;  // number of uses by nodes and results
};

}  // namespace detail

// Uniform nodes stay: replicas compare them, and a replica that also looks at the rounded value would get other ones.
// Run it after dead code and common subexpressions, whose extra nodes would count as uses. Run it before the other bfloat16
// passes, which continue from the chosen value.
inline Graph round_late(const Graph& graph) { return detail::LateRounding{graph}.run(); }

}  // namespace replicator::detail::passes
