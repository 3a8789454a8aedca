// SPDX-License-Identifier: Apache-2.0
// The code of resolution.hpp: a pure function that turns the replicas' graphs into one common step. It needs no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <replicator/graph/passes/fuse_reduces.hpp>
#include <replicator/graph/passes/fuse_rows.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/fusion/fuse_convolutions.hpp>
#include <replicator/resolve/agreement.hpp>
#include <replicator/resolve/analyse_uniformity.hpp>
#include <replicator/resolve/buckets.hpp>
#include <replicator/resolve/graph_outline.hpp>
#include <replicator/resolve/placeholders.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/resolve/segments.hpp>

namespace replicator::detail {

inline Graph optimised_alone(const Graph& traced, const ResolveOptions& options) {
  const Graph condensed = condense(traced, options.recompute, options.kind);
  return options.fuse_convolutions.any() ? passes::fuse_convolutions(condensed, options.fuse_convolutions) : condensed;
}

// The graph after a pass that joined nodes. The analysis of the old nodes holds for the values of the new ones.
inline void replace_graph(GraphClass& one, TracedBack fused) {
  std::vector<bool> uniform;
  std::vector<std::vector<Digest>> digests;
  for (const auto& origins : fused.origins) {
    uniform.push_back(one.uniformity.uniform[origins[0].node]);
    auto& of_node = digests.emplace_back();
    for (const auto origin : origins) of_node.push_back(one.uniformity.digest(origin));
  }
  one.graph = std::move(fused.graph);
  one.uniformity.uniform = std::move(uniform);
  one.uniformity.digests = std::move(digests);
  one.collective = placeholders_of(one.graph);
}

// Reductions are merged only after this analysis: a merged node is either uniform or not.
// `different()`: see check_assignments.
template <class Different>
void find_uniform(std::vector<GraphClass>& classes, const ResolveOptions& options, Different different) {
  std::vector<Uniformity> uniformities;
  for (const auto& one : classes) uniformities.push_back(analyse_uniformity(one.graph));
  auto common = common_digests(uniformities);
  if (options.common_to_processes) common = options.common_to_processes(common);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    restrict_to(common, uniformities[c]);
    check_assignments(classes[c].graph, uniformities[c], different);
    classes[c].collective = placeholders_of(classes[c].graph);
  }
  // Only nodes of one segment are joined. So no pass moves a collective, which other replicas may have in another order.
  find_segments(classes, options);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    auto& one = classes[c];
    one.graph = passes::hoist_placeholders(passes::remove_dead_code(passes::merge_reduces(one.graph, uniformities[c].uniform, one.segment)));
    one.uniformity = analyse_uniformity(one.graph);
    restrict_to(common, one.uniformity);
    one.collective = placeholders_of(one.graph);
  }
  if (options.fuse_rows.wanted) {
    find_segments(classes, options);
    for (auto& one : classes) replace_graph(one, passes::fuse_rows(one.graph, options.fuse_rows, one.uniformity.uniform, one.segment));
  }
  if (options.fuse_reduces) {
    find_segments(classes, options);
    for (auto& one : classes) replace_graph(one, passes::fuse_reduces(one.graph, one.uniformity.uniform, one.segment));
  }
}

template <class>
Resolution resolve(std::span<const Graph> traced, const ResolveOptions& options) {
  Resolution result;
  if (traced.empty()) return result;
  check_agreement(traced);
  std::unordered_map<Digest, std::uint32_t, DigestHash> known;
  std::vector<const Graph*> graphs;  // by class
  std::vector<Digest> digests;       // likewise
  for (const auto& graph : traced) {
    const auto [found, fresh] = known.try_emplace(digest_of(graph), static_cast<std::uint32_t>(result.classes.size()));
    if (fresh) graphs.push_back(&graph), digests.push_back(found->first);
    if (fresh) result.classes.push_back({optimised_alone(graph, options), {}, {}});
    if (fresh) result.classes.back().graph.share_devices(options.devices);
    result.class_of.push_back(found->second);
  }
  const auto between_processes = options.compare_processes ? options.compare_processes(graphs, digests) : std::string{};
  find_uniform(result.classes, options, [&] { return options.compare_processes ? between_processes : difference_of_replicas(graphs); });
  const auto& first = result.classes[0];
  const auto segment = find_segments(result.classes, options);
  for (const auto index : first.collective) {
    const auto& node = first.graph.node(index);
    const auto& type = first.graph.type(node.inputs[0]);
    result.collectives.push_back({*node.get<Placeholder>(), type, describe_placeholder(node), node.device, segment[result.collectives.size()]});
  }
  result.bucket_of.resize(result.collectives.size());
  result.member_of.resize(result.collectives.size());
  const auto order = order_of_inputs(result);
  form_buckets(result, options.order_of_processes ? options.order_of_processes(order) : order, options.bucket_bytes);
  return result;
}

}  // namespace replicator::detail
