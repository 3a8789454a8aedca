// SPDX-License-Identifier: Apache-2.0
// all_to_all and collectives inside groups on every placement, against closed forms.
#include <catch2/catch.hpp>

#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/all_to_all.hpp>

#include "deployments.hpp"

namespace test_groups {

using namespace replicator;
using namespace replicator::detail;
using T = Tensor<float>;

namespace {

// Replica r's element is [R] of 10 r + j.
auto rows(const InputContext& ctx) {
  return data::from_generator([r = ctx.replica(), n = ctx.replicas()](std::int64_t) {
    Array<float> x{{n}};
    for (int j = 0; j < n; ++j) x[static_cast<std::size_t>(j)] = static_cast<float>(10 * r + j);
    return x;
  });
}

std::vector<Groups> grids(int replicas) {
  std::vector<Groups> all;
  for (int columns = 1; columns <= replicas; ++columns)
    if (replicas % columns == 0)
      for (const auto& groups : {group_rows(replicas, columns), group_columns(replicas, columns)}) all.push_back(groups.over(replicas));
  return all;
}

using Floats = std::vector<float>;
template <class A>
Floats floats(const A& array) {
  return {array.begin(), array.end()};
}

}  // namespace

TEST_CASE("all_to_all is a transpose of what the replicas hold, on any number of devices") {
  for (int replicas = 1; replicas <= 9; ++replicas)
    for (int devices = 1; devices <= replicas; ++devices) {
      INFO(replicas << " replicas on " << devices << " devices");
      Replicator repl{test::on_devices(replicas, devices)};
      auto step = repl.replicate(rows, [](ReplicaContext&, T x) { return std::tuple{all_to_all(x), all_to_all(all_to_all(x))}; });
      step.step();
      const auto [once, twice] = step.step();
      for (int r = 0; r < replicas; ++r)
        for (int j = 0; j < replicas; ++j) {
          REQUIRE(once[r][static_cast<std::size_t>(j)] == static_cast<float>(10 * j + r));
          REQUIRE(twice[r][static_cast<std::size_t>(j)] == static_cast<float>(10 * r + j));
        }
    }
}

TEST_CASE("every group receives what its members gave, on any number of devices") {
  for (const int replicas : {1, 2, 4, 6, 8, 9})
    for (const auto& groups : grids(replicas))
      for (int devices = 1; devices <= replicas; ++devices) {
        INFO(replicas << " replicas on " << devices << " devices in " << groups.text());
        Replicator repl{test::on_devices(replicas, devices)};
        const int members = groups.size(0);
        auto step = repl.replicate(rows, [&](ReplicaContext&, T x) {
          const CollectiveOptions in{.group = groups};
          const T total = all_reduce(x, Reduction::sum, in);
          return std::tuple{total,
                            all_reduce(sum(x), Reduction::mean, in),
                            all_gather(sum(x), in),
                            reduce_scatter(x, Reduction::sum, in),
                            broadcast(x, members - 1, in),
                            all_to_all(x, 0, 0, in),
                            gradient(sum(total * x), x)};
        });
        step.step();
        const auto [total, mean, gathered, scattered, sent, exchanged, slope] = step.step();
        const int part = replicas / members;
        for (int r = 0; r < replicas; ++r) {
          const auto& mine = groups.members(groups.group_of(r));
          const int position = groups.position(r);
          float ids = 0;
          for (const int member : mine) ids += static_cast<float>(member);
          const auto n = static_cast<float>(members), all = static_cast<float>(replicas);
          const auto given = [](int replica, int j) { return static_cast<float>(10 * replica + j); };
          const auto added = [&](int j) { return 10 * ids + n * static_cast<float>(j); };
          REQUIRE(mean[r].item() == (all * 10 * ids + n * all * (all - 1) / 2) / n);
          for (int j = 0; j < replicas; ++j) {
            const auto at = static_cast<std::size_t>(j);
            REQUIRE(total[r][at] == added(j));
            REQUIRE(sent[r][at] == given(mine.back(), j));
            REQUIRE(exchanged[r][at] == given(mine[at / static_cast<std::size_t>(part)], position * part + j % part));
            // d/dx_r of the sum over the group of (x_0 + x_1 + ...) x_i
            REQUIRE(slope[r][at] == 2 * added(j));
          }
          for (int j = 0; j < members; ++j)
            REQUIRE(gathered[r][static_cast<std::size_t>(j)] ==
                    all * 10 * static_cast<float>(mine[static_cast<std::size_t>(j)]) + all * (all - 1) / 2);
          for (int j = 0; j < part; ++j) REQUIRE(scattered[r][static_cast<std::size_t>(j)] == added(position * part + j));
        }
      }
}

TEST_CASE("groups of several sizes each have their own sum, on any number of devices") {
  const Groups groups{{0, 3, 4}, {1, 5}, {2}};
  for (int devices = 1; devices <= 6; ++devices) {
    Replicator repl{test::on_devices(6, devices)};
    auto step = repl.replicate(rows, [&](ReplicaContext&, T x) {
      return std::tuple{all_reduce(sum(x), Reduction::sum, {.group = groups}), all_reduce(x, Reduction::max, {.group = groups}),
                        broadcast(x, 0, {.group = groups})};
    });
    const auto [total, most, first] = step.step();
    const Floats sums{465, 390, 135, 465, 465, 390}, maxima{40, 50, 20, 40, 40, 50}, roots{0, 10, 20, 0, 0, 10};
    for (int r = 0; r < 6; ++r) {
      const auto at = static_cast<std::size_t>(r);
      CHECK(total[r].item() == sums[at]);
      CHECK(most[r][0] == maxima[at]);
      CHECK(first[r][0] == roots[at]);
    }
  }
}

TEST_CASE("a layer whose parts lie in the columns of a grid trains with the same losses on any number of devices") {
  // A grid of 2 rows and 2 columns. A row shares an example and adds the results of its columns' parts. The gradient of
  // each part is averaged over its column.
  const int replicas = 4, columns = 2;
  Floats one_device;
  for (int devices = 1; devices <= replicas; ++devices) {
    Replicator repl{test::on_devices(replicas, devices)};
    auto train = repl.replicate(rows, [&](ReplicaContext& replica, T x) {
      auto half = replica.variable<float>("half", {4}, Initializer::constant(0.1), {VariableKind::replica_local});
      const T w = half.read();
      const T example = broadcast(x * 0.01f, 0, {.group = group_rows(replicas, columns)});
      const T output = all_reduce(sum(w * example), Reduction::sum, {.group = group_rows(replicas, columns)});
      const T loss = (output - 1.0f) * (output - 1.0f) / static_cast<float>(columns);
      half.assign(w - 0.5f * all_reduce(gradient(loss, w), Reduction::mean, {.group = group_columns(replicas, columns)}));
      return all_reduce(loss, Reduction::sum);
    });
    Floats losses;
    for (auto [loss] : train.steps(20)) losses.push_back(loss[0].item());
    CHECK(losses.back() < 0.7f * losses.front());
    if (devices == 1) one_device = losses;
    CHECK(losses == one_device);
  }
}

}  // namespace test_groups
