// SPDX-License-Identifier: Apache-2.0
// A collective algorithm as data. Algorithms build a Schedule, `check` proves it, `lower` turns loads from other ranks
// into messages, `run` executes it.
//
// Words: a *rank* is one device of the job and holds a block of *replicas*. A buffer is a row of *blocks* of `elements`
// elements; every block is cut into `chunks` *chunks*. Chunk c of a buffer is part c % chunks of its block c / chunks.
//
//   all_reduce      input: 1 block per partial      output: 1 block
//   all_gather      input: 1 block per replica      output: R blocks
//   reduce_scatter  input: R blocks per partial     output: one block per replica of the rank
//   broadcast       input: 1 block per replica      output: 1 block
//   all_to_all      input: R blocks per replica     output: R blocks per replica of the rank
//
// In groups each of them happens in every group at once, with the group's members in place of all R replicas. A rank has
// the partials and the outputs of each group that has members there (`groups_on`), one group after the other; what is said
// of replicas stays in the order of the replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/collectives/grouping.hpp>
#include <replicator/core/collective_kind.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::detail::collectives {

using Kind = CollectiveKind;

constexpr bool reduces(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce_scatter; }
// Whether each replica's input is a block for every member of its group.
constexpr bool scatters(Kind kind) { return kind == Kind::reduce_scatter || kind == Kind::all_to_all; }

// Where part `index` of `count` begins when `elements` are cut: at multiples of 16, so that no cache line of float32
// has two owners. Parts may be empty. part_begin(elements, count, count) == elements.
constexpr std::int64_t part_begin(std::int64_t elements, int count, int index) {
  const std::int64_t begin = (elements + 15) / 16 * index / count * 16;
  return begin < elements ? begin : elements;
}

// Whose memory an operand lies in: what the rank contributes, what it receives, or what the collective sets aside.
enum class Buffer : std::uint8_t {
  input,
  output,
  scratch
};

// `count` chunks of one block, from `chunk` on. `index`: which input (partial or replica of the rank), or the first of
// `count` scratch slots, which are always used together. `rank`: whose buffer; on another rank it is read by a load.
struct Operand {
  Buffer buffer = Buffer::input;
  int rank = 0;
  int index = 0;
  int chunk = 0;
  int count = 1;
  friend bool operator==(const Operand&, const Operand&) = default;
};

// "After this instruction of that rank's channel is done."
struct Dependency {
  int rank = 0;
  int channel = 0;
  int instruction = 0;
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

// copy: dst = left. reduce: dst = combine(left, right), in this order; dst may be one of the two. send: left goes to `peer`.
// recv: dst comes from `peer`.
enum class Action : std::uint8_t {
  copy,
  reduce,
  send,
  recv
};

struct Instruction {
  Action action = Action::copy;
  Operand dst;
  Operand left;
  Operand right;
  int peer = -1;
  std::vector<Dependency> after;
  // The value is the root of T: a mean divides here, once.
  bool root = false;
};

// Instructions of a channel run in order; channels advance independently of each other.
using Channel = std::vector<Instruction>;

// The k-th send from a to b matches the k-th recv at b from a, counted in order of (channel, instruction).
struct Schedule {
  std::string name;
  Kind kind = Kind::all_reduce;
  ReplicaBlocks blocks{1, 1};
  Groups groups = Groups{}.over(1);            // of all replicas of `blocks`; of equal sizes but for all_reduce, broadcast
  bool any_order = false;                      // reduces in an order of its own: the bits depend on the placement
  int root = 0;                                // broadcast: the position in each group
  int chunks = 1;                              // parts of a block
  std::vector<int> scratch;                    // slots of each rank
  std::vector<std::vector<Channel>> programs;  // [rank][channel][instruction]

  int ranks() const { return blocks.ranks(); }
  int input_blocks() const { return scatters(kind) ? groups.size(0) : 1; }
  int output_blocks(int rank) const {
    if (kind == Kind::reduce_scatter) return blocks.count(rank);
    if (kind == Kind::all_to_all) return blocks.count(rank) * groups.size(0);
    const int present = static_cast<int>(groups_on(blocks, groups, rank).size());
    return kind == Kind::all_gather ? present * groups.size(0) : present;
  }
  // What each input of a rank holds: its partials, or its replicas one by one. Nodes of the groups' trees.
  std::vector<TreeNode> inputs(int rank) const {
    if (reduces(kind)) return partials_on(blocks, groups, rank);
    std::vector<TreeNode> result;
    for (int replica = blocks.begin(rank); replica < blocks.end(rank); ++replica) {
      const int place = groups.place(replica);
      result.push_back({place, place + 1});
    }
    return result;
  }
};

}  // namespace replicator::detail::collectives
