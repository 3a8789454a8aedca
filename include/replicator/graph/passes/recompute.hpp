// SPDX-License-Identifier: Apache-2.0
// Recomputation to save memory: forward values that the backward pass can compute again are not kept for it. Their
// computation is added a second time right before the later use. Fusion inlines it into elementwise users, which then read
// its inputs instead. The operations and values are the same, so the bits are too.
//
// - By default the pass recomputes only cheap values. They are elementwise, without exponentials and the like, and come
//   from tensors that are needed at least as long anyway. Example: batch norm + ReLU from the convolution's output.
// - Inside rp::recompute it recomputes everything except collectives and small results of reductions.
//
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/passes/dead_code.hpp>
#include <replicator/graph/passes/fuse.hpp>
#include <replicator/graph/passes/recompute_options.hpp>
#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

namespace detail {

// An input is always kept if it is at least this many times smaller than the value computed from it.
inline constexpr std::int64_t small_part = 16;

class Recomputation {
 public:
  Recomputation(const Graph& graph, const RecomputeOptions& options)
      : graph_{graph}, options_{options}, rewriter_{graph}, fates_(graph.nodes().size()), users_{users_of(graph)} {
    for (const auto result : graph.results()) fates_[result.node].is_result = true;
    for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) decide(i);
  }

