// SPDX-License-Identifier: Apache-2.0
// Resolution: the resolved step of a process, which resolve() makes from the replicas' graphs and plans are made from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <replicator/devices/convolution_fusions.hpp>
#include <replicator/graph/graph.hpp>
#include <replicator/graph/passes/recompute_options.hpp>
#include <replicator/graph/passes/rows_options.hpp>
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
  // For several processes: given the different graphs of this process, as traced, and their digests. Throws BuildError if processes ask for
  // different things. Returns how mirrored variables would be given different values, or an empty text.
  std::function<std::string(std::span<const Graph* const>, std::span<const Digest>)> compare_processes = {};
  // For several processes: given the digests of this process, returns those that all processes have.
  std::function<std::set<Digest>(const std::set<Digest>&)> common_to_processes = {};
  int devices = 1;  // per replica; its logical devices share them
  passes::RecomputeOptions recompute = {};
  // For several processes: given the order in which this process makes the inputs of collectives, returns process 0's.
  std::function<std::vector<std::uint32_t>(const std::vector<std::uint32_t>&)> order_of_processes = {};
  // For several processes: raises each number to the maximum over the processes. True if all processes had the same.
  std::function<bool(std::vector<std::uint32_t>&)> latest_of_processes = {};
  ConvolutionFusions fuse_convolutions = {};
  std::optional<DeviceKind> kind = {};  // of the job's devices: what it has a kernel for is not expanded
  passes::RowsOptions fuse_rows = {};
  bool fuse_reduces = false;  // the devices have a kernel of FusedReduce
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

// Resolves the graphs of this process's replicas, as traced.
// Throws BuildError if replicas disagree, or if a mirrored variable would get a value that varies.
template <class = void>
Resolution resolve(std::span<const Graph> traced, const ResolveOptions& options = {});

}  // namespace replicator::detail
