// SPDX-License-Identifier: Apache-2.0
// Resolution: a pure function that turns the replicas' graphs into one common step. It needs no device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/fusion/fuse_convolutions.hpp>
#include <replicator/resolve/agreement.hpp>
#include <replicator/resolve/uniformity.hpp>

namespace replicator::detail {

// A collective that every replica asks for at the same place of the program.
struct ResolvedCollective {
  Placeholder what;
  TensorType type;            // of one replica's contribution
  std::string text;           // all_reduce "fc.weight/gradient" at train.cpp:31
  std::int32_t device = 0;    // the logical device, in each replica, that takes part
  std::uint32_t segment = 0;  // see segments_of
};

// All-reduces that run as one. They have the same kind and logical device, and follow one another in the order in which
// their inputs are ready.
struct Bucket {
  std::vector<std::uint32_t> members;  // ordinals
  std::vector<std::int64_t> offsets;   // of each member in the bucket, in elements
  std::int64_t elements = 0;
};

// Replicas with equal graphs. They share everything from here on.
struct GraphClass {
  Graph graph;
  Uniformity uniformity;
  std::vector<std::uint32_t> collective;    // ordinal -> node
  std::vector<std::uint32_t> segment = {};  // of each node: see segments_of
};

struct ResolveOptions {
  std::int64_t bucket_bytes = 4 << 20;  // small all_reduces are merged up to this size
  // For several processes: given the digests of this process, returns those that all processes have.
  std::function<std::set<Digest>(const std::set<Digest>&)> common_to_processes = {};
  int devices = 1;  // per replica; its logical devices share them
  passes::RecomputeOptions recompute = {};
  // For several processes: given the order in which this process makes the inputs of collectives, returns process 0's.
  std::function<std::vector<std::uint32_t>(const std::vector<std::uint32_t>&)> order_of_processes = {};
  // For several processes: raises each number to the maximum over the processes. True if all processes had the same.
  std::function<bool(std::vector<std::uint32_t>&)> latest_of_processes = {};
  ConvolutionFusions fuse_convolutions = {};
};

// The resolved step of all local replicas. The plan is made from it.
struct Resolution {
  std::vector<GraphClass> classes;
  std::vector<std::uint32_t> class_of;  // local replica (in the order given) -> class
  std::vector<ResolvedCollective> collectives;
  std::vector<Bucket> buckets;           // in the order in which their first members are ready
  std::vector<std::uint32_t> bucket_of;  // ordinal -> bucket
  std::vector<std::uint32_t> member_of;  // ordinal -> position in its bucket
};

inline bool mergeable(const ResolvedCollective& a, const ResolvedCollective& b) {
  return a.what.kind == CollectiveKind::all_reduce && b.what.kind == CollectiveKind::all_reduce && a.what.reduction == b.what.reduction &&
         a.what.any_order == b.what.any_order && a.what.groups == b.what.groups && a.type.dtype == b.type.dtype && a.device == b.device;
}

// The segment of each node: the number of collectives and of transfers between devices on the longest path to it.
// Inputs from elsewhere thus come from an earlier segment. A collective's segment is at least earliest[ordinal].
inline std::vector<std::uint32_t> segments_of(const Graph& graph, std::span<const std::uint32_t> earliest) {
  std::vector<std::uint32_t> segment(graph.nodes().size());
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    for (const auto input : graph.node(i).inputs) {
      const auto& from = graph.node(input);
      const bool elsewhere = from.device != graph.node(i).device && !from.leaf();
      segment[i] = std::max(segment[i], segment[input.node] + (elsewhere || from.get<Placeholder>() ? 1 : 0));
    }
    if (const auto* placeholder = graph.node(i).get<Placeholder>()) segment[i] = std::max(segment[i], earliest[placeholder->ordinal]);
  }
  return segment;
}

// A bucket is waited for as a whole, so all replicas must do a collective in the same segment. This is the latest one
// that any of their graphs gives it. Graphs can differ in this, for example if thunks are dealt over the replicas.
// Returns the segments by ordinal.
inline std::vector<std::uint32_t> find_segments(std::vector<GraphClass>& classes, const ResolveOptions& options) {
  std::vector<std::uint32_t> latest(classes[0].collective.size()), before;
  do {
    do {
      before = latest;
      for (auto& one : classes) {
        one.segment = segments_of(one.graph, before);
        for (std::size_t k = 0; k < latest.size(); ++k) latest[k] = std::max(latest[k], one.segment[one.collective[k]]);
      }
    } while (latest != before);
  } while (options.latest_of_processes && !options.latest_of_processes(latest));
  return latest;
}

// Members begin at multiples of 16 elements, so that each has its own cache lines.
inline void add_member(Bucket& bucket, std::uint32_t ordinal, std::int64_t elements) {
  bucket.members.push_back(ordinal);
  bucket.offsets.push_back(bucket.elements);
  bucket.elements += (elements + 15) / 16 * 16;
}

