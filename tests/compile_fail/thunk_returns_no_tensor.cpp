// SPDX-License-Identifier: Apache-2.0
// EXPECT: map_reduce takes a vector (or array) of functions without arguments that return a rp::Tensor
#include <functional>
#include <vector>

#include <replicator/resolve/map_over_replicas.hpp>

void step(replicator::Graph& graph) {
  replicator::map_reduce(graph, std::vector<std::function<float()>>{}, replicator::Reduction::sum);
}
