// SPDX-License-Identifier: Apache-2.0
// A pass that joins Maps and Reduces over the same rows to nodes of Rows. It changes no bits. A set of nodes can be one node if no
// node outside it both needs one of its results and is needed by it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/passes/rows_options.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/graph/rows.hpp>
#include <replicator/graph/segments_of.hpp>

namespace replicator::detail::passes {

namespace detail {

// A set of nodes over the same rows.
struct RowsGroup {
  static constexpr std::size_t most_members = 64;
  static constexpr std::int64_t most_columns = 1 << 15;  // some rows have to fit into the cache

  Shape domain;
  std::size_t row_axes = 0;  // the first axes count rows, the others are a row
  std::int64_t rows = 1, columns = 1;
  DType compute = DType::float32;
  std::vector<std::uint32_t> members = {};  // ascending

  // What a value of this shape has an element for, where a step over all elements reads it. Nothing if it is broadcast otherwise.
  std::optional<RowsExtent> extent(const Shape& shape) const {
    if (shape.elements() == 1) return RowsExtent::scalar;
    if (shape.rank() > domain.rank()) return std::nullopt;
    const std::size_t missing = domain.rank() - shape.rank();
    bool has[] = {true, true}, lacks[] = {true, true};  // all extents of the rows' axes, of the axes of a row
    for (std::size_t axis = 0; axis < domain.rank(); ++axis) {
      const auto of = axis < missing ? 1 : shape[axis - missing];
      const std::size_t part = axis < row_axes ? 0 : 1;
      has[part] = has[part] && of == domain[axis];
      lacks[part] = lacks[part] && of == 1;
    }
    if (has[0] && has[1]) return RowsExtent::full;
    if (has[0] && lacks[1]) return RowsExtent::row;
    if (lacks[0] && has[1]) return RowsExtent::column;
    return std::nullopt;
  }
  // The same for a step over one element of each row.
  std::optional<RowsExtent> extent_in_rows(const Shape& shape) const {
    return shape.elements() == 1 ? std::optional{RowsExtent::scalar} : shape.elements() == rows ? std::optional{RowsExtent::row}
                                                                                                : std::nullopt;
  }
};

class RowsFusion {
 public:
  RowsFusion(const Graph& graph, const RowsOptions& options, const std::vector<bool>& uniform, std::span<const std::uint32_t> segments)
      : graph_{graph},
        options_{options},
        uniform_{uniform},
        rewriter_{graph},
        users_{users_of(graph)},
        group_of_(size(), none),
        segment_{segments.empty() ? segments_of(graph) : std::vector(segments.begin(), segments.end())},
        kept_(size()),
        seen_(size()) {
    for (const auto result : graph.results()) kept_[result.node] = true;
    for (std::uint32_t i = 0; i < size(); ++i) place(i);
    for (std::uint32_t i = size(); i-- > 0;) place_producer(i);
    for (std::uint32_t g = 0; g < groups_.size(); ++g) drop_small(g);
  }

  TracedBack run() && {
    emitted_.resize(size());
    for (std::uint32_t i = 0; i < size(); ++i)
      if (group_of_[i] == none || groups_[group_of_[i]].members.back() == i) emit(i);
    return {std::move(rewriter_).finish(), std::move(origins_)};
  }

 private:
  static constexpr std::uint32_t none = ~0u;
  using What = Rows::Step::What;

  std::uint32_t size() const { return static_cast<std::uint32_t>(graph_.nodes().size()); }

