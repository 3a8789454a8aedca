// SPDX-License-Identifier: Apache-2.0
// Third part of the proof of a schedule: a symbolic replay in one order, with terms in place of values. It requires:
// - Every read comes after the one write that it sees, in every order.
// - Every write comes after all reads and writes of the value that it replaces. So all other orders give the same values.
// - A reduce makes a node of T from its two children; with `any_order` it joins disjoint sets of replicas.
// - A chunk stays the same chunk.
// - Only the root is marked `root`.
// - In the end every chunk of every output holds what the kind of collective promises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <replicator/collectives/check/check_order.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// Replays a schedule on symbolic values, and checks each read and write.
class Replay {
 public:
  Replay(const Schedule& schedule, const Events& events, const Order& order)
      : s_{schedule}, events_{events}, order_{order} {}

  // The first fault found, or empty.
  std::string fault() {
    replay();
    return fault_;
  }

 private:
  // A symbolic value: the replicas that it reduces, and the chunk of their inputs.
  struct Term {
    TreeNode node;                      // deterministic: a node of T
    std::vector<std::uint64_t> leaves;  // any_order: a set of replicas
    int position = -1;
    bool root = false;
    friend bool operator==(const Term&, const Term&) = default;
  };
  struct Cell {
    Term value;
    bool defined = false;
    int writer = -1;
    std::vector<int> readers;
  };

  bool fail(const std::string& what) {
    fault_ = what;
    return false;
  }
  bool fail(int event, const std::string& what) { return fail(events_.describe(event, what)); }

  void replay() {
    for (int rank = 0; rank < s_.ranks(); ++rank) fill_inputs(rank);
    std::vector<std::vector<Term>> in_flight(static_cast<std::size_t>(events_.count()));
    for (const int e : order_.sequence()) {
      const Instruction& i = events_[e];
      std::vector<Term> values;
      if (i.action == Action::recv) {
        values = in_flight[static_cast<std::size_t>(order_.partner(e))];
      } else if (!read(e, i.left, values)) {
        return;
      }
      if (i.action == Action::send) {
        in_flight[static_cast<std::size_t>(e)] = values;
        continue;
      }
      if (i.action == Action::reduce && !reduce(e, i.right, values)) return;
      if (i.root && !mark_root(e, values)) return;
      if (!write(e, i.dst, values)) return;
    }
    check_outputs();
  }

  void fill_inputs(int rank) {
    cells_.emplace_back();
    const auto inputs = s_.inputs(rank);
    for (int index = 0; index < static_cast<int>(inputs.size()); ++index) {
      for (int chunk = 0; chunk < s_.input_blocks() * s_.chunks; ++chunk) {
        Cell& cell = cells_.back()[{Buffer::input, {index, chunk}}];
        cell.value = term(inputs[static_cast<std::size_t>(index)], chunk);
        cell.defined = true;
      }
    }
  }

  Term term(TreeNode node, int position) const {
    Term result{node, {}, position, false};
    if (s_.any_order) {
      result.node = {};
      result.leaves.assign(static_cast<std::size_t>(s_.blocks.replicas() + 63) / 64, 0);
      for (int r = node.begin; r < node.end; ++r)
        result.leaves[static_cast<std::size_t>(r) / 64] |= std::uint64_t{1} << (r % 64);
    }
    return result;
  }

  Cell& cell(const Operand& o, int k) {
    const bool scratch = o.buffer == Buffer::scratch;
    const std::pair<int, int> place{o.index + (scratch ? k : 0), scratch ? 0 : o.chunk + k};
    return cells_[static_cast<std::size_t>(o.rank)][{o.buffer, place}];
  }

  // The chunk of the inputs that belongs at chunk `o.chunk + k` of this buffer.
  int position(const Operand& o, int k) const {
    const int chunk = o.chunk + k;
    if (o.buffer != Buffer::output) return chunk;
    if (!scatters(s_.kind)) return chunk % s_.chunks;
    const int blocks_each = s_.kind == Kind::all_to_all ? s_.groups.size(0) : 1;
    const int replica = s_.blocks.begin(o.rank) + chunk / s_.chunks / blocks_each;
    return s_.groups.position(replica) * s_.chunks + chunk % s_.chunks;
  }

