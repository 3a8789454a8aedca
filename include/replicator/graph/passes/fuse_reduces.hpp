// SPDX-License-Identifier: Apache-2.0
// A pass that makes small elementwise nodes the epilogue of the reduction whose results they read. On a GPU they would be launches
// of their own. It changes no bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <replicator/graph/fused_reduce.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/graph/segments_of.hpp>

namespace replicator::detail::passes {

namespace detail {

class ReduceFusion {
 public:
  // Beyond this many results the arithmetic is more work than a launch.
  static constexpr std::int64_t most_results = 4096;
  static constexpr std::size_t most_instructions = 64, most_operands = 24;  // of an epilogue; the interpreter has room for them

  ReduceFusion(const Graph& graph, const std::vector<bool>& uniform, std::span<const std::uint32_t> segments)
      : graph_{graph},
        uniform_{uniform},
        segment_{segments.empty() ? segments_of(graph) : std::vector(segments.begin(), segments.end())},
        rewriter_{graph},
        users_{users_of(graph)},
        reduce_of_(size(), none),
        members_(size()),
        emitted_(size()) {
    for (std::uint32_t i = 0; i < size(); ++i) place(i);
  }

  TracedBack run() && {
    for (std::uint32_t i = 0; i < size(); ++i) {
      if (!members_[i].empty()) emit_fused(i);
      else if (reduce_of_[i] == none && !is_unused_view(i)) emit(i);
    }
    return {std::move(rewriter_).finish(), std::move(origins_)};
  }

 private:
  static constexpr std::uint32_t none = ~0u;

  std::uint32_t size() const { return static_cast<std::uint32_t>(graph_.nodes().size()); }

  // --- which nodes belong to an epilogue -----------------------------------------------------------------------------
  // Puts a Map into the epilogue of the last reduction that it needs.
  void place(std::uint32_t index) {
    const auto& node = graph_.node(index);
    const auto* map = operation_of<Map>(node);
    if (!map) return;
    std::optional<std::uint32_t> last;
    for (const auto input : node.inputs)
      if (const auto reduce = reduce_of(input)) last = std::max(last.value_or(0), *reduce);
    if (!last || !fits(index, *map, *last)) return;
    reduce_of_[index] = *last;
    members_[*last].push_back(index);
  }
  // The reduction that makes this value, itself or by its epilogue.
  std::optional<std::uint32_t> reduce_of(Value value) const {
    const auto made = behind_views(value).node;
    if (operation_of<Reduce>(graph_.node(made))) return made;
    return reduce_of_[made] == none ? std::nullopt : std::optional{reduce_of_[made]};
  }
  Value behind_views(Value value) const {
    while (is_view(value.node)) value = graph_.node(value.node).inputs[0];
    return value;
  }
  bool is_view(std::uint32_t index) const {
    const auto* compute = graph_.node(index).get<Compute>();
    return compute && compute->operation.alias();
  }

  bool fits(std::uint32_t index, const Map& map, std::uint32_t reduce) const {
    const auto& operation = *operation_of<Reduce>(graph_.node(reduce));
    const auto& results = graph_.type({reduce, 0}).shape;
    if (results.elements() > most_results || operation.domain.elements() == 0 || map.expression->compute != operation.expression->compute ||
        without_ones(map.domain) != without_ones(results) || !alike(index, reduce) || !has_room(index, reduce))
      return false;
    for (const auto input : graph_.node(index).inputs) {
      if (reduce_of(input) == reduce) {
        if (graph_.type(behind_views(input)).dtype != operation.expression->compute) return false;  // it is rounded when it is stored
      } else if (const auto& shape = graph_.type(input).shape; (shape.elements() != 1 && shape.elements() != results.elements()) || !is_there(input.node, reduce)) {
        return false;
      }
    }
    return true;
  }
  // Nodes of one segment, so that none waits for more than it needs. Uniform nodes belong to optimizers, where Maps of several
  // variables share a launch. What is computed again was not to be kept until then.
  bool alike(std::uint32_t a, std::uint32_t b) const {
    return segment_[a] == segment_[b] && graph_.node(a).device == graph_.node(b).device && graph_.node(a).marks.again == graph_.node(b).marks.again &&
           (uniform_.empty() || (!uniform_[a] && !uniform_[b]));
  }
  // Operands that several Maps read count for each.
  bool has_room(std::uint32_t index, std::uint32_t reduce) const {
    std::size_t instructions = 0, operands = graph_.node(reduce).outputs.size();
    const auto add = [&](std::uint32_t member) {
      instructions += operation_of<Map>(graph_.node(member))->expression->code.size();
      operands += graph_.node(member).inputs.size();
    };
    add(index);
    for (const auto member : members_[reduce]) add(member);
    return instructions <= most_instructions && operands <= most_operands;
  }
  // Whether the node runs before the reduction, or can.
  bool is_there(std::uint32_t index, std::uint32_t reduce) const {
    while (is_view(index)) index = graph_.node(index).inputs[0].node;
    const auto& node = graph_.node(index);
    return node.get<Read>() || node.get<Input>() || node.get<Constant>() || (reduce_of_[index] == none ? index : reduce_of_[index]) < reduce;
  }

  // --- the new graph -------------------------------------------------------------------------------------------------
  // Emits a node after its inputs. Those of an epilogue may stand behind the reduction.
  void emit(std::uint32_t index) {
    if (emitted_[index]) return;
    emitted_[index] = true;
    for (const auto input : graph_.node(index).inputs) emit_before(input.node);
    rewriter_.copy(index);
    origins_.push_back(values_of(graph_, index));
  }
  void emit_before(std::uint32_t index) {
    if (reduce_of_[index] == none && members_[index].empty()) emit(index);
  }

