// SPDX-License-Identifier: Apache-2.0
// Convolutions are fused with what stands around them, each way where it is asked for.
#pragma once

#include <utility>

#include <replicator/devices/convolution_fusions.hpp>
#include <replicator/graph/passes/dead_code.hpp>
#include <replicator/graph/passes/fuse.hpp>
#include <replicator/ops/fusion/fuse_epilogues.hpp>
#include <replicator/ops/fusion/fuse_prologues.hpp>
#include <replicator/ops/fusion/fuse_statistics.hpp>

namespace replicator::detail::passes {

// For condensed graphs. What could be one convolution's epilogue and the next one's prologue becomes the epilogue: the next one is plain then.
inline Graph fuse_convolutions(Graph graph, const ConvolutionFusions& wanted) {
  if (wanted.statistics) graph = fuse(remove_dead_code(fuse_statistics(graph)));
  if (wanted.epilogue) graph = fuse_epilogues(graph);
  if (wanted.prologue) graph = fuse_prologues(graph);
  return graph;
}

}  // namespace replicator::detail::passes