// The ordinals of the collectives, ordered by segment and then by when the first class makes their inputs.
inline std::vector<std::uint32_t> order_of_inputs(const Resolution& resolution) {
  const auto& first = resolution.classes[0];
  const auto segment_of = [&](std::uint32_t ordinal) { return resolution.collectives[ordinal].segment; };
  std::vector<std::uint32_t> order(resolution.collectives.size());
  for (std::uint32_t k = 0; k < order.size(); ++k) order[k] = k;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    const auto x = first.graph.node(first.collective[a]).inputs[0].node, y = first.graph.node(first.collective[b]).inputs[0].node;
    return std::pair{segment_of(a), x} < std::pair{segment_of(b), y};
  });
  return order;
}

// Fills buckets in this order, which is the same in all processes. A bucket takes collectives of one segment until it
// is full. Uses nothing that could differ between processes.
inline void form_buckets(Resolution& resolution, const std::vector<std::uint32_t>& order, std::int64_t bucket_bytes) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> open;  // segment -> buckets that may take more
  for (const auto k : order) {
    const auto& collective = resolution.collectives[k];
    auto& candidates = open[collective.segment];
    const auto found = std::find_if(candidates.begin(), candidates.end(), [&](auto b) {
      const auto& bucket = resolution.buckets[b];
      const auto bytes = (bucket.elements + collective.type.shape.elements()) * static_cast<std::int64_t>(size_of(collective.type.dtype));
      return mergeable(resolution.collectives[bucket.members[0]], collective) && bytes <= bucket_bytes;
    });
    if (found == candidates.end()) {
      resolution.bucket_of[k] = static_cast<std::uint32_t>(resolution.buckets.size());
      resolution.buckets.emplace_back();
      // A collective that fills half a bucket goes alone, so that small ones around it stay together. A bucket without
      // room for a small one is closed: a later gradient must not wait behind it.
      if (2 * static_cast<std::int64_t>(collective.type.bytes()) <= bucket_bytes) {
        std::erase_if(candidates, [&](auto b) { return mergeable(resolution.collectives[resolution.buckets[b].members[0]], collective); });
        candidates.push_back(resolution.bucket_of[k]);
      }
    } else {
      resolution.bucket_of[k] = *found;
    }
    resolution.member_of[k] = static_cast<std::uint32_t>(resolution.buckets[resolution.bucket_of[k]].members.size());
    add_member(resolution.buckets[resolution.bucket_of[k]], k, collective.type.shape.elements());
  }
}

inline Graph optimised_alone(const Graph& traced, const ResolveOptions& options) {
  const Graph condensed = condense(traced, options.recompute);
  return options.fuse_convolutions.any() ? passes::fuse_convolutions(condensed, options.fuse_convolutions) : condensed;
}

// Reductions are merged only after this analysis: a merged node is either uniform or not.
inline void find_uniform(std::vector<GraphClass>& classes, const ResolveOptions& options) {
  std::vector<Uniformity> uniformities;
  for (const auto& one : classes) uniformities.push_back(analyse_uniformity(one.graph));
  auto common = common_digests(uniformities);
  if (options.common_to_processes) common = options.common_to_processes(common);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    auto& one = classes[c];
    restrict_to(common, uniformities[c]);
    check_assignments(one.graph, uniformities[c]);
    one.graph = passes::hoist_placeholders(passes::remove_dead_code(passes::merge_reduces(one.graph, uniformities[c].uniform)));
    one.uniformity = analyse_uniformity(one.graph);
    restrict_to(common, one.uniformity);
    one.collective = placeholders_of(one.graph);
  }
}

// Resolves the graphs of this process's replicas, as traced.
// Throws BuildError if replicas disagree, or if a mirrored variable would get a value that varies.
template <class = void>
Resolution resolve(std::span<const Graph> traced, const ResolveOptions& options = {}) {
  Resolution result;
  if (traced.empty()) return result;
  check_agreement(traced);
  std::unordered_map<Digest, std::uint32_t, DigestHash> known;
  for (const auto& graph : traced) {
    const auto [found, fresh] = known.try_emplace(digest_of(graph), static_cast<std::uint32_t>(result.classes.size()));
    if (fresh) result.classes.push_back({detail::optimised_alone(graph, options), {}, {}});
    if (fresh) result.classes.back().graph.share_devices(options.devices);
    result.class_of.push_back(found->second);
  }
  detail::find_uniform(result.classes, options);
  const auto& first = result.classes[0];
  const auto segment = detail::find_segments(result.classes, options);
  for (const auto index : first.collective) {
    const auto& node = first.graph.node(index);
    const auto& type = first.graph.type(node.inputs[0]);
    result.collectives.push_back({*node.get<Placeholder>(), type, describe_placeholder(node), node.device, segment[result.collectives.size()]});
  }
  result.bucket_of.resize(result.collectives.size());
  result.member_of.resize(result.collectives.size());
  const auto order = detail::order_of_inputs(result);
  detail::form_buckets(result, options.order_of_processes ? options.order_of_processes(order) : order, options.bucket_bytes);
  return result;
}

}  // namespace replicator::detail