  void emit_fused(std::uint32_t index) {
    const auto& old = graph_.node(index);
    const auto& reduce = *operation_of<Reduce>(old);
    Node node{old.what, {}, {}, old.where, old.label, old.device, old.marks};
    for (const auto input : old.inputs) node.inputs.push_back(rewriter_(input));
    Expression epilogue;
    epilogue.compute = reduce.expression->compute;
    std::map<Value, std::uint16_t> made;  // instructions
    const auto results = static_cast<std::uint16_t>(old.outputs.size());
    for (std::uint16_t o = 0; o < results; ++o) made[{index, o}] = epilogue.input(o);
    std::vector<Value> further;
    for (const auto member : members_[index]) append(epilogue, member, index, results, further, made);
    epilogue.inputs = static_cast<std::uint16_t>(results + further.size());
    for (const auto input : further) {
      emit_before(input.node);
      node.inputs.push_back(rewriter_(input));
    }
    std::vector<Shape> shapes;
    std::vector<DType> dtypes;
    auto& origins = origins_.emplace_back();
    for (const auto member : members_of(index)) {
      std::vector<Value> values;
      for (std::uint32_t o = 0; o < graph_.node(member).outputs.size(); ++o) {
        values.push_back({static_cast<std::uint32_t>(rewriter_.to().nodes().size()), static_cast<std::uint32_t>(node.outputs.size())});
        if (!is_used({member, o}, index)) continue;
        epilogue.outputs.push_back(made.at({member, o}));
        const auto& type = node.outputs.emplace_back(graph_.type({member, o}));
        shapes.push_back(type.shape), dtypes.push_back(type.dtype);
        node.output_lines.push_back(graph_.node(member).line_of(o));
        origins.push_back({member, o});
      }
      rewriter_.replace(member, std::move(values));
    }
    const Reduce unrounded{reduce.kind, reduce.expression, reduce.axes, reduce.domain, std::vector(results, epilogue.compute)};
    node.what = Compute{FusedReduce{unrounded, std::make_shared<const Expression>(std::move(epilogue)), std::move(shapes), std::move(dtypes)}};
    rewriter_.to().add(std::move(node));
  }
  std::vector<std::uint32_t> members_of(std::uint32_t reduce) const {
    std::vector<std::uint32_t> all{reduce};
    all.insert(all.end(), members_[reduce].begin(), members_[reduce].end());
    return all;
  }
  // Appends a member's expression.
  void append(Expression& epilogue, std::uint32_t member, std::uint32_t reduce, std::uint16_t results, std::vector<Value>& further, std::map<Value, std::uint16_t>& made) const {
    const auto& node = graph_.node(member);
    const auto& expression = *operation_of<Map>(node)->expression;
    std::vector<std::uint16_t> renamed;
    for (auto f : expression.code) {
      if (f.op == ScalarOp::input) {
        const Value input = node.inputs[f.a];
        renamed.push_back(reduce_of(input) == reduce ? made.at(behind_views(input)) : epilogue.input(static_cast<std::uint16_t>(results + number_of(further, input))));
        continue;
      }
      const int n = operands_of(f.op);
      if (n > 0) f.a = renamed[f.a];
      if (n > 1) f.b = renamed[f.b];
      if (n > 2) f.c = renamed[f.c];
      renamed.push_back(epilogue.append(f));
    }
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o) made[{member, o}] = renamed[expression.outputs[o]];
  }
  static std::size_t number_of(std::vector<Value>& further, Value input) {
    auto found = std::find(further.begin(), further.end(), input);
    if (found == further.end()) found = further.insert(found, input);
    return static_cast<std::size_t>(found - further.begin());
  }

  // Whether a node outside of the epilogue, or the step itself, reads the value or a view of it.
  bool is_used(Value value, std::uint32_t reduce) const {
    const auto& results = graph_.results();
    if (std::find(results.begin(), results.end(), value) != results.end()) return true;
    return std::any_of(users_[value.node].begin(), users_[value.node].end(), [&](std::uint32_t user) {
      const auto& inputs = graph_.node(user).inputs;
      if (reduce_of_[user] == reduce || std::find(inputs.begin(), inputs.end(), value) == inputs.end()) return false;
      return !is_view(user) || is_used({user, 0}, reduce);
    });
  }
  bool is_unused_view(std::uint32_t index) const {
    if (!is_view(index)) return false;
    const auto reduce = reduce_of({index, 0});
    return reduce && !members_[*reduce].empty() && !is_used({index, 0}, *reduce);
  }

  const Graph& graph_;
  const std::vector<bool>& uniform_;
  std::vector<std::uint32_t> segment_;
  Rewriter rewriter_;
  std::vector<std::vector<std::uint32_t>> users_;
  std::vector<std::uint32_t> reduce_of_;             // by node: the reduction in whose epilogue it is
  std::vector<std::vector<std::uint32_t>> members_;  // by node: of a reduction's epilogue
  std::vector<bool> emitted_;
  std::vector<std::vector<Value>> origins_;
};

}  // namespace detail

// For graphs that went through merge_reduces(). Nodes of different segments (by node, see find_segments) are not joined, nor are
// `uniform` ones (by node). Without segments, they are those of this graph alone.
inline TracedBack fuse_reduces(const Graph& graph, const std::vector<bool>& uniform = {}, std::span<const std::uint32_t> segments = {}) {
  return detail::ReduceFusion{graph, uniform, segments}.run();
}

}  // namespace replicator::detail::passes
