// SPDX-License-Identifier: Apache-2.0
// Runs the passes that fuse convolutions with the operations around them, each where it is asked for.
#pragma once

#include <utility>

#include <replicator/devices/convolution_fusions.hpp>
#include <replicator/graph/passes/dead_code.hpp>
#include <replicator/graph/passes/fuse.hpp>
#include <replicator/ops/fusion/fuse_epilogues.hpp>
#include <replicator/ops/fusion/fuse_prologues.hpp>
#include <replicator/ops/fusion/fuse_statistics.hpp>

namespace replicator::detail::passes {

// For graphs that went through condense(). Arithmetic that could be one convolution's epilogue or the next one's prologue becomes
// the epilogue. The next convolution then has no prologue.
inline Graph fuse_convolutions(Graph graph, const ConvolutionFusions& wanted) {
  if (wanted.statistics) graph = fuse(remove_dead_code(fuse_statistics(graph)));
  if (wanted.epilogue) graph = fuse_epilogues(graph);
  if (wanted.prologue) graph = fuse_prologues(graph);
  return graph;
}

}  // namespace replicator::detail::passes
