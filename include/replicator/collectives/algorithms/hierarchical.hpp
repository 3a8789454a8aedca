// SPDX-License-Identifier: Apache-2.0
// All-reduce over a hierarchy, one dimension after the other: inside the hosts, between them, between racks, ...
//
//   4 devices on each of 3 hosts, dimensions {4, 3}: device 1 of host 0
//     reads its quarter from the 3 others of host 0, and folds the four              inside
//     reads its third of that quarter from device 1 of the hosts 1 and 2             between: n / 4 bytes in all
//     copies the other two thirds from device 1 of the hosts 1 and 2                 between
//     copies the other three quarters from the 3 others of host 0                    inside
//
// Keeps T where T divides at the borders of hosts. That needs R/D replicas on every rank. It also needs powers of two for
// all dimensions but the first; for the first one too, unless R = D. Otherwise the schedule is `any_order`.
//
// Steps: 2 for each dimension.
// Bytes in and out per rank of n bytes: 2 n (D - 1) / D. Dimension k has 2 n (d_k - 1) / (d_0 d_1 ... d_k) of them, so
// the outer, slower links carry fewer bytes.
//
// Source: Cho, Finkler, Serrano, Kung, Hunter, "BlueConnect: decomposing all-reduce for deep learning on heterogeneous
// network hierarchy", MLSys 2019 (IBM PowerAI DDL).
#pragma once

#include <replicator/collectives/algorithms/grid.hpp>
#include <string>
#include <vector>

namespace replicator::detail::collectives {

// `dimensions`: their sizes, innermost first ({devices of a host, hosts}). Ranks count along the first one first. Uses
// channel 0 only, and D chunks. Throws BuildError unless the product of the dimensions is the number of ranks.
inline Schedule hierarchical(const ReplicaBlocks& blocks, const std::vector<int>& dimensions) {
  std::int64_t product = dimensions.empty() ? 0 : 1;
  std::string text;
  for (const int d : dimensions) {
    product = d < 1 || product > blocks.ranks() ? 0 : product * d;
    text += (text.empty() ? "" : "x") + std::to_string(d);
  }
  if (product != blocks.ranks())
    throw BuildError{"a hierarchical all_reduce was asked for with the dimensions \"" + text + "\", but there are " +
                     std::to_string(blocks.ranks()) +
                     " devices: name the devices of a host, then the hosts; their product must be all devices"};
  Schedule schedule = detail::empty_schedule("hierarchical", Kind::all_reduce, blocks, blocks.ranks(), 1);
  std::vector<detail::Member> members;
  for (int rank = 0; rank < blocks.ranks(); ++rank) members.push_back(detail::local_member(schedule, rank));
  detail::Grid{schedule, members, dimensions}.all_reduce();
  return schedule;
}

}  // namespace replicator::detail::collectives