  Graph run() && {
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) {
      Node node = rewriter_.renewed(i);
      for (std::size_t k = 0; k < node.inputs.size(); ++k) node.inputs[k] = operand(graph_.node(i).inputs[k], i);
      rewriter_.replace(i, rewriter_.to().add(std::move(node)));
    }
    return std::move(rewriter_).finish();
  }

 private:
  static constexpr std::uint32_t always = std::numeric_limits<std::uint32_t>::max();

  struct Fate {
    bool is_result = false;
    bool late = false;         // a derivative of a higher order uses it
    std::uint32_t until = 0;   // index of its last such use
    bool elementwise = false;  // can be recomputed from `sources`, which are needed as long
    bool again = false;        // is recomputed for late users
    std::set<Value> sources;   // large inputs; incomplete once there are too many
    std::size_t small_inputs = 0, instructions = 0;
  };

  std::uint32_t order(std::uint32_t i) const { return graph_.node(i).marks.order; }
  std::int64_t bytes(Value value) const { return static_cast<std::int64_t>(graph_.type(value).bytes()); }

  void decide(std::uint32_t index) {
    const auto& node = graph_.node(index);
    auto& fate = fates_[index];
    for (const auto user : users_[index])
      if (order(user) > order(index)) fate.late = true, fate.until = std::max(fate.until, user);
    const auto* compute = node.get<Compute>();
    if (!compute) {
      fate.until = node.get<Assign>() ? 0 : always;  // its memory exists all the time anyway
      return;
    }
    if (fate.is_result) fate.until = always;
    find_sources(index, fate);
    const bool worth = fate.late && !fate.is_result && bytes({index, 0}) >= options_.smallest;
    fate.again = worth && (inner(index) || (cheap(fate) && sources_stay(fate)));
  }

  // For an elementwise node: collects the large values that it can be computed from at its last use.
  void find_sources(std::uint32_t index, Fate& fate) const {
    const auto& node = graph_.node(index);
    const auto* map = operation_of<Map>(node);
    if (!map || map->dtypes.size() != 1 || map->dtypes[0] != map->expression->compute) return;
    if (std::any_of(map->expression->code.begin(), map->expression->code.end(), [](const auto& f) { return expensive(f.op); })) return;
    fate.elementwise = true;
    fate.instructions = map->expression->code.size();
    for (const auto input : node.inputs) {
      if (!small(fate)) return;  // neither it nor what is computed from it can become small again; so long chains cost no more than their length
      const auto& from = fates_[input.node];
      if (bytes(input) * small_part <= bytes({index, 0})) {
        ++fate.small_inputs;
      } else if (from.elementwise && (from.again ? cheap(from) : !from.late) && !from.is_result && same_domain(index, input.node)) {
        for (auto source = from.sources.begin(); source != from.sources.end() && small(fate); ++source) fate.sources.insert(*source);
        fate.small_inputs += from.small_inputs;
        fate.instructions += from.instructions;
      } else {
        fate.sources.insert(input);
      }
    }
  }
  bool same_domain(std::uint32_t a, std::uint32_t b) const {
    const auto* x = operation_of<Map>(graph_.node(a));
    const auto* y = operation_of<Map>(graph_.node(b));
    return x->domain == y->domain && x->expression->compute == y->expression->compute;
  }
  // Whether fusion could make one node of it that reads few large values.
  bool small(const Fate& fate) const {
    return fate.sources.size() <= options_.most_large_inputs && fate.instructions <= largest_fused_expression &&
           fate.sources.size() + fate.small_inputs <= most_fused_inputs;
  }
  bool cheap(const Fate& fate) const {
    if (!fate.elementwise || !small(fate)) return false;
    return std::all_of(fate.sources.begin(), fate.sources.end(), [&](Value source) { return fates_[source.node].until >= fate.until; });
  }

  // A region's recomputed values exist only from its own derivatives on. An earlier use would compute and keep them too
  // early; in a chain of regions, all of them.
  bool sources_stay(const Fate& fate) const {
    return std::none_of(fate.sources.begin(), fate.sources.end(),
                        [&](Value source) { return fates_[source.node].again && graph_.node(source).marks.region != 0; });
  }

  // Whether it belongs to a region, and only that region's nodes use it before the derivatives.
  bool inner(std::uint32_t index) const {
    const auto& node = graph_.node(index);
    if (node.marks.region == 0 || small_result(index)) return false;
    if (node.get<Compute>() && node.get<Compute>()->operation.effect()) return false;  // an effect happens once
    return std::all_of(users_[index].begin(), users_[index].end(),
                       [&](auto user) { return order(user) > order(index) || graph_.node(user).marks.region == node.marks.region; });
  }
  bool small_result(std::uint32_t index) const {
    const auto& node = graph_.node(index);
    if (!operation_of<Reduce>(node)) return false;
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](Value input) { return bytes({index, 0}) * small_part <= bytes(input); });
  }

  // The value that `user` reads in place of `value`.
  Value operand(Value value, std::uint32_t user) {
    const bool late = order(user) > order(value.node);
    if (!late || !fates_[value.node].again) return rewriter_(value);
    if (cheap(fates_[value.node]) && takes_in(user, value.node)) {
      Copies own;
      return {copy(value.node, user, own), value.output};
    }
    return {copy(value.node, user, stored_[order(user)]), value.output};
  }
  // Whether fusion will make one node of the two.
  bool takes_in(std::uint32_t user, std::uint32_t index) const {
    const auto& map = *operation_of<Map>(graph_.node(index));
    const auto fits = [&](const auto* other) {
      return other && other->domain == map.domain && other->expression->compute == map.expression->compute;
    };
    return fits(operation_of<Map>(graph_.node(user))) || fits(operation_of<Reduce>(graph_.node(user)));
  }
  using Copies = std::map<std::uint32_t, std::uint32_t>;  // old node -> its copy

  // Adds the node again, for `user` and others that share `made`. Regions may be of any length, so this keeps an explicit
  // stack of due nodes instead of recursing.
  std::uint32_t copy(std::uint32_t index, std::uint32_t user, Copies& made) {
    std::vector<std::pair<std::uint32_t, Copies*>> due{{index, &made}};
    while (!due.empty()) {
      const auto [next, into] = due.back();
      const auto waiting = due.size();
      if (!into->contains(next)) push_inputs(next, user, *into, due);
      if (due.size() > waiting) continue;
      due.pop_back();
      if (!into->contains(next)) into->emplace(next, add_copy(next, user, *into));
    }
    return made.at(index);
  }
  // Pushes the inputs that are to be copied and are not copied yet; the first one ends on top.
  void push_inputs(std::uint32_t of, std::uint32_t user, Copies& made, std::vector<std::pair<std::uint32_t, Copies*>>& due) {
    const auto& inputs = graph_.node(of).inputs;
    for (auto input = inputs.rbegin(); input != inputs.rend(); ++input)
      if (auto* copies = copies_with(*input, of, user, made); copies && !copies->contains(input->node)) due.emplace_back(input->node, copies);
  }
  std::uint32_t add_copy(std::uint32_t index, std::uint32_t user, Copies& made) {
    Node node = graph_.node(index);
    node.marks.order = order(user);
    node.marks.again = true;
    for (auto& input : node.inputs) {
      const auto* copies = copies_with(input, index, user, made);
      input = copies ? Value{copies->at(input.node), input.output} : rewriter_(input);
    }
    return rewriter_.to().add(std::move(node));
  }
  // The copies among which a copy of `of` finds this input; null where it reads the kept value.
  Copies* copies_with(Value input, std::uint32_t of, std::uint32_t user, Copies& made) {
    const auto& from = fates_[input.node];
    const bool cheap_part = cheap(fates_[of]) && !fates_[of].sources.contains(input) && bytes(input) * small_part > bytes({of, 0});
    if (cheap_part) return &made;
    // The value is gone: it is not kept, or only nodes inside its rp::recompute region used it.
    const bool gone = from.again || (!from.late && graph_.node(input.node).get<Compute>() && inner(input.node));
    return gone ? &stored_[order(user)] : nullptr;
  }

  const Graph& graph_;
  RecomputeOptions options_;
  Rewriter rewriter_;
  std::vector<Fate> fates_;
  std::vector<std::vector<std::uint32_t>> users_;
  std::map<std::uint32_t, Copies> stored_;  // by order of the users
};

}  // namespace detail

// Run it after differentiation, and after merging common subexpressions, which would undo it.
inline Graph recompute(const Graph& graph, const RecomputeOptions& options = {}) {
  return remove_dead_code(detail::Recomputation{graph, options}.run());
}

}  // namespace replicator::detail::passes
