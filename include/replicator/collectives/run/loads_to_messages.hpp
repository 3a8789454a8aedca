// SPDX-License-Identifier: Apache-2.0
// Lowers a schedule for transports without readable peers: turns each load from another rank into a message.
#pragma once

#include <cstddef>
#include <replicator/collectives/build.hpp>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

namespace detail {

// Copies a schedule and replaces its loads.
class Lowering {
 public:
  explicit Lowering(const Schedule& schedule) : from_{schedule}, to_{schedule} {}

  // Two passes, because messages match in the order of (channel, instruction). The first handles copies, which stay in
  // place and become a recv. The second handles operands of reduces; their recvs get new channels behind all others.
  Schedule run() {
    for_each([this](int rank, int channel, int index, Instruction& i) {
      drop_remote_dependencies(rank, i);
      if (i.action == Action::copy && i.left.rank != rank && !i.root) receive_copy(rank, channel, index, i);
    });
    for_each([this](int rank, int channel, int index, Instruction& i) {
      if (i.action != Action::copy && i.action != Action::reduce) return;
      if (i.left.rank != rank) i.left = receive(rank, channel, index, i, i.left);
      if (i.action == Action::reduce && i.right.rank != rank) i.right = receive(rank, channel, index, i, i.right);
    });
    return std::move(to_);
  }

 private:
  template <class F>
  void for_each(F&& f) {
    for (int rank = 0; rank < from_.ranks(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      for (std::size_t c = 0; c < from_.programs[r].size(); ++c)
        for (std::size_t k = 0; k < from_.programs[r][c].size(); ++k) {
          // A copy, because new channels move the old ones.
          Instruction i = to_.programs[r][c][k];
          f(rank, static_cast<int>(c), static_cast<int>(k), i);
          to_.programs[r][c][k] = std::move(i);
        }
    }
  }

  static void drop_remote_dependencies(int rank, Instruction& i) {
    std::erase_if(i.after, [rank](const Dependency& d) { return d.rank != rank; });
  }

  void receive_copy(int rank, int channel, int index, Instruction& i) {
    send(rank, channel, index, i.left);
    i.action = Action::recv;
    i.peer = i.left.rank;
    i.left = {};
  }

  Operand receive(int rank, int channel, int index, Instruction& i, const Operand& remote) {
    send(rank, channel, index, remote);
    auto& program = to_.programs[static_cast<std::size_t>(rank)];
    const Operand slots = scratch_slots(to_, rank, remote.chunk, remote.count);
    program.push_back({Instruction{Action::recv, slots, {}, {}, remote.rank, {}, false}});
    i.after.push_back({rank, static_cast<int>(program.size()) - 1, 0});
    return slots;
  }

  // Each send has its own channel, so that no message waits for another. The send takes over the reader's dependencies on
  // the sender's rank.
  void send(int reader, int channel, int index, const Operand& what) {
    Instruction send{Action::send, {}, what, {}, reader, {}, false};
    const auto& original = from_.programs[static_cast<std::size_t>(reader)][static_cast<std::size_t>(channel)]
                                         [static_cast<std::size_t>(index)];
    for (const Dependency& d : original.after)
      if (d.rank == what.rank) send.after.push_back(d);
    to_.programs[static_cast<std::size_t>(what.rank)].push_back({send});
  }

  const Schedule& from_;
  Schedule to_;
};

}  // namespace detail

// An equivalent schedule in which every rank touches its own buffers only. `schedule` must pass `check`.
inline Schedule lower(const Schedule& schedule) { return detail::Lowering{schedule}.run(); }

}  // namespace replicator::detail::collectives
