// SPDX-License-Identifier: Apache-2.0
// Less memory: values of a forward pass that the backward pass can compute again are not kept for it. What computes them is
// put a second time right before the later use; fusion takes it into elementwise users, so that these read the tensor it
// is computed from instead. The same operations on the same values: the same bits.
//
// By itself the pass does so with what is cheap: elementwise values without exponentials and the like, computed from tensors
// that are needed at least as long anyway (batch norm + ReLU: from the convolution's output). Inside of rp::recompute it
// does so with everything but collectives and the small results of reductions.
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
#include <replicator/graph/rewrite.hpp>

namespace replicator::detail::passes {

struct RecomputeOptions {
  std::int64_t smallest = 64 << 10;   // bytes of a value that is worth it
  std::size_t most_large_inputs = 1;  // that a cheap value is computed from
};

namespace detail {

// An input this many times smaller than what is computed from it is kept without a second thought.
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
    bool late = false;         // a derivative of a higher order uses it,
    std::uint32_t until = 0;   // the last time here
    bool elementwise = false;  // can be computed again from `sources`, which are needed as long
    bool again = false;        // is computed again for late users
    std::set<Value> sources;   // large ones; of what is not `small` as many as show it
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
      fate.until = node.get<Assign>() ? 0 : always;  // memory that is there all the time
      return;
    }
    if (fate.is_result) fate.until = always;
    find_sources(index, fate);
    const bool worth = fate.late && !fate.is_result && bytes({index, 0}) >= options_.smallest;
    fate.again = worth && (inner(index) || (cheap(fate) && sources_stay(fate)));
  }

  // Elementwise: from which large values it can be computed when it is needed for the last time.
  void find_sources(std::uint32_t index, Fate& fate) const {
    const auto& node = graph_.node(index);
    const auto* map = operation_of<Map>(node);
    if (!map || map->dtypes.size() != 1 || map->dtypes[0] != map->expression->compute) return;
    if (std::any_of(map->expression->code.begin(), map->expression->code.end(), [](const auto& f) { return expensive(f.op); })) return;
    fate.elementwise = true;
    fate.instructions = map->expression->code.size();
    for (const auto input : node.inputs) {
      if (!small(fate)) return;  // nor will it be, nor what is computed from it: so chains are no longer work than their length
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
  // Fusion could make it one node that reads few large values.
  bool small(const Fate& fate) const {
    return fate.sources.size() <= options_.most_large_inputs && fate.instructions <= largest_fused_expression &&
           fate.sources.size() + fate.small_inputs <= most_fused_inputs;
  }
  bool cheap(const Fate& fate) const {
    if (!fate.elementwise || !small(fate)) return false;
    return std::all_of(fate.sources.begin(), fate.sources.end(), [&](Value source) { return fates_[source.node].until >= fate.until; });
  }

  // What a region computes again is there from its own derivatives on only: for a use before those it would be computed, and
  // kept, too early; of a chain of regions all would be.
  bool sources_stay(const Fate& fate) const {
    return std::none_of(fate.sources.begin(), fate.sources.end(),
                        [&](Value source) { return fates_[source.node].again && graph_.node(source).marks.region != 0; });
  }

  // Of a region, and only its own nodes use it before the derivatives.
  bool inner(std::uint32_t index) const {
    const auto& node = graph_.node(index);
    if (node.marks.region == 0 || small_result(index)) return false;
    if (node.get<Compute>() && node.get<Compute>()->operation.effect()) return false;  // happens once
    return std::all_of(users_[index].begin(), users_[index].end(),
                       [&](auto user) { return order(user) > order(index) || graph_.node(user).marks.region == node.marks.region; });
  }
  bool small_result(std::uint32_t index) const {
    const auto& node = graph_.node(index);
    if (!operation_of<Reduce>(node)) return false;
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](Value input) { return bytes({index, 0}) * small_part <= bytes(input); });
  }

  // What stands for the value where `user` reads it.
  Value operand(Value value, std::uint32_t user) {
    const bool late = order(user) > order(value.node);
    if (!late || !fates_[value.node].again) return rewriter_(value);
    if (cheap(fates_[value.node]) && takes_in(user, value.node)) {
      Copies own;
      return {copy(value.node, user, own), value.output};
    }
    return {copy(value.node, user, stored_[order(user)]), value.output};
  }
  // Fusion will make one node of the two.
  bool takes_in(std::uint32_t user, std::uint32_t index) const {
    const auto& map = *operation_of<Map>(graph_.node(index));
    const auto fits = [&](const auto* other) {
      return other && other->domain == map.domain && other->expression->compute == map.expression->compute;
    };
    return fits(operation_of<Map>(graph_.node(user))) || fits(operation_of<Reduce>(graph_.node(user)));
  }
  using Copies = std::map<std::uint32_t, std::uint32_t>;  // old node -> its copy

  // Once more, for `user` and those that share `made`. Regions may be of any length: the nodes that are due are a stack here, and not
  // on the thread's.
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
  // Those that are to be copied and are not yet; the first one on top.
  void push_inputs(std::uint32_t of, std::uint32_t user, Copies& made, std::vector<std::pair<std::uint32_t, Copies*>>& due) {
    const auto& inputs = graph_.node(of).inputs;
    for (auto input = inputs.rbegin(); input != inputs.rend(); ++input)
      if (auto* copies = copies_with(*input, of, user, made); copies && !copies->contains(input->node)) due.emplace_back(input->node, copies);
  }
  std::uint32_t add_copy(std::uint32_t index, std::uint32_t user, Copies& made) {
    Node node = graph_.node(index);
    node.marks.order = order(user);
    for (auto& input : node.inputs) {
      const auto* copies = copies_with(input, index, user, made);
      input = copies ? Value{copies->at(input.node), input.output} : rewriter_(input);
    }
    return rewriter_.to().add(std::move(node));
  }
  // Among which copies the one is that a copy of `of` reads in place of its input; null where it reads what is kept.
  Copies* copies_with(Value input, std::uint32_t of, std::uint32_t user, Copies& made) {
    const auto& from = fates_[input.node];
    const bool cheap_part = cheap(fates_[of]) && !fates_[of].sources.contains(input) && bytes(input) * small_part > bytes({of, 0});
    if (cheap_part) return &made;
    // What is not kept, or, of a region, not there any more.
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

// After differentiation, and after common subexpressions were merged: that would undo it.
inline Graph recompute(const Graph& graph, const RecomputeOptions& options = {}) {
  return remove_dead_code(detail::Recomputation{graph, options}.run());
}

}  // namespace replicator::detail::passes
