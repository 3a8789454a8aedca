// SPDX-License-Identifier: Apache-2.0
// A sum tree: draws numbers by changing weights, in logarithmic time.
// Source: Schaul, Quan, Antonoglou, Silver, "Prioritized experience replay", 2016, appendix B.2.1.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/number_text.hpp>

namespace replicator::rl::detail {

// Weights of the numbers 0 ... size - 1, initially 0. A node is always the sum of its current children. So rounding
// errors do not accumulate, and sums depend only on the weights, not on their history.
class SumTree {
 public:
  // Throws BuildError unless size >= 1.
  explicit SumTree(std::int64_t size) : size_{size} {
    if (size < 1) throw BuildError{"a sum tree of " + std::to_string(size) + " weights was asked for: it has at least 1"};
    leaves_ = std::bit_ceil(static_cast<std::size_t>(size));
    nodes_.resize(2 * leaves_);
  }

  std::int64_t size() const { return size_; }
  double total() const { return nodes_[1]; }
  double weight(std::int64_t i) const { return nodes_[leaf(i)]; }

  // Throws BuildError for a weight that is negative or not finite, and for a number out of range.
  void set(std::int64_t i, double weight) {
    if (!(weight >= 0) || !std::isfinite(weight))
      throw BuildError{"the weight " + replicator::detail::number_text(weight) + " was given to number " + std::to_string(i) +
                       " of a sum tree: it must be finite and not negative"};
    std::size_t node = leaf(i);
    nodes_[node] = weight;
    while (node > 1) {
      node /= 2;
      nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
    }
  }

  // Lays the weights end to end on the line 0 ... total() and returns the number at `at`, never one of weight 0.
  // Throws BuildError if all weights are 0.
  std::int64_t find(double at) const {
    if (!(total() > 0)) throw BuildError{"a sum tree was asked for one of its numbers, but all weights are 0"};
    std::size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      const bool right = nodes_[node + 1] > 0 && (at >= nodes_[node] || !(nodes_[node] > 0));
      if (!right) continue;
      at -= nodes_[node];
      ++node;
    }
    return static_cast<std::int64_t>(node - leaves_);
  }

 private:
  std::size_t leaf(std::int64_t i) const {
    if (i < 0 || i >= size_)
      throw BuildError{"number " + std::to_string(i) + " was asked for of a sum tree that has " + std::to_string(size_)};
    return leaves_ + static_cast<std::size_t>(i);
  }

  std::int64_t size_;
  std::size_t leaves_ = 1;
  std::vector<double> nodes_;  // the children of node i are 2 i and 2 i + 1; the root is 1
};

}  // namespace replicator::rl::detail
