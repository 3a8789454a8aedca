// SPDX-License-Identifier: Apache-2.0
// One collective call on raw buffers: its arguments, and the check of what this process alone can know to be wrong.
//
// All sizes are in bytes. A process holds m of R replicas; a buffer is a row of equal *blocks*:
//
//   all_reduce      input: m blocks         output: 1 block
//   all_gather      input: m blocks         output: R blocks
//   reduce_scatter  input: m times R        output: m blocks
//   broadcast       input: 1 block          output: 1 block      (the input is that of the root's process; others: none)
//   all_to_all      input: m times R        output: m times R
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <replicator/collectives/reduction.hpp>
#include <replicator/collectives/replica_blocks.hpp>
#include <replicator/collectives/schedule.hpp>
#include <replicator/core/error.hpp>
#include <string>

namespace replicator::detail::collectives {

// The arguments of a call.
struct RawCall {
  Kind kind = Kind::all_reduce;
  DType dtype = DType::float32;
  Reduction reduction = Reduction::sum;  // all_reduce and reduce_scatter only
  bool any_order = false;                // all_reduce only
  int root = 0;                          // broadcast only: a replica
  std::int64_t count = 0;                // elements of a block
  const std::byte* input = nullptr;
  std::byte* output = nullptr;

  std::size_t block() const { return static_cast<std::size_t>(count) * size_of(dtype); }
  // Number of blocks that each replica contributes.
  std::int64_t input_blocks(const ReplicaBlocks& blocks) const { return scatters(kind) ? blocks.replicas() : 1; }
  std::int64_t output_blocks(const ReplicaBlocks& blocks, int rank) const {
    if (kind == Kind::all_gather) return blocks.replicas();
    if (kind == Kind::reduce_scatter) return blocks.count(rank);
    return kind == Kind::all_to_all ? std::int64_t{blocks.count(rank)} * blocks.replicas() : 1;
  }

  // The text that must be equal on every process: "all_reduce (sum) of float32[10]".
  std::string text() const {
    std::string result{name_of(kind)};
    if (reduces(kind)) result += " (" + std::string{name_of(reduction)} + (any_order ? ", any order)" : ")");
    if (kind == Kind::broadcast) result += " from replica " + std::to_string(root);
    return result + " of " + std::string{replicator::name_of(dtype)} + "[" + std::to_string(count) + "]";
  }

  // Whether input and output of this rank share bytes. A broadcast reads its input only on the rank of the root.
  bool overlaps(const ReplicaBlocks& blocks, int rank) const {
    if (kind == Kind::broadcast && blocks.rank_of(root) != rank) return false;
    const std::int64_t bytes = static_cast<std::int64_t>(block()), apart = distance();
    return apart < input_count(blocks, rank) * bytes && -apart < output_blocks(blocks, rank) * bytes;
  }

  // Throws BuildError for mistakes that this process can see alone. These are a bad count, root or reduction, a null
  // pointer, and buffers that overlap without sharing whole blocks.
  void require_valid(const ReplicaBlocks& blocks, int rank) const {
    if (count < 0) refuse("a count may not be negative");
    if (count > most_bytes / most_blocks(blocks, rank) / static_cast<std::int64_t>(size_of(dtype)))
      refuse("no memory holds so many bytes; a count is of the elements of one block");
    if (reduces(kind)) require_reducible(dtype, reduction);
    if (kind == Kind::broadcast && (root < 0 || root >= blocks.replicas()))
      refuse(blocks.replicas() == 1 ? "there is only replica 0" : "there are replicas 0 to " + std::to_string(blocks.replicas() - 1));
    if (count == 0) return;
    const bool reads = kind != Kind::broadcast || blocks.rank_of(root) == rank;
    if ((reads && !input) || !output) refuse(std::string{output ? "input" : "output"} + " is a null pointer");
    if (reads) require_in_place_or_apart(blocks, rank);
  }

 private:
  static constexpr auto most_bytes = std::int64_t{1} << 56;  // more than a process can address

  // The largest number of blocks: of a buffer on this rank, or of a replica's contribution or result.
  std::int64_t most_blocks(const ReplicaBlocks& blocks, int rank) const {
    return std::max({std::int64_t{blocks.replicas()}, input_count(blocks, rank), output_blocks(blocks, rank)});
  }

  [[noreturn]] void refuse(const std::string& why) const { throw BuildError{text() + ": " + why}; }

  // The input must be read before it is overwritten. That holds where the buffers share whole blocks: the blocks move in
  // equal slices.
  void require_in_place_or_apart(const ReplicaBlocks& blocks, int rank) const {
    if (!overlaps(blocks, rank) || distance() % static_cast<std::int64_t>(block()) == 0) return;
    refuse("input and output overlap, the output beginning " + std::to_string(distance()) + " bytes after the input: " +
           "let them be apart, or the output begin where a block of the input does");
  }

  // Number of blocks in the whole input of this rank.
  std::int64_t input_count(const ReplicaBlocks& blocks, int rank) const {
    return kind == Kind::broadcast ? 1 : blocks.count(rank) * input_blocks(blocks);
  }
  // Bytes from the beginning of the input to the beginning of the output.
  std::int64_t distance() const {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(output) - reinterpret_cast<std::uintptr_t>(input));
  }
};

}  // namespace replicator::detail::collectives