  // --- which nodes belong together -----------------------------------------------------------------------------------
  // Puts a node into the groups around it, which become one; or a reduction into a group of its own.
  void place(std::uint32_t index) {
    if (!graph_.node(index).get<Compute>()) return;
    const auto around = groups_around(index);
    if (around.size() > 1 && join(index, around)) return;
    for (const auto g : around)
      if (join(index, {g})) return;
    if (auto group = group_of_reduction(index)) {
      group_of_[index] = static_cast<std::uint32_t>(groups_.size());
      groups_.push_back(std::move(*group));
    }
  }
  // Puts a node that has no group into that of its users.
  void place_producer(std::uint32_t index) {
    if (group_of_[index] != none || kept_[index] || users_[index].empty() || !operation_of<Map>(graph_.node(index))) return;
    const auto g = group_of_[users_[index].front()];
    const auto inside = [&](std::uint32_t user) { return group_of_[user] == g; };
    if (g != none && std::all_of(users_[index].begin(), users_[index].end(), inside) && graph_.type({index, 0}).shape == groups_[g].domain) join(index, {g});
  }
  // The groups that make an input of the node, or read an input of it that has an element for all of theirs. The newest comes first.
  std::vector<std::uint32_t> groups_around(std::uint32_t index) const {
    constexpr std::size_t most_users = 64;
    std::set<std::uint32_t, std::greater<>> found;
    for (const auto input : graph_.node(index).inputs) {
      if (group_of_[input.node] != none) found.insert(group_of_[input.node]);
      if (users_[input.node].size() > most_users) continue;
      const auto& shape = graph_.type(input).shape;
      for (const auto user : users_[input.node])
        if (group_of_[user] != none && groups_[group_of_[user]].domain == shape) found.insert(group_of_[user]);
    }
    return {found.begin(), found.end()};
  }
  std::optional<RowsGroup> group_of_reduction(std::uint32_t index) const {
    const auto* reduce = operation_of<Reduce>(graph_.node(index));
    if (!reduce || reduce->axes.empty() || !is_floating(reduce->expression->compute)) return std::nullopt;
    const auto& domain = reduce->domain;
    RowsGroup group{domain, domain.rank() - reduce->axes.size()};
    group.compute = reduce->expression->compute;
    for (std::size_t axis = 0; axis < domain.rank(); ++axis) (axis < group.row_axes ? group.rows : group.columns) *= domain[axis];
    if (group.rows < 2 || group.columns < 2 || group.columns > RowsGroup::most_columns) return std::nullopt;
    if (domain.rank() == 4 && group.row_axes < 3) return std::nullopt;  // images, which may lie in layouts of convolutions
    if (step_of(index, group) != What::reduce_row) return std::nullopt;
    group.members = {index};
    return group;
  }

  // What the node is as a step of the group. Nothing where it cannot be one.
  std::optional<What> step_of(std::uint32_t index, const RowsGroup& group) const {
    const auto& node = graph_.node(index);
    const auto what = kind_of(node, group);
    if (!what) return std::nullopt;
    for (const auto input : node.inputs) {
      const auto& type = graph_.type(input);
      const auto extent = *what == What::map_rows ? group.extent_in_rows(type.shape) : group.extent(type.shape);
      if (!extent) return std::nullopt;
      if (!made_by(input, group)) continue;
      const bool finished = *extent != RowsExtent::column;  // a column is only known after the last row
      if (!finished || *extent != made_extent(input.node, group) || type.dtype != group.compute) return std::nullopt;
    }
    return what;
  }
  std::optional<What> kind_of(const Node& node, const RowsGroup& group) const {
    if (const auto* map = operation_of<Map>(node)) {
      if (node.inputs.empty() || map->expression->compute != group.compute) return std::nullopt;
      if (map->domain == group.domain) return What::map;
      return map->domain.elements() == group.rows && keeps_type(map->dtypes, group) ? std::optional{What::map_rows} : std::nullopt;
    }
    const auto* reduce = operation_of<Reduce>(node);
    if (!reduce || reduce->expression->compute != group.compute || !(reduce->domain == group.domain) || !keeps_type(reduce->dtypes, group)) return std::nullopt;
    const auto first = static_cast<std::size_t>(reduce->axes.empty() ? 0 : reduce->axes.front());
    const auto last = static_cast<std::size_t>(reduce->axes.empty() ? 0 : reduce->axes.back());
    if (reduce->axes.size() == group.domain.rank() - group.row_axes && first == group.row_axes) return What::reduce_row;
    if (options_.column_sums && reduce->axes.size() == group.row_axes && last + 1 == group.row_axes) return What::reduce_column;
    return std::nullopt;
  }
  static bool keeps_type(const std::vector<DType>& dtypes, const RowsGroup& group) {
    return std::all_of(dtypes.begin(), dtypes.end(), [&](DType dtype) { return dtype == group.compute; });
  }
  // A view of a value with an element for each row.
  bool is_view(std::uint32_t index, const RowsGroup& group) const {
    const auto& node = graph_.node(index);
    return (operation_of<Reshape>(node) || operation_of<StopGradient>(node)) && made_by(node.inputs[0], group) && made_extent(node.inputs[0].node, group) == RowsExtent::row;
  }
  bool made_by(Value value, const RowsGroup& group) const { return std::binary_search(group.members.begin(), group.members.end(), value.node); }
  RowsExtent made_extent(std::uint32_t member, const RowsGroup& group) const {
    const auto& node = graph_.node(member);
    if (const auto* map = operation_of<Map>(node)) return map->domain == group.domain ? RowsExtent::full : RowsExtent::row;
    const auto* reduce = operation_of<Reduce>(node);
    return reduce && static_cast<std::size_t>(reduce->axes.front()) < group.row_axes ? RowsExtent::column : RowsExtent::row;
  }

