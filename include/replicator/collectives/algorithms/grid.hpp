// SPDX-License-Identifier: Apache-2.0
// All-reduce over a grid of ranks, one dimension after the other. The common part of `hierarchical` and `halving_doubling`.
//
//   members 0..5, dimensions {3, 2}:   0 1 2    reduce-scatter in each row: one of three parts each
//                                      3 4 5    then in each column: one of two parts of that; all-gather in reverse
//
// In dimension k a member reads its part of the sums of the d_k - 1 others in its line. It folds them along T as far as T
// divides at the borders of the members.
#pragma once

#include <cstddef>
#include <replicator/collectives/build.hpp>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// A rank that takes part. `value` holds the sum of `node`'s replicas, with all chunks, in an input or in its output.
struct Member {
  int rank;
  Placed value;
  TreeNode node;
};

// The same value, restricted to `count` chunks from `chunk` on.
inline Placed part_of(Placed value, int chunk, int count) {
  value.where.chunk = chunk;
  value.where.count = count;
  return value;
}

// Appends left + right to channel 0. Makes the schedule `any_order` where the sum is no node of T.
inline Placed append_sum(Schedule& schedule, const Member& left, const Member& right, int rank, const Operand& dst,
                         bool root) {
  const TreeNode node{left.node.begin, right.node.end};
  schedule.any_order = schedule.any_order || node.middle() != right.node.begin;
  return append(schedule, rank, 0, {Action::reduce, dst, left.value.where, right.value.where, -1, {}, root},
                {left.value, right.value});
}

// A rank with the sum of its partials: its only partial, or the sum from left to right in its output.
inline Member local_member(Schedule& schedule, int rank) {
  const auto nodes = schedule.inputs(rank);
  Member sum{rank, {{Buffer::input, rank, 0, 0, schedule.chunks}, false, {}}, nodes[0]};
  for (int p = 1; p < static_cast<int>(nodes.size()); ++p) {
    const TreeNode node = nodes[static_cast<std::size_t>(p)];
    const Member next{rank, {{Buffer::input, rank, p, 0, schedule.chunks}, false, {}}, node};
    sum.value = append_sum(schedule, sum, next, rank, {Buffer::output, rank, 0, 0, schedule.chunks}, false);
    sum.node.end = node.end;
  }
  return sum;
}

// Appends an all-reduce over a grid of members to a schedule.
class Grid {
 public:
  // There are as many members, and as many chunks, as the product of the dimensions. Members ascend by their replicas;
  // member v has the coordinates v % d_0, v / d_0 % d_1, ...
  Grid(Schedule& schedule, std::vector<Member> members, const std::vector<int>& dimensions)
      : schedule_{schedule}, members_{std::move(members)}, begins_(members_.size(), 0), width_{schedule.chunks} {
    for (const int d : dimensions)
      if (d > 1) dimensions_.push_back(d);
  }

  // Leaves the root in every member's output. Returns for each member its place and the instruction that completes it.
  std::vector<Placed> all_reduce() {
    if (members_.size() == 1) {
      const Member& only = members_[0];
      const Operand dst{Buffer::output, only.rank, 0, 0, schedule_.chunks};
      return {append(schedule_, only.rank, 0, {Action::copy, dst, only.value.where, {}, -1, {}, true}, {only.value})};
    }
    for (std::size_t k = 0, stride = 1; k < dimensions_.size(); stride *= static_cast<std::size_t>(dimensions_[k++]))
      reduce_scatter(k, stride);
    for (std::size_t k = dimensions_.size(), stride = members_.size(); k-- > 0;) {
      stride /= static_cast<std::size_t>(dimensions_[k]);
      all_gather(k, stride);
    }
    std::vector<Placed> result;
    for (const Member& member : members_) result.push_back(part_of(member.value, 0, schedule_.chunks));
    return result;
  }

 private:
  std::size_t coordinate(std::size_t v, std::size_t k, std::size_t stride) const {
    return v / stride % static_cast<std::size_t>(dimensions_[k]);
  }

  void reduce_scatter(std::size_t k, std::size_t stride) {
    const auto size = static_cast<std::size_t>(dimensions_[k]);
    const bool last = k + 1 == dimensions_.size();
    width_ /= dimensions_[k];
    std::vector<Member> next;
    for (std::size_t v = 0; v < members_.size(); ++v) {
      const std::size_t own = coordinate(v, k, stride);
      begins_[v] += static_cast<int>(own) * width_;
      std::vector<Member> line;
      for (std::size_t j = 0; j < size; ++j) {
        line.push_back(members_[v + j * stride - own * stride]);
        line.back().value = part_of(line.back().value, begins_[v], width_);
      }
      const int rank = members_[v].rank;
      next.push_back(fold(line, 0, size, rank, {Buffer::output, rank, 0, begins_[v], width_}, last));
    }
    members_ = std::move(next);
  }

  // The sum of line[first, last), in `dst` of `rank`.
  Member fold(const std::vector<Member>& line, std::size_t first, std::size_t last, int rank, const Operand& dst,
              bool root) {
    if (last - first == 1) return line[first];
    const TreeNode node{line[first].node.begin, line[last - 1].node.end};
    std::size_t middle = first + (last - first + 1) / 2;
    for (std::size_t j = first + 1; j < last; ++j)
      if (line[j].node.begin == node.middle()) middle = j;
    const auto side = [&](std::size_t from, std::size_t to) {
      const bool made = to - from > 1;
      return fold(line, from, to, rank, made ? scratch_slots(schedule_, rank, dst.chunk, dst.count) : dst, false);
    };
    const Member left = side(first, middle);
    const Member right = side(middle, last);
    return {rank, append_sum(schedule_, left, right, rank, dst, root), node};
  }

  void all_gather(std::size_t k, std::size_t stride) {
    const auto size = static_cast<std::size_t>(dimensions_[k]);
    const std::vector<Member> before = members_;
    for (std::size_t v = 0; v < members_.size(); ++v) {
      const std::size_t own = coordinate(v, k, stride);
      for (std::size_t j = 1; j < size; ++j) {
        const std::size_t other = v - own * stride + (own + j) % size * stride;
        const Placed source = part_of(before[other].value, begins_[other], width_);
        const Operand dst{Buffer::output, members_[v].rank, 0, begins_[other], width_};
        members_[v].value =
            append(schedule_, members_[v].rank, 0, {Action::copy, dst, source.where, {}, -1, {}, false}, {source});
      }
    }
    for (std::size_t v = 0; v < members_.size(); ++v) begins_[v] -= static_cast<int>(coordinate(v, k, stride)) * width_;
    width_ *= dimensions_[k];
  }

  Schedule& schedule_;
  std::vector<Member> members_;
  std::vector<int> dimensions_;
  std::vector<int> begins_;  // first chunk of each member's part
  int width_;                // of a part, in chunks
};

}  // namespace replicator::detail::collectives::detail
