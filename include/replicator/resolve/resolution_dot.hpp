// SPDX-License-Identifier: Apache-2.0
// A resolved step as Graphviz text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <replicator/graph/dot.hpp>
#include <replicator/resolve/resolution.hpp>

namespace replicator::detail {

// Replicas with equal graphs share one cluster. Uniform nodes, which run once per device, are grey. The collectives of
// a bucket point to that bucket, between the clusters. `first_replica`: the id of the first resolved replica.
template <class = void>
std::string dot(const Resolution& resolution, int first_replica = 0) {
  std::string text = "digraph resolved_step {\n  node [fontsize=10];\n";
  for (std::size_t c = 0; c < resolution.classes.size(); ++c) {
    const auto& one = resolution.classes[c];
    std::vector<int> replicas;
    for (std::size_t r = 0; r < resolution.class_of.size(); ++r)
      if (resolution.class_of[r] == c) replicas.push_back(first_replica + static_cast<int>(r));
    detail::add_dot_cluster(text, one.graph, "c" + std::to_string(c), detail::dot_title(replicas), [&](std::uint32_t node) {
      return one.uniformity.uniform[node] && one.graph.node(node).get<Compute>() ? ", style=filled, fillcolor=lightgrey" : "";
    });
  }
  for (std::size_t b = 0; b < resolution.buckets.size(); ++b) {
    const auto& bucket = resolution.buckets[b];
    const auto& first = resolution.collectives[bucket.members[0]];
    const auto name = "bucket" + std::to_string(b);
    text += "  " + name + " [shape=box3d, style=filled, fillcolor=gold, label=\"bucket " + std::to_string(b) + ": " +
            std::string{name_of(first.what.kind)} + "\\n" + std::to_string(bucket.members.size()) + " member(s), " +
            std::to_string(bucket.elements) + " x " + std::string{name_of(first.type.dtype)} + "\"];\n";
    for (std::size_t c = 0; c < resolution.classes.size(); ++c)
      for (const auto ordinal : bucket.members)
        text += "  c" + std::to_string(c) + "_" + std::to_string(resolution.classes[c].collective[ordinal]) + " -> " + name +
                " [dir=both, style=dashed];\n";
  }
  return text + "}\n";
}

}  // namespace replicator::detail