  bool read(int e, const Operand& o, std::vector<Term>& values) {
    for (int k = 0; k < o.count; ++k) {
      Cell& from = cell(o, k);
      if (!from.defined) return fail(e, "reads what nobody has written");
      if (from.writer >= 0 && !order_.happens_before(from.writer, e)) return fail(e, "reads what may not be written yet");
      if (from.value.position != position(o, k)) return fail(e, "reads another chunk than it says");
      from.readers.push_back(e);
      values.push_back(from.value);
    }
    return true;
  }

  bool reduce(int e, const Operand& o, std::vector<Term>& values) {
    std::vector<Term> right;
    if (!read(e, o, right)) return false;
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (values[k].position != right[k].position) return fail(e, "reduces different chunks");
      if (!(s_.any_order ? join(values[k], right[k]) : grow(values[k], right[k])))
        return fail(e, "does not make a node of the tree from its two children");
    }
    return true;
  }

  static bool grow(Term& left, const Term& right) {
    const TreeNode node{left.node.begin, right.node.end};
    if (left.node.end != right.node.begin || node.middle() != left.node.end) return false;
    left.node = node;
    return true;
  }

  static bool join(Term& left, const Term& right) {
    for (std::size_t w = 0; w < left.leaves.size(); ++w) {
      if (left.leaves[w] & right.leaves[w]) return false;
      left.leaves[w] |= right.leaves[w];
    }
    return true;
  }

  bool mark_root(int e, std::vector<Term>& values) {
    for (Term& value : values) {
      if (!reduces(s_.kind) || !is_whole(value)) return fail(e, "marks as root what is none");
      value.root = true;
    }
    return true;
  }
  bool is_whole(const Term& value) const {
    for (int group = 0; group < s_.groups.count(); ++group)
      if (value == term(tree_of(s_.groups, group), value.position)) return true;
    return false;
  }

  bool write(int e, const Operand& o, const std::vector<Term>& values) {
    if (values.size() != static_cast<std::size_t>(o.count)) return fail(e, "receives another size than was sent");
    for (int k = 0; k < o.count; ++k) {
      Cell& to = cell(o, k);
      bool ordered = to.writer < 0 || order_.happens_before(to.writer, e);
      for (const int reader : to.readers) ordered = ordered && order_.happens_before(reader, e);
      if (!ordered) return fail(e, "overwrites what may still be read or written");
      if (values[static_cast<std::size_t>(k)].position != position(o, k))
        return fail(e, "moves a chunk to the place of another");
      to = {values[static_cast<std::size_t>(k)], true, e, {}};
    }
    return true;
  }

  void check_outputs() {
    for (int rank = 0; rank < s_.ranks(); ++rank) {
      for (int chunk = 0; chunk < s_.output_blocks(rank) * s_.chunks; ++chunk) {
        const Operand o{Buffer::output, rank, 0, chunk, 1};
        Term wanted = term(result(rank, chunk / s_.chunks), position(o, 0));
        wanted.root = reduces(s_.kind);
        const Cell& found = cell(o, 0);
        if (!found.defined || found.value != wanted) {
          fail("rank " + std::to_string(rank) + ": chunk " + std::to_string(chunk) +
               " of the output is not the result");
          return;
        }
      }
    }
  }

  // The term that belongs in a block of a rank's output.
  TreeNode result(int rank, int block) const {
    const Groups& groups = s_.groups;
    const int first = s_.blocks.begin(rank), members = groups.size(0);  // of each group, where blocks are counted by members
    if (s_.kind == Kind::reduce_scatter) return tree_of(groups, groups.group_of(first + block));
    if (s_.kind == Kind::all_to_all) return leaf(groups.group_of(first + block / members), block % members);
    const bool gathers = s_.kind == Kind::all_gather;
    const int group = groups_on(s_.blocks, groups, rank)[static_cast<std::size_t>(gathers ? block / members : block)];
    if (s_.kind == Kind::all_reduce) return tree_of(groups, group);
    return leaf(group, gathers ? block % members : s_.root);
  }
  TreeNode leaf(int group, int position) const {
    const int place = s_.groups.begin(group) + position;
    return {place, place + 1};
  }

  const Schedule& s_;
  const Events& events_;
  const Order& order_;
  std::string fault_;
  std::vector<std::map<std::pair<Buffer, std::pair<int, int>>, Cell>> cells_;  // [rank]{buffer, index, chunk}
};

}  // namespace replicator::detail::collectives::detail