  // Joins the groups and the node to the first of them, if they fit together.
  bool join(std::uint32_t index, const std::vector<std::uint32_t>& groups) {
    RowsGroup& first = groups_[groups.front()];
    RowsGroup joined = first;
    for (std::size_t i = 1; i < groups.size(); ++i) {
      const RowsGroup& other = groups_[groups[i]];
      if (!(other.domain == first.domain) || other.row_axes != first.row_axes || other.compute != first.compute || !alike(other.members.front(), first.members.front())) return false;
      joined.members.insert(joined.members.end(), other.members.begin(), other.members.end());
    }
    std::sort(joined.members.begin(), joined.members.end());
    if (!alike(index, first.members.front())) return false;
    joined.members.insert(std::upper_bound(joined.members.begin(), joined.members.end(), index), index);
    const auto belongs = [&](std::uint32_t member) { return step_of(member, joined) || is_view(member, joined); };
    if (!std::all_of(joined.members.begin(), joined.members.end(), belongs)) return false;  // what came from outside may now come from a member
    if (joined.members.size() > RowsGroup::most_members || recomputes_early(joined) || leaves_and_returns(joined, groups)) return false;
    first = std::move(joined);
    for (const auto member : first.members) group_of_[member] = groups.front();
    for (std::size_t i = 1; i < groups.size(); ++i) groups_[groups[i]].members.clear();
    return true;
  }
  // Nodes of one segment, so that none waits for more than it needs.
  bool alike(std::uint32_t a, std::uint32_t b) const {
    return segment_[a] == segment_[b] && graph_.node(a).device == graph_.node(b).device && (uniform_.empty() || uniform_[a] == uniform_[b]);
  }
  // Whether the group would compute a value again before that is due. Such a value would be kept until then.
  bool recomputes_early(const RowsGroup& group) const {
    std::uint32_t first = ~0u, again = 0;
    for (const auto member : group.members) {
      const auto& marks = graph_.node(member).marks;
      first = std::min(first, marks.order);
      if (marks.again) again = std::max(again, marks.order);
    }
    return again > first;
  }
  // Whether a node outside needs a result of the group and is needed by it. The other groups count as one node each.
  bool leaves_and_returns(const RowsGroup& group, const std::vector<std::uint32_t>& joined) {
    const auto earliest = earliest_on_a_way(group.members.front());
    ++stamp_;
    std::vector<std::uint32_t> due;
    bool returns = false;
    const auto inside = [&](std::uint32_t node) { return std::binary_search(group.members.begin(), group.members.end(), node); };
    const auto visit = [&](std::uint32_t node, bool outside) {
      for (const auto input : graph_.node(node).inputs) {
        if (inside(input.node)) returns |= outside;
        else if (input.node >= earliest && seen_[input.node] != stamp_) seen_[input.node] = stamp_, due.push_back(input.node);
      }
    };
    for (const auto member : group.members) visit(member, false);
    while (!due.empty() && !returns) {
      const auto node = due.back();
      due.pop_back();
      const auto g = group_of_[node];
      if (g == none || std::find(joined.begin(), joined.end(), g) != joined.end()) visit(node, true);
      else
        for (const auto member : groups_[g].members) visit(member, true), seen_[member] = stamp_;
    }
    return returns;
  }
  // The first node that a way from `first` back to itself may pass. Groups that begin before `first` and end behind it count as a whole.
  std::uint32_t earliest_on_a_way(std::uint32_t first) const {
    for (auto before = first + 1; before != first;) {
      before = first;
      for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)  // the newest first: a chain of groups takes few rounds
        if (!group->members.empty() && group->members.back() > first) first = std::min(first, group->members.front());
    }
    return first;
  }
  // One pass over the elements gains nothing.
  void drop_small(std::uint32_t g) {
    const auto over_all = [&](std::uint32_t member) {
      const auto* map = operation_of<Map>(graph_.node(member));
      return operation_of<Reduce>(graph_.node(member)) || (map && map->domain == groups_[g].domain);
    };
    if (std::count_if(groups_[g].members.begin(), groups_[g].members.end(), over_all) >= 2) return;
    for (const auto member : groups_[g].members) group_of_[member] = none;
  }

