// SPDX-License-Identifier: Apache-2.0
// The pass that merges reductions over the same domain and axes with shared inputs. They become one node with several
// outputs: one pass over memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

namespace detail {

class ReduceMerging {
 public:
  ReduceMerging(const Graph& graph, const std::vector<bool>& mark, std::span<const std::uint32_t> segments)
      : graph_{graph}, mark_{mark}, segments_{segments}, rewriter_{graph}, group_of_(graph.nodes().size(), none) {
    find_groups();
  }

  Graph run() && {
    emitted_.resize(graph_.nodes().size());
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) emit(i);
    return std::move(rewriter_).finish();
  }

 private:
  static constexpr std::uint32_t none = ~0u;
  // Of a group. Such an expression computes for longer than it reads, so a larger group saves nothing. To append instructions takes
  // time that grows with their square.
  static constexpr std::size_t most_instructions = 1024;

  // Reductions of equal depth cannot depend on each other. The depth counts the reductions and collectives on the way.
  void find_groups() {
    std::vector<std::uint32_t> depth(graph_.nodes().size());
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> by_depth;  // segment, depth -> groups
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto& node = graph_.node(i);
      for (const auto input : node.inputs) depth[i] = std::max(depth[i], depth[input.node]);
      const auto* reduce = operation_of<Reduce>(node);
      if (!reduce && !node.get<Placeholder>()) continue;
      ++depth[i];
      if (reduce) join(i, *reduce, by_depth[{segments_.empty() ? 0 : segments_[i], depth[i]}]);
    }
  }
  // Joins the reduction with all groups that share an input with it, and so these with each other, while there is room.
  void join(std::uint32_t index, const Reduce& reduce, std::vector<std::uint32_t>& candidates) {
    const auto joins = [&](std::uint32_t group) {
      const auto& first = *operation_of<Reduce>(graph_.node(groups_[group].front()));
      return first.kind == reduce.kind && first.domain == reduce.domain && first.axes == reduce.axes && first.expression->compute == reduce.expression->compute &&
             marked(groups_[group].front()) == marked(index) && shares_input(groups_[group], index);
    };
    std::vector<std::uint32_t> members;
    std::size_t instructions = reduce.expression->code.size();
    std::erase_if(candidates, [&](std::uint32_t group) {
      if (instructions + instructions_[group] > most_instructions || !joins(group)) return false;
      instructions += instructions_[group];
      const auto absorbed = std::exchange(groups_[group], {});
      members.insert(members.end(), absorbed.begin(), absorbed.end());
      return true;
    });
    std::sort(members.begin(), members.end());
    members.push_back(index);
    const auto group = static_cast<std::uint32_t>(groups_.size());
    for (const auto member : members) group_of_[member] = group;
    candidates.push_back(group);
    groups_.push_back(std::move(members));
    instructions_.push_back(instructions);
  }
  bool marked(std::uint32_t index) const { return !mark_.empty() && mark_[index]; }
  // They must share an input of the whole domain; otherwise one pass saves nothing.
  bool shares_input(const std::vector<std::uint32_t>& group, std::uint32_t index) const {
    const auto& domain = operation_of<Reduce>(graph_.node(index))->domain;
    for (const auto member : group)
      for (const auto a : graph_.node(member).inputs)
        for (const auto b : graph_.node(index).inputs)
          if (a == b && graph_.type(a).shape.elements() == domain.elements()) return true;
    return false;
  }

  // Emits a node after its inputs, and a whole group when its first member is due. The inputs may lie deep, so this keeps
  // an explicit stack of due nodes instead of recursing.
  void emit(std::uint32_t index) {
    std::vector<std::uint32_t> due{index};
    while (!due.empty()) {
      const auto next = due.back();
      const std::span<const std::uint32_t> members = group_of_[next] == none ? std::span{&next, 1} : groups_[group_of_[next]];
      const auto waiting = due.size();
      if (!emitted_[next]) push_inputs(members, due);
      if (due.size() > waiting) continue;
      due.pop_back();
      if (emitted_[next]) continue;
      for (const auto member : members) emitted_[member] = true;
      if (members.size() == 1) rewriter_.copy(next);
      else emit_group(members);
    }
  }
  // Pushes the inputs that are not emitted yet; the first one ends on top.
  void push_inputs(std::span<const std::uint32_t> members, std::vector<std::uint32_t>& due) const {
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      const auto& inputs = graph_.node(*member).inputs;
      for (auto input = inputs.rbegin(); input != inputs.rend(); ++input)
        if (!emitted_[input->node]) due.push_back(input->node);
    }
  }
  void emit_group(std::span<const std::uint32_t> members) {
    const auto& first_node = graph_.node(members.front());
    const auto& first = *operation_of<Reduce>(first_node);
    Expression merged;
    merged.compute = first.expression->compute;
    std::vector<Value> inputs;
    Node node{first_node.what, {}, {}, first_node.where, first_node.label, first_node.device, first_node.marks};
    std::vector<DType> dtypes;
    for (const auto member : members) {
      const auto& other = graph_.node(member);
      const auto& reduce = *operation_of<Reduce>(other);
      append(merged, inputs, other, *reduce.expression);
      dtypes.insert(dtypes.end(), reduce.dtypes.begin(), reduce.dtypes.end());
      for (std::uint32_t o = 0; o < other.outputs.size(); ++o) node.output_lines.push_back(other.line_of(o));
      node.outputs.insert(node.outputs.end(), other.outputs.begin(), other.outputs.end());
    }
    merged.inputs = static_cast<std::uint16_t>(inputs.size());
    node.inputs = inputs;
    node.what = Compute{Reduce{first.kind, std::make_shared<const Expression>(std::move(merged)), first.axes, first.domain, dtypes}};
    const auto index = rewriter_.to().add(std::move(node));
    std::uint32_t output = 0;
    for (const auto member : members) {
      std::vector<Value> values;
      for (std::size_t o = 0; o < graph_.node(member).outputs.size(); ++o) values.push_back({index, output++});
      rewriter_.replace(member, std::move(values));
    }
  }
  void append(Expression& merged, std::vector<Value>& inputs, const Node& node, const Expression& expression) {
    std::vector<std::uint16_t> renamed;
    for (auto f : expression.code) {
      const int n = operands_of(f.op);
      if (f.op == ScalarOp::input) {
        const Value value = rewriter_(node.inputs[f.a]);
        auto found = std::find(inputs.begin(), inputs.end(), value);
        if (found == inputs.end()) found = inputs.insert(found, value);
        f.a = static_cast<std::uint16_t>(found - inputs.begin());
      }
      if (n > 0) f.a = renamed[f.a];
      if (n > 1) f.b = renamed[f.b];
      if (n > 2) f.c = renamed[f.c];
      renamed.push_back(merged.append(f));
    }
    for (const auto output : expression.outputs) merged.outputs.push_back(renamed[output]);
  }

  const Graph& graph_;
  const std::vector<bool>& mark_;
  std::span<const std::uint32_t> segments_;
  Rewriter rewriter_;
  std::vector<std::vector<std::uint32_t>> groups_;  // empty where another group has absorbed it
  std::vector<std::size_t> instructions_;           // by group
  std::vector<std::uint32_t> group_of_;
  std::vector<bool> emitted_;
};

}  // namespace detail

// Nodes with different `mark` (by node) are never merged: for example, values that are uniform over the replicas and values
// that vary. Nor are nodes of different segments (by node, see find_segments): a merged node would make one wait for the
// collectives of the other, and other replicas may need these in the other order.
inline Graph merge_reduces(const Graph& graph, const std::vector<bool>& mark = {}, std::span<const std::uint32_t> segments = {}) {
  return detail::ReduceMerging{graph, mark, segments}.run();
}

}  // namespace replicator::detail::passes
