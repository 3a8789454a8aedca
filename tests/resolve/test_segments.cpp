// SPDX-License-Identifier: Apache-2.0
// The segments of collectives that replicas need in different orders.
#include <catch2/catch.hpp>

#include <string>

#include "graphs.hpp"

namespace test_segments {

using namespace replicator;
using namespace replicator::detail;

// Replica 1 needs the result of the second collective for the third one, and replica 0 does not. Both reduce a product with the
// first and with the third. Joined to one node, each would wait for the other.
TEST_CASE("reductions on both sides of a collective are not joined, where replicas need collectives in different orders") {
  const bool rows = GENERATE(false, true), both_sums = GENERATE(false, true);
  const auto graphs = test::traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    const auto first = all_reduce(x * 2.0f, Reduction::sum);
    const auto a = sum(x * first, Axes{1}.kept());
    const auto second = all_reduce(a, Reduction::sum);
    const auto third = all_reduce(replica.id() == 1 ? x + second : x * 3.0f, Reduction::sum);
    const auto b = both_sums ? sum(x * third, Axes{1}.kept()) : max(x * third, Axes{1}.kept());
    for (const auto& result : {(x * a).any(), (x * b).any(), second.any()}) replica.graph().results().push_back(result.value());
  });
  ResolveOptions options;
  options.fuse_rows = {rows, true};
  const auto resolution = resolve(graphs, options);
  std::string segments;
  for (const auto& collective : resolution.collectives) segments += std::to_string(collective.segment) + " ";
  CHECK(segments == "0 1 2 ");
}

}  // namespace test_segments