  // --- the new graph -------------------------------------------------------------------------------------------------
  // Emits a node or a group after its inputs. They may lie deep, so this keeps an explicit stack of due nodes.
  void emit(std::uint32_t index) {
    std::vector<std::uint32_t> due{index};
    while (!due.empty()) {
      const auto next = due.back();
      const auto waiting = due.size();
      if (!emitted_[next])
        for (const auto member : members_of(next)) {
          const auto& inputs = graph_.node(member).inputs;
          for (auto input = inputs.rbegin(); input != inputs.rend(); ++input)
            if (!emitted_[input->node] && (group_of_[next] == none || group_of_[input->node] != group_of_[next])) due.push_back(input->node);
        }
      if (due.size() > waiting) continue;
      due.pop_back();
      if (emitted_[next]) continue;
      for (const auto member : members_of(next)) emitted_[member] = true;
      if (group_of_[next] == none) emit_node(next);
      else emit_group(groups_[group_of_[next]]);
    }
  }
  std::vector<std::uint32_t> members_of(std::uint32_t node) const {
    return group_of_[node] == none ? std::vector{node} : groups_[group_of_[node]].members;
  }
  void emit_node(std::uint32_t index) {
    rewriter_.copy(index);
    origins_.push_back(values_of(graph_, index));
  }

