// SPDX-License-Identifier: Apache-2.0
// Graphs of several replicas for resolution, traced without an engine.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/resolve/replica_context.hpp>
#include <replicator/resolve/resolve.hpp>

#include "../support/errors.hpp"

namespace replicator::test {

using namespace replicator::detail;

// step(replica, x) for each replica, x being a float32 input of this shape.
template <class Step>
std::vector<Graph> traced(int replicas, Step step, Shape shape = {4, 2}) {
  std::vector<Graph> graphs;
  graphs.reserve(static_cast<std::size_t>(replicas));
  for (int r = 0; r < replicas; ++r) {
    auto& graph = graphs.emplace_back(r, replicas);
    const AnyTensor x =
        graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, shape}}, {}, {}}));
    ReplicaContext context{graph};
    step(context, Tensor<float>{x});
  }
  return graphs;
}

inline std::string resolution_error(const std::vector<Graph>& graphs) {
  return error_of([&] { resolve(graphs); });
}

// "test_agreement.cpp:31"
inline std::string at_line(const std::source_location& here) { return Location{here}.text(); }

}  // namespace replicator::test
