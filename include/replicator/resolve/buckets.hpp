// SPDX-License-Identifier: Apache-2.0
// Buckets: merges small all-reduces, so that they run as one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <replicator/graph/placeholder.hpp>
#include <replicator/resolve/resolution.hpp>

namespace replicator::detail {

inline bool mergeable(const ResolvedCollective& a, const ResolvedCollective& b) {
  return a.what.kind == CollectiveKind::all_reduce && b.what.kind == CollectiveKind::all_reduce && a.what.reduction == b.what.reduction &&
         a.what.any_order == b.what.any_order && a.what.groups == b.what.groups && a.type.dtype == b.type.dtype && a.device == b.device;
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

}  // namespace replicator::detail