  void emit_group(const RowsGroup& group) {
    const auto& first = graph_.node(group.members.front());
    Rows rows{group.rows, group.columns};
    std::vector<std::pair<Value, RowsExtent>> inputs;
    for (const auto member : group.members)
      if (!is_view(member, group)) collect_inputs(member, group, inputs);
    Node node{first.what, {}, {}, first.where, first.label, first.device, first.marks};
    for (const auto& [value, extent] : inputs) node.inputs.push_back(rewriter_(value)), rows.inputs.push_back(extent);
    std::map<Value, std::uint32_t> numbers;
    auto next = static_cast<std::uint32_t>(inputs.size());
    for (const auto member : group.members) {
      if (is_view(member, group)) {
        numbers[{member, 0}] = numbers.at(graph_.node(member).inputs[0]);
        continue;
      }
      rows.steps.push_back(step(member, group, inputs, numbers));
      for (std::uint32_t o = 0; o < graph_.node(member).outputs.size(); ++o) numbers[{member, o}] = next++;
    }
    auto& origins = origins_.emplace_back();
    std::map<std::uint32_t, std::vector<Value>> replaced;
    for (const auto member : group.members)
      for (std::uint32_t o = 0; o < graph_.node(member).outputs.size(); ++o) {
        auto& values = replaced[member];
        values.push_back({0, static_cast<std::uint32_t>(rows.outputs.size())});
        if (!used_outside({member, o}, group)) continue;
        rows.outputs.push_back(numbers.at({member, o}));
        rows.shapes.push_back(graph_.type({member, o}).shape);
        rows.dtypes.push_back(graph_.type({member, o}).dtype);
        node.outputs.push_back(graph_.type({member, o}));
        node.output_lines.push_back(graph_.node(member).line_of(o));
        origins.push_back({member, o});
      }
    node.what = Compute{std::move(rows)};
    const auto made = rewriter_.to().add(std::move(node));
    for (auto& [member, values] : replaced) {
      for (auto& value : values) value.node = made;
      rewriter_.replace(member, std::move(values));
    }
  }
  std::optional<RowsExtent> read_extent(std::uint32_t member, Value input, const RowsGroup& group) const {
    const auto& shape = graph_.type(input).shape;
    return *kind_of(graph_.node(member), group) == What::map_rows ? group.extent_in_rows(shape) : group.extent(shape);
  }
  void collect_inputs(std::uint32_t member, const RowsGroup& group, std::vector<std::pair<Value, RowsExtent>>& inputs) const {
    for (const auto input : graph_.node(member).inputs) {
      const std::pair read{input, *read_extent(member, input, group)};
      if (!made_by(input, group) && std::find(inputs.begin(), inputs.end(), read) == inputs.end()) inputs.push_back(read);
    }
  }
  Rows::Step step(std::uint32_t member, const RowsGroup& group, const std::vector<std::pair<Value, RowsExtent>>& inputs, const std::map<Value, std::uint32_t>& numbers) const {
    const auto& node = graph_.node(member);
    Rows::Step result{*kind_of(node, group)};
    const auto* reduce = operation_of<Reduce>(node);
    result.expression = reduce ? reduce->expression : operation_of<Map>(node)->expression;
    result.dtypes = reduce ? reduce->dtypes : operation_of<Map>(node)->dtypes;
    if (reduce) result.kind = reduce->kind;
    for (const auto input : node.inputs) {
      if (made_by(input, group)) result.operands.push_back(numbers.at(input));
      else result.operands.push_back(static_cast<std::uint32_t>(std::find(inputs.begin(), inputs.end(), std::pair{input, *read_extent(member, input, group)}) - inputs.begin()));
    }
    return result;
  }
  bool used_outside(Value value, const RowsGroup& group) const {
    for (const auto result : graph_.results())
      if (result == value) return true;
    for (const auto user : users_[value.node])
      if (!std::binary_search(group.members.begin(), group.members.end(), user))
        for (const auto input : graph_.node(user).inputs)
          if (input == value) return true;
    return false;
  }

  const Graph& graph_;
  const RowsOptions& options_;
  const std::vector<bool>& uniform_;
  Rewriter rewriter_;
  std::vector<std::vector<std::uint32_t>> users_;
  std::vector<RowsGroup> groups_;  // without members where it was joined to another one
  std::vector<std::uint32_t> group_of_;
  std::vector<std::uint32_t> segment_;
  std::vector<bool> kept_;
  std::vector<std::uint32_t> seen_;  // by node: the last search that met it
  std::uint32_t stamp_ = 0;
  std::vector<bool> emitted_;
  std::vector<std::vector<Value>> origins_;
};

}  // namespace detail

// For graphs that went through merge_reduces(). Nodes with different `uniform` (by node), or of different segments (by node, see
// find_segments), are not joined. Without segments, they are those of this graph alone.
inline TracedBack fuse_rows(const Graph& graph, const RowsOptions& options, const std::vector<bool>& uniform = {}, std::span<const std::uint32_t> segments = {}) {
  return detail::RowsFusion{graph, options, uniform, segments}.run();
}

}  // namespace replicator::detail::passes
