// SPDX-License-Identifier: Apache-2.0
// Proves a schedule without running it, for every number of elements at once.
//
// 1. Form: operands lie in their buffers, a rank writes only its own, what an instruction does not use is left default.
// 2. Order: "happens before" is program order in a channel, `after`, and send before recv. Messages match one to one;
//    with sends that wait for their recv (no buffering at all) there is still an order in which all can run.
// 3. Replay in such an order, with terms for values: every read is ordered after the one write it sees, every write
//    after all reads and writes of what it replaces (so all other orders give the same); a reduce must make a node of T
//    from its two children (`any_order`: join disjoint sets of replicas); a chunk stays the same chunk; only the root
//    is marked `root`, once; in the end every chunk of every output holds what the kind of collective promises.
//
// Chunks are terms of their own and may be empty, so the proof holds for fewer elements than ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <replicator/collectives/schedule.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::collectives {

namespace detail {

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : s_{schedule} {}

  // Empty, or the first fault found.
  std::string fault() {
    if (check_form() && check_order()) replay();
    return fault_;
  }

 private:
  // What a value is: the replicas it reduces, and which chunk of their inputs.
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
  struct Place {
    int rank, channel, index;
  };

  bool fail(const std::string& what) {
    if (fault_.empty()) fault_ = what;
    return false;
  }
  bool fail(int event, const std::string& what) {
    const Place& at = places_[static_cast<std::size_t>(event)];
    return fail("rank " + std::to_string(at.rank) + ", channel " + std::to_string(at.channel) + ", instruction " +
                std::to_string(at.index) + ": " + what);
  }
  const Instruction& instruction(int event) const {
    const Place& at = places_[static_cast<std::size_t>(event)];
    return s_.programs[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.channel)]
                      [static_cast<std::size_t>(at.index)];
  }
  int rank_of(int event) const { return places_[static_cast<std::size_t>(event)].rank; }

  // ---- 1. form

  bool check_form() {
    const auto ranks = static_cast<std::size_t>(s_.ranks());
    if (s_.programs.size() != ranks || s_.scratch.size() != ranks) return fail("not one program for each rank");
    if (s_.chunks < 1) return fail("a block needs at least one chunk");
    if (s_.kind == Kind::broadcast && (s_.root < 0 || s_.root >= s_.blocks.replicas())) return fail("no such root");
    for (int rank = 0; rank < s_.ranks(); ++rank) {
      first_.emplace_back();
      inputs_.push_back(s_.inputs(rank));
      const auto& program = s_.programs[static_cast<std::size_t>(rank)];
      for (int channel = 0; channel < static_cast<int>(program.size()); ++channel) {
        first_.back().push_back(static_cast<int>(places_.size()));
        const int length = static_cast<int>(program[static_cast<std::size_t>(channel)].size());
        for (int index = 0; index < length; ++index) places_.push_back({rank, channel, index});
      }
    }
    for (int event = 0; event < static_cast<int>(places_.size()); ++event)
      if (!check_instruction(event)) return false;
    return true;
  }

  bool check_instruction(int event) {
    const Instruction& i = instruction(event);
    const bool local = i.action == Action::copy || i.action == Action::reduce;
    const bool writes = i.action != Action::send;
    const bool reads = i.action != Action::recv;
    const int rank = rank_of(event);
    if (writes ? !inside(i.dst) : i.dst != Operand{}) return fail(event, "a bad destination");
    if (writes && (i.dst.rank != rank || i.dst.buffer == Buffer::input))
      return fail(event, "writes what is not its rank's output or scratch");
    if (reads ? !inside(i.left) : i.left != Operand{}) return fail(event, "a bad left operand");
    if (i.action == Action::reduce ? !inside(i.right) : i.right != Operand{}) return fail(event, "a bad right operand");
    if (i.action == Action::send && i.left.rank != rank) return fail(event, "sends what is another rank's");
    if (writes && reads && i.dst.count != i.left.count) return fail(event, "copies between different sizes");
    if (i.action == Action::reduce && i.dst.count != i.right.count) return fail(event, "reduces different sizes");
    if (writes && reads && (overlap(i.dst, i.left) || (i.action == Action::reduce && overlap(i.dst, i.right))))
      return fail(event, "overwrites what it reads");
    if (i.action == Action::reduce && !reduces(s_.kind)) return fail(event, "nothing is to be reduced");
    if (local ? i.peer != -1 : (i.peer < 0 || i.peer >= s_.ranks() || i.peer == rank)) return fail(event, "a bad peer");
    if (i.root && !local) return fail(event, "a message is no root");
    for (const Dependency& d : i.after)
      if (find(d) < 0) return fail(event, "waits for an instruction that does not exist");
    return true;
  }

  int input_chunks() const { return s_.input_blocks() * s_.chunks; }

  bool inside(const Operand& o) const {
    if (o.rank < 0 || o.rank >= s_.ranks() || o.index < 0 || o.chunk < 0 || o.count < 1) return false;
    const auto rank = static_cast<std::size_t>(o.rank);
    // A block ends where the next one begins only while it is not cut into pieces.
    if (o.chunk / s_.chunks != (o.chunk + o.count - 1) / s_.chunks) return false;
    switch (o.buffer) {
      case Buffer::input:
        return o.index < static_cast<int>(inputs_[rank].size()) && o.chunk < input_chunks();
      case Buffer::output:
        return o.index == 0 && o.chunk < s_.output_blocks(o.rank) * s_.chunks;
      case Buffer::scratch:
        return o.index < s_.scratch[rank] && o.chunk < input_chunks() && o.count == 1;
    }
    return false;
  }

  static bool overlap(const Operand& a, const Operand& b) {
    if (a.rank != b.rank || a.buffer != b.buffer || a.index != b.index) return false;
    return a.buffer == Buffer::scratch || (a.chunk < b.chunk + b.count && b.chunk < a.chunk + a.count);
  }

  int find(const Dependency& d) const {
    if (d.rank < 0 || d.rank >= s_.ranks()) return -1;
    const auto& program = s_.programs[static_cast<std::size_t>(d.rank)];
    if (d.channel < 0 || d.channel >= static_cast<int>(program.size())) return -1;
    const auto channel = static_cast<std::size_t>(d.channel);
    if (d.instruction < 0 || d.instruction >= static_cast<int>(program[channel].size())) return -1;
    return first_[static_cast<std::size_t>(d.rank)][channel] + d.instruction;
  }

  // ---- 2. order

  bool check_order() {
    if (!match_messages()) return false;
    const std::size_t events = places_.size();
    before_.assign(events, {});
    for (std::size_t e = 0; e < events; ++e) {
      if (places_[e].index > 0) before_[e].push_back(static_cast<int>(e) - 1);
      for (const Dependency& d : instruction(static_cast<int>(e)).after) before_[e].push_back(find(d));
    }
    if (!sort_events()) return false;
    close_order();
    return true;
  }

  bool match_messages() {
    partner_.assign(places_.size(), -1);
    std::map<std::pair<int, int>, std::vector<int>> sends, recvs;
    for (int e = 0; e < static_cast<int>(places_.size()); ++e) {
      const Instruction& i = instruction(e);
      if (i.action == Action::send) sends[{rank_of(e), i.peer}].push_back(e);
      if (i.action == Action::recv) recvs[{i.peer, rank_of(e)}].push_back(e);
    }
    if (sends.size() != recvs.size()) return fail("a message has only one end");
    for (const auto& [link, from] : sends) {
      const auto to = recvs.find(link);
      if (to == recvs.end() || to->second.size() != from.size())
        return fail("rank " + std::to_string(link.first) + " does not send to rank " + std::to_string(link.second) +
                    " as many messages as are received there");
      for (std::size_t k = 0; k < from.size(); ++k) {
        partner_[static_cast<std::size_t>(from[k])] = to->second[k];
        partner_[static_cast<std::size_t>(to->second[k])] = from[k];
      }
    }
    return true;
  }

  // A send and its recv are one event here: neither ends before both have begun.
  bool sort_events() {
    const std::size_t events = places_.size();
    std::vector<int> missing(events, 0);
    std::vector<std::vector<int>> behind(events);
    const auto group = [&](int e) {
      const int other = partner_[static_cast<std::size_t>(e)];
      return other >= 0 && other < e ? other : e;
    };
    for (std::size_t e = 0; e < events; ++e)
      for (const int b : before_[e]) {
        behind[static_cast<std::size_t>(group(b))].push_back(group(static_cast<int>(e)));
        ++missing[static_cast<std::size_t>(group(static_cast<int>(e)))];
      }
    std::vector<int> ready;
    for (int e = 0; e < static_cast<int>(events); ++e)
      if (group(e) == e && missing[static_cast<std::size_t>(e)] == 0) ready.push_back(e);
    while (!ready.empty()) {
      const int e = ready.back();
      ready.pop_back();
      const int other = partner_[static_cast<std::size_t>(e)];
      const bool recv_first = other >= 0 && instruction(e).action == Action::recv;
      if (recv_first) order_.push_back(other);
      order_.push_back(e);
      if (other >= 0 && !recv_first) order_.push_back(other);
      for (const int next : behind[static_cast<std::size_t>(e)])
        if (--missing[static_cast<std::size_t>(next)] == 0) ready.push_back(next);
    }
    return order_.size() == events || fail("a deadlock: instructions wait for each other in a circle");
  }

  void close_order() {
    words_ = (places_.size() + 63) / 64;
    ancestors_.assign(places_.size() * words_, 0);
    const auto inherit = [&](int e, int b) {
      std::uint64_t* to = &ancestors_[static_cast<std::size_t>(e) * words_];
      const std::uint64_t* from = &ancestors_[static_cast<std::size_t>(b) * words_];
      for (std::size_t w = 0; w < words_; ++w) to[w] |= from[w];
      to[static_cast<std::size_t>(b) / 64] |= std::uint64_t{1} << (b % 64);
    };
    for (const int e : order_) {
      for (const int b : before_[static_cast<std::size_t>(e)]) inherit(e, b);
      if (instruction(e).action == Action::recv) inherit(e, partner_[static_cast<std::size_t>(e)]);
    }
  }

  bool happens_before(int first, int second) const {
    return first == second ||
           (ancestors_[static_cast<std::size_t>(second) * words_ + static_cast<std::size_t>(first) / 64] >>
            (first % 64)) &
               1;
  }

  // ---- 3. replay

  void replay() {
    for (int rank = 0; rank < s_.ranks(); ++rank) fill_inputs(rank);
    std::vector<std::vector<Term>> in_flight(places_.size());
    for (const int e : order_) {
      const Instruction& i = instruction(e);
      std::vector<Term> values;
      if (i.action == Action::recv) {
        values = in_flight[static_cast<std::size_t>(partner_[static_cast<std::size_t>(e)])];
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
    const auto& inputs = inputs_[static_cast<std::size_t>(rank)];
    for (int index = 0; index < static_cast<int>(inputs.size()); ++index) {
      for (int chunk = 0; chunk < input_chunks(); ++chunk) {
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
    const int chunk = o.buffer == Buffer::scratch ? 0 : o.chunk + k;
    return cells_[static_cast<std::size_t>(o.rank)][{o.buffer, {o.index, chunk}}];
  }

  // Which chunk of the inputs belongs at chunk `o.chunk + k` of this buffer.
  int position(const Operand& o, int k) const {
    const int chunk = o.chunk + k;
    if (o.buffer != Buffer::output) return chunk;
    if (s_.kind == Kind::all_gather) return chunk % s_.chunks;
    return s_.kind == Kind::reduce_scatter ? s_.blocks.begin(o.rank) * s_.chunks + chunk : chunk;
  }

  bool read(int e, const Operand& o, std::vector<Term>& values) {
    for (int k = 0; k < o.count; ++k) {
      Cell& from = cell(o, k);
      if (!from.defined) return fail(e, "reads what nobody has written");
      if (from.writer >= 0 && !happens_before(from.writer, e)) return fail(e, "reads what may not be written yet");
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
      Term whole = term({0, s_.blocks.replicas()}, value.position);
      if (!reduces(s_.kind) || value != whole) return fail(e, "marks as root what is none");
      value.root = true;
    }
    return true;
  }

  bool write(int e, const Operand& o, const std::vector<Term>& values) {
    if (values.size() != static_cast<std::size_t>(o.count)) return fail(e, "receives another size than was sent");
    for (int k = 0; k < o.count; ++k) {
      Cell& to = cell(o, k);
      bool ordered = to.writer < 0 || happens_before(to.writer, e);
      for (const int reader : to.readers) ordered = ordered && happens_before(reader, e);
      if (!ordered) return fail(e, "overwrites what may still be read or written");
      if (values[static_cast<std::size_t>(k)].position != position(o, k))
        return fail(e, "moves a chunk to the place of another");
      to = {values[static_cast<std::size_t>(k)], true, e, {}};
    }
    return true;
  }

  void check_outputs() {
    const TreeNode all{0, s_.blocks.replicas()};
    for (int rank = 0; rank < s_.ranks(); ++rank) {
      for (int chunk = 0; chunk < s_.output_blocks(rank) * s_.chunks; ++chunk) {
        const Operand o{Buffer::output, rank, 0, chunk, 1};
        const int replica = s_.kind == Kind::all_gather ? chunk / s_.chunks : s_.root;
        Term wanted = term(reduces(s_.kind) ? all : TreeNode{replica, replica + 1}, position(o, 0));
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

  const Schedule& s_;
  std::string fault_;
  std::vector<Place> places_;                  // of every instruction ("event")
  std::vector<std::vector<int>> first_;        // [rank][channel]: its first event
  std::vector<std::vector<TreeNode>> inputs_;  // [rank]
  std::vector<int> partner_;                   // the other end of a message, or -1
  std::vector<std::vector<int>> before_;       // direct predecessors
  std::vector<int> order_;
  std::size_t words_ = 0;
  std::vector<std::uint64_t> ancestors_;  // a bit for every event that happens before
  std::vector<std::map<std::pair<Buffer, std::pair<int, int>>, Cell>> cells_;  // [rank]{buffer, index, chunk}
};

}  // namespace detail

// Empty, or what is wrong with the schedule and where.
inline std::string find_fault(const Schedule& schedule) { return detail::Checker{schedule}.fault(); }

// Throws BuildError where find_fault finds one.
inline void check(const Schedule& schedule) {
  const std::string fault = find_fault(schedule);
  if (!fault.empty())
    throw BuildError{std::string{name_of(schedule.kind)} + " by the schedule \"" + schedule.name +
                     "\" is wrong: " + fault};
}

}  // namespace replicator::collectives
