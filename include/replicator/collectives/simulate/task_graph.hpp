// SPDX-License-Identifier: Apache-2.0
// The dependency graph of a schedule for the simulator: small tasks (work on a rank, or a message between two ranks) and
// their dependencies. It is the same for every piece. A load from another rank becomes a message that leaves as soon as its
// value is made, just as `lower` does it. So a schedule and its lowered form are equal here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <replicator/collectives/schedule.hpp>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// Work on a rank, or a message to `peer`.
struct Task {
  int rank = 0;   // works, or sends
  int peer = -1;  // receives
  int chunk = 0;
  int count = 0;
  bool arithmetic = false;  // reads the chunk's bytes
  bool message() const { return peer >= 0; }
};

// All tasks of a schedule.
class TaskGraph {
 public:
  using Id = std::uint32_t;

  explicit TaskGraph(const Schedule& schedule) : ranks_{schedule.ranks()} {
    number_instructions(schedule);
    add_tasks(schedule);
    match_messages();
    index(begins_, next_, static_cast<std::size_t>(count()), std::move(edges_));
    index(head_begins_, heads_, static_cast<std::size_t>(ranks_), std::move(starts_));
  }

  Id count() const { return static_cast<Id>(tasks_.size()); }
  const Task& operator[](Id task) const { return tasks_[task]; }
  // The number of dependencies of each task. The start of a rank counts as one for the rank's first tasks.
  const std::vector<std::int32_t>& missing() const { return missing_; }
  // The tasks that depend on a task. Work comes first. Messages begin with the sender's neighbour, so that the ranks do not
  // all send to the same one.
  const Id* begin(Id task) const { return next_.data() + begins_[task]; }
  const Id* end(Id task) const { return next_.data() + begins_[task + 1]; }
  // The tasks that wait for a rank to start, in the same order.
  const Id* heads_begin(int rank) const { return heads_.data() + head_begins_[static_cast<std::size_t>(rank)]; }
  const Id* heads_end(int rank) const { return heads_.data() + head_begins_[static_cast<std::size_t>(rank) + 1]; }
  // Total number of tasks of a rank.
  std::int64_t tasks_of(int rank) const { return per_rank_[static_cast<std::size_t>(rank)]; }

 private:
  void number_instructions(const Schedule& schedule) {
    Id total = 0;
    for (const auto& program : schedule.programs) {
      channel_base_.push_back(firsts_.size());
      for (const Channel& channel : program) {
        firsts_.push_back(total);
        total += static_cast<Id>(channel.size());
      }
    }
    tasks_.resize(total);
    missing_.assign(total, 0);
    per_rank_.assign(static_cast<std::size_t>(ranks_), 0);
  }
  Id id(int rank, int channel, int instruction) const {
    return firsts_[channel_base_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(channel)] + static_cast<Id>(instruction);
  }

  void add_tasks(const Schedule& schedule) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto& program = schedule.programs[static_cast<std::size_t>(rank)];
      for (std::size_t c = 0; c < program.size(); ++c)
        for (std::size_t k = 0; k < program[c].size(); ++k) {
          const Id task = id(rank, static_cast<int>(c), static_cast<int>(k));
          if (k > 0) connect(task - 1, task);
          else begin_with(rank, task);
          add(program[c][k], rank, task);
        }
    }
  }
  void add(const Instruction& i, int rank, Id task) {
    const Operand& what = i.action == Action::send ? i.left : i.dst;
    const bool remote_copy = i.action == Action::copy && i.left.rank != rank;
    tasks_[task] = {rank, i.action == Action::send ? i.peer : -1, what.chunk, what.count,
                    i.action == Action::reduce || (i.action == Action::copy && !remote_copy)};
    ++per_rank_[static_cast<std::size_t>(rank)];
    if (i.action == Action::send) sends_[{rank, i.peer}].push_back(task);
    if (i.action == Action::recv) recvs_[{i.peer, rank}].push_back(task);
    for (const Dependency& d : i.after)
      if (d.rank == rank) connect(id(d.rank, d.channel, d.instruction), task);
    if (remote_copy || (i.action == Action::reduce && i.left.rank != rank)) load(i, i.left, rank, task);
    if (i.action == Action::reduce && i.right.rank != rank) load(i, i.right, rank, task);
  }
  void load(const Instruction& i, const Operand& from, int rank, Id task) {
    const Id message = count();
    tasks_.push_back({from.rank, rank, from.chunk, from.count, false});
    missing_.push_back(0);
    ++per_rank_[static_cast<std::size_t>(from.rank)];
    for (const Dependency& d : i.after)
      if (d.rank == from.rank) connect(id(d.rank, d.channel, d.instruction), message);
    if (missing_[message] == 0) begin_with(from.rank, message);
    connect(message, task);
  }
  void begin_with(int rank, Id task) {
    starts_.push_back({static_cast<Id>(rank), task});
    ++missing_[task];
  }
  void connect(Id before, Id after) {
    edges_.push_back({before, after});
    ++missing_[after];
  }
  // The k-th send from a to b matches the k-th recv at b from a.
  void match_messages() {
    for (const auto& [ends, sends] : sends_) {
      const auto& recvs = recvs_[ends];
      for (std::size_t k = 0; k < std::min(sends.size(), recvs.size()); ++k) connect(sends[k], recvs[k]);
    }
    sends_.clear();
    recvs_.clear();
  }

  // Builds rows: the second members of the pairs, grouped by the first members.
  void index(std::vector<std::size_t>& begins, std::vector<Id>& row, std::size_t rows, std::vector<std::pair<Id, Id>> pairs) const {
    begins.assign(rows + 1, 0);
    for (const auto& [from, to] : pairs) ++begins[from + 1];
    for (std::size_t r = 0; r < rows; ++r) begins[r + 1] += begins[r];
    row.resize(pairs.size());
    std::vector<std::size_t> at(begins.begin(), begins.end() - 1);
    for (const auto& [from, to] : pairs) row[at[from]++] = to;
    for (std::size_t r = 0; r < rows; ++r)
      std::stable_sort(row.begin() + static_cast<std::ptrdiff_t>(begins[r]), row.begin() + static_cast<std::ptrdiff_t>(begins[r + 1]),
                       [this](Id a, Id b) { return steps_round(a) < steps_round(b); });
  }
  int steps_round(Id task) const {
    const Task& t = tasks_[task];
    return t.message() ? (t.peer - t.rank + ranks_) % ranks_ : 0;
  }

  int ranks_;
  std::vector<std::size_t> channel_base_;  // [rank]: its first channel in firsts_
  std::vector<Id> firsts_;                 // first task of each channel
  std::vector<Task> tasks_;                // instructions, then messages
  std::vector<std::int32_t> missing_;
  std::vector<std::int64_t> per_rank_;
  std::vector<std::pair<Id, Id>> edges_, starts_;
  std::map<std::pair<int, int>, std::vector<Id>> sends_, recvs_;
  std::vector<std::size_t> begins_, head_begins_;
  std::vector<Id> next_, heads_;
};

}  // namespace replicator::detail::collectives::detail
