// SPDX-License-Identifier: Apache-2.0
// A collective algorithm as data. The files in algorithms/ build a Schedule, `check` proves it, `lower` turns loads from
// other ranks into messages, and a Communicator runs it.
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
// With groups, the collective happens in every group at once; the members of the group then stand for the R replicas. A
// rank has the partials and the outputs of each group with members on it (`groups_on`), one group after the other. Blocks
// that are counted per replica keep the order of the replicas.
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
// Whether each replica's input has one block for every member of its group.
constexpr bool scatters(Kind kind) { return kind == Kind::reduce_scatter || kind == Kind::all_to_all; }

// The begin of part `index` when `elements` are cut into `count` parts. Parts begin at multiples of 16, so that no cache
// line of float32 has two owners. Parts may be empty. part_begin(elements, count, count) == elements.
constexpr std::int64_t part_begin(std::int64_t elements, int count, int index) {
  const std::int64_t begin = (elements + 15) / 16 * index / count * 16;
  return begin < elements ? begin : elements;
}

// The memory of an operand: the rank's contribution, the rank's result, or temporary memory of the collective.
enum class Buffer : std::uint8_t {
  input,
  output,
  scratch
};

// `count` chunks of one block, beginning at `chunk`, in a buffer of `rank`. An operand on another rank is read by a load.
// The `index` selects the input (a partial or a replica of the rank), or the first of `count` scratch slots. Scratch slots
// of one operand are always used together.
struct Operand {
  Buffer buffer = Buffer::input;
  int rank = 0;
  int index = 0;
  int chunk = 0;
  int count = 1;
  friend bool operator==(const Operand&, const Operand&) = default;
};

// The instruction waits until this one is done.
struct Dependency {
  int rank = 0;
  int channel = 0;
  int instruction = 0;
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

// - copy: dst = left.
// - reduce: dst = combine(left, right), in this order; dst may be one of the two.
// - send: left goes to `peer`.
// - recv: dst comes from `peer`.
enum class Action : std::uint8_t {
  copy,
  reduce,
  send,
  recv
};

// One step of a channel. `after` lists instructions of other channels or ranks that must be done first.
struct Instruction {
  Action action = Action::copy;
  Operand dst;
  Operand left;
  Operand right;
  int peer = -1;
  std::vector<Dependency> after;
  // The value is the root of T. A mean divides here, once.
  bool root = false;
};

// The instructions of a channel run in order. Channels advance independently of each other.
using Channel = std::vector<Instruction>;

// Programs of all ranks. The k-th send from a to b matches the k-th recv at b from a, in order of (channel, instruction).
struct Schedule {
  std::string name;
  Kind kind = Kind::all_reduce;
  ReplicaBlocks blocks{1, 1};
  Groups groups = Groups{}.over(1);            // partition of the replicas; equal sizes except for all_reduce and broadcast
  bool any_order = false;                      // reduces in its own order, not T's: the bits depend on the placement
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
  // The contents of each input of a rank: one partial each, or one replica each. Nodes of the groups' trees.
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
