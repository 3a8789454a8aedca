// SPDX-License-Identifier: Apache-2.0
// A pass that makes elementwise nodes the prologue of a convolution, where nothing else reads them. Examples are a batch norm's
// scale and bias, and ReLU. Their result is then never written. For the gradient of the weights recompute.hpp computes it once
// more, as it does without this pass. A kernel chooses what it rounds on the way. So bits may change, and the pass only runs
// where it is asked for.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <replicator/ops/fusion/fusible_arithmetic.hpp>

namespace replicator::detail::passes {

namespace detail {

class PrologueFusion {
 public:
  explicit PrologueFusion(const Graph& graph) : graph_{graph}, rewriter_{graph}, only_user_{graph}, takes_(graph.nodes().size()), gone_(graph.nodes().size()) {
    for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
      if ((takes_[i] = takes_input(graph.node(i)))) gone_[graph.node(i).inputs[0].node] = true;
  }

  Graph run() && {
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      if (takes_[i]) emit(i);
      else if (!gone_[i]) rewriter_.copy(i);
    }
    return std::move(rewriter_).finish();
  }

 private:
  bool takes_input(const Node& node) const {
    const auto convolution = fusible_convolution(node);
    if (!convolution || convolution->has_prologue()) return false;
    const Value x = node.inputs[0];
    return only_user_.of(x.node) && fusible_arithmetic(graph_, graph_.node(x.node), graph_.type(x));
  }

  void emit(std::uint32_t index) {
    const auto& convolution = graph_.node(index);
    const auto& arithmetic = graph_.node(convolution.inputs[0].node);
    auto operation = *fusible_convolution(convolution);
    operation.prologue = *operation_of<Map>(arithmetic)->expression;
    Node node = convolution;
    node.what = Compute{std::move(operation)};
    node.inputs.erase(node.inputs.begin());
    node.inputs.insert(node.inputs.begin(), arithmetic.inputs.begin(), arithmetic.inputs.end());
    for (auto& input : node.inputs) input = rewriter_(input);
    rewriter_.replace(index, rewriter_.to().add(std::move(node)));
  }

  const Graph& graph_;
  Rewriter rewriter_;
  OnlyUser only_user_;
  std::vector<bool> takes_, gone_;  // by node
};

}  // namespace detail

// For graphs in which elementwise operations are fused with each other already.
inline Graph fuse_prologues(const Graph& graph) { return detail::PrologueFusion{graph}.run(); }

}  // namespace replicator::detail::passes
