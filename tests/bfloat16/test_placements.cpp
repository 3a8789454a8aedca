// SPDX-License-Identifier: Apache-2.0
// Collectives over bfloat16 follow the tree T and round at each node, wherever the node is computed.
#include <catch2/catch.hpp>

#include <cstdint>
#include <tuple>
#include <vector>

#include <replicator/collectives/tree.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../replicate/deployments.hpp"

namespace test_placements {

using namespace replicator;
using namespace replicator::detail;
using B = bfloat16;

namespace {

constexpr std::int64_t elements = 77;

Array<B> leaf(int replica) {
  PhiloxStream random{9, static_cast<std::uint64_t>(replica)};
  Array<B> result{{elements}};
  for (auto& x : result) x = 2 * random.uniform() - 0.7f;
  return result;
}

Array<B> folded(collectives::TreeNode node, Reduction reduction) {
  if (node.leaf()) return leaf(node.begin);
  Array<B> left = folded(node.left(), reduction);
  const Array<B> right = folded(node.right(), reduction);
  for (std::int64_t i = 0; i < elements; ++i) {
    const float a = left[i], b = right[i];
    left[i] = reduction == Reduction::max ? std::max(a, b) : a + b;
  }
  return left;
}

}  // namespace

TEST_CASE("an all-reduce of bfloat16 has the bits of the tree that rounds at every node, on any placement") {
  for (int replicas = 1; replicas <= 8; ++replicas) {
    const auto expected = folded({0, replicas}, Reduction::sum), largest = folded({0, replicas}, Reduction::max);
    for (int devices = 1; devices <= replicas; ++devices) {
      INFO(replicas << " replicas on " << devices << " devices");
      Replicator repl{test::on_devices(replicas, devices)};
      auto step = repl.replicate(
          [](const InputContext& ctx) {
            return data::from_generator([replica = ctx.replica()](std::int64_t) { return leaf(replica); });
          },
          [](ReplicaContext&, Tensor<B> x) {
            return std::tuple{all_reduce(x, Reduction::sum), all_reduce(x, Reduction::mean), all_reduce(x, Reduction::max), all_gather(x)};
          });
      const auto [sum, mean, most, all] = step.step();
      for (int r = 0; r < replicas; ++r)
        for (std::int64_t i = 0; i < elements; ++i) {
          REQUIRE(sum[r][i].bits == expected[i].bits);
          REQUIRE(mean[r][i].bits == B{expected[i] / static_cast<float>(replicas)}.bits);
          REQUIRE(most[r][i].bits == largest[i].bits);
          for (int s = 0; s < replicas; ++s) REQUIRE(all[r][s * elements + i].bits == leaf(s)[i].bits);
        }
    }
  }
}

}  // namespace test_placements
