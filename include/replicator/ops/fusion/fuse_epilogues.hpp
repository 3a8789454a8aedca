// SPDX-License-Identifier: Apache-2.0
// A pass that makes elementwise nodes the epilogue of a convolution, where nothing else reads its result. Examples are a batch
// norm by running statistics, a residual sum, and ReLU. The result itself is then never written, nor rounded to bfloat16. So bits
// change, and the pass only runs where it is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/ops/fusion/fusible_arithmetic.hpp>

namespace replicator::detail::passes {

namespace detail {

class EpilogueFusion {
 public:
  explicit EpilogueFusion(const Graph& graph) : graph_{graph}, rewriter_{graph}, only_user_{graph}, result_(graph.nodes().size()), gone_(graph.nodes().size()) {
    for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
      if ((result_[i] = find_result(graph.node(i)))) gone_[graph.node(i).inputs[*result_[i]].node] = true;
  }

  Graph run() && {
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      if (result_[i]) emit(i, *result_[i]);
      else if (!gone_[i]) rewriter_.copy(i);
    }
    return std::move(rewriter_).finish();
  }

 private:
  // Which input of the node is the result of the convolution that gets the node as its epilogue. Of several it is the one that is
  // computed last, because the others exist by then.
  std::optional<std::size_t> find_result(const Node& node) const {
    std::optional<std::size_t> found;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const auto from = node.inputs[k].node;
      const auto convolution = fusible_convolution(graph_.node(from));
      if (!convolution || convolution->statistics || convolution->has_epilogue() || !only_user_.of(from)) continue;
      if (fusible_arithmetic(graph_, node, graph_.type(node.inputs[k])) && (!found || node.inputs[*found].node < from)) found = k;
    }
    return found;
  }

  void emit(std::uint32_t index, std::size_t result) {
    const auto& arithmetic = graph_.node(index);
    const auto from = arithmetic.inputs[result].node;
    Node node = rewriter_.renewed(from);
    auto operation = *fusible_convolution(node);
    operation.epilogue = *operation_of<Map>(arithmetic)->expression;
    for (auto& instruction : operation.epilogue.code)
      if (instruction.op == ScalarOp::input) instruction.a = static_cast<std::uint16_t>(number_of(instruction.a, result));
    for (std::size_t k = 0; k < arithmetic.inputs.size(); ++k)
      if (k != result) node.inputs.push_back(rewriter_(arithmetic.inputs[k]));
    node.what = Compute{std::move(operation)};
    node.device = arithmetic.device;
    node.marks = arithmetic.marks;
    rewriter_.replace(index, rewriter_.to().add(std::move(node)));
  }
  // Number of an input of the arithmetic among the epilogue's inputs. The first of these is the convolution's result.
  static std::size_t number_of(std::size_t input, std::size_t result) { return input == result  ? 0
                                                                               : input < result ? input + 1
                                                                                                : input; }

  const Graph& graph_;
  Rewriter rewriter_;
  OnlyUser only_user_;
  std::vector<std::optional<std::size_t>> result_;  // by node
  std::vector<bool> gone_;
};

}  // namespace detail

// Run it after elementwise operations have been fused with each other.
inline Graph fuse_epilogues(const Graph& graph) { return detail::EpilogueFusion{graph}.run(); }

}  // namespace replicator::detail::passes
