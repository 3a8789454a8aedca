// SPDX-License-Identifier: Apache-2.0
// The pass that gives bfloat16 values unwidened to operations that do not need float32.
#pragma once

#include <algorithm>
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

class Narrowing {
 public:
  explicit Narrowing(const Graph& graph) : graph_{graph}, rewriter_{graph}, uniform_{uniform_nodes(graph)}, users_{users_of(graph)} {}

  Graph run() && {
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      if (may_be_narrow(i)) emit(i);
      else rewriter_.copy(i);
    }
    return std::move(rewriter_).finish();
  }

 private:
  bool may_be_narrow(std::uint32_t index) const {
    const auto* compute = graph_.node(index).get<Compute>();
    const OfWidened kind = compute ? compute->operation.of_widened() : OfWidened::computes;
    const auto& outputs = graph_.node(index).outputs;
    if (kind == OfWidened::computes || outputs.size() != 1 || outputs[0].dtype != DType::float32 || !before_widening(rewriter_.to(), rewriter_(graph_.node(index).inputs[0]))) return false;
    // Replicas compare uniform nodes, so those must not depend on what else uses them.
    return kind == OfWidened::picks || (!uniform_[index] && is_only_rounded(index));
  }
  bool is_only_rounded(std::uint32_t index) const {
    const auto rounds = [&](std::uint32_t user) { return is_conversion(graph_.node(user)) && graph_.node(user).outputs[0].dtype == DType::bfloat16; };
    const auto& results = graph_.results();
    return std::all_of(users_[index].begin(), users_[index].end(), rounds) &&
           std::none_of(results.begin(), results.end(), [&](Value result) { return result.node == index; });
  }

  // Applies the operation to the value before widening, and widens the result instead. Users that round it drop that
  // widening.
  void emit(std::uint32_t index) {
    Node node = rewriter_.renewed(index);
    const bool rounds = node.get<Compute>()->operation.of_widened() == OfWidened::rounds;
    std::vector<TensorType> types;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto before = before_widening(rewriter_.to(), node.inputs[i]);
      if (before && (i == 0 || rounds)) node.inputs[i] = *before;
      types.push_back(rewriter_.to().type(node.inputs[i]));
    }
    node.outputs = node.get<Compute>()->operation.infer_shape(types);
    replace_widened(rewriter_, index, std::move(node));
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<bool> uniform_;
  std::vector<std::vector<std::uint32_t>> users_;
};

}  // namespace detail

// Bits stay the same, except that a signalling NaN becomes a quiet one: see OfWidened.
inline Graph narrow(const Graph& graph) { return detail::Narrowing{graph}.run(); }

}  // namespace replicator::detail::passes
