// SPDX-License-Identifier: Apache-2.0
// The network between ranks as a tree of links: devices on hosts, hosts in racks, and so on.
//
//   dimensions {4 devices, 3 hosts}      rank 5 = device 1 of host 1
//
//                switch
//             /    |    \         dimension 1: a link for each host, shared by its devices
//         host 0   1     2
//        / | | \ / | | \ ...      dimension 0: a link for each device
//        0 1 2 3 4 5 6 7
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/error.hpp>
#include <replicator/core/number_text.hpp>
#include <string>
#include <vector>

namespace replicator::detail::collectives {

// A link between ranks; both directions work at once.
struct Link {
  double microseconds = 1;  // of latency
  double bytes_per_microsecond = 10000;
};

// Ranks count along the first dimension first, like those of `hierarchical`.
struct Topology {
  struct Dimension {
    int size = 1;
    // The link of each unit (device, host, ...) to its neighbours in this dimension. The latency is that of a whole message
    // between two ranks for which this is the outermost dimension in which they differ.
    Link link;
  };
  std::vector<Dimension> dimensions;         // innermost first
  double reduced_bytes_per_microsecond = 0;  // results of reduce, and copies inside a rank; 0: they take no time

  int ranks() const {
    int product = 1;
    for (const Dimension& d : dimensions) product *= d.size;
    return product;
  }
  // The outermost dimension in which two ranks differ; -1 for a rank and itself.
  int distance(int a, int b) const {
    int result = -1;
    for (std::size_t k = 0; k < dimensions.size() && a != b; ++k) {
      if (a % dimensions[k].size != b % dimensions[k].size) result = static_cast<int>(k);
      a /= dimensions[k].size;
      b /= dimensions[k].size;
    }
    return result;
  }
  // Throws BuildError for a size below 1, more than most_ranks ranks, a negative latency or rate, and a bandwidth that is
  // not positive.
  void require() const {
    std::int64_t product = 1;
    for (std::size_t k = 0; k < dimensions.size(); ++k) {
      const auto& [size, link] = dimensions[k];
      if (size < 1 || (product *= size) > most_ranks)
        throw BuildError{"a topology has the dimensions \"" + text() +
                         "\": each is at least 1, and there are at most " + std::to_string(most_ranks) + " ranks"};
      if (!(link.microseconds >= 0) || !(link.bytes_per_microsecond > 0))
        throw BuildError{"the link of dimension " + std::to_string(k) + " of a topology has " + number_text(link.microseconds) + " us and " +
                         number_text(link.bytes_per_microsecond) + " bytes/us: a latency is at least 0, a bandwidth more than 0"};
    }
    if (!(reduced_bytes_per_microsecond >= 0))
      throw BuildError{"a topology reduces " + number_text(reduced_bytes_per_microsecond) +
                       " bytes/us: it cannot be negative; 0 is for no time at all"};
  }
  // "4x3"
  std::string text() const {
    std::string result;
    for (const Dimension& d : dimensions) result += (result.empty() ? "" : "x") + std::to_string(d.size);
    return result;
  }
  static constexpr std::int64_t most_ranks = std::int64_t{1} << 24;
};

}  // namespace replicator::detail::collectives
