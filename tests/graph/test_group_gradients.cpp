// SPDX-License-Identifier: Apache-2.0
// Gradients of all_to_all and of collectives inside groups.
#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

#include <replicator/cpu/movement.hpp>
#include <replicator/graph/graph_digest.hpp>
#include <replicator/resolve/all_to_all.hpp>
#include <replicator/resolve/map_over_replicas.hpp>

#include "../support/together.hpp"

namespace test_group_gradients {

using namespace replicator;
using namespace replicator::detail;
using test::collective_error;
using test::run_together;
using T = Tensor<double>;

TEST_CASE("all_to_all cuts along one axis and joins along another") {
  // Replica r holds rows of [2, 6]: element [i, j] is 100 r + 10 i + j.
  std::vector<Graph> graphs;
  std::vector<std::vector<AnyArray>> at;
  for (int r = 0; r < 3; ++r) {
    auto& graph = graphs.emplace_back(r, 3);
    Array<double> x{{2, 6}};
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 6; ++j) x[static_cast<std::size_t>(i * 6 + j)] = 100 * r + 10 * i + j;
    at.push_back({x.any()});
    const T t{test::input(graph, {DType::float64, Shape{2, 6}}, 0)};
    const T rows = all_to_all(t, 1, 0), columns = all_to_all(reshape(t, {6, 2}), 0, -1);
    graph.results() = {rows.any().value(), columns.any().value(), all_to_all(rows, 0, 1).any().value()};
  }
  const auto results = run_together(graphs, at);
  CHECK(results[1][0].shape() == Shape{6, 2});
  CHECK(test::doubles(results[1][0]) == std::vector<double>{2, 3, 12, 13, 102, 103, 112, 113, 202, 203, 212, 213});
  CHECK(results[1][1].shape() == Shape{2, 6});
  CHECK(test::doubles(results[1][1]) == std::vector<double>{4, 5, 104, 105, 204, 205, 10, 11, 110, 111, 210, 211});
  for (std::size_t r = 0; r < 3; ++r) CHECK(test::doubles(results[r][2]) == test::doubles(at[r][0]));
}

TEST_CASE("the gradient of all_to_all is the exchange back") {
  for (const std::size_t replicas : {1, 2, 3}) {
    const auto n = static_cast<std::int64_t>(replicas);
    CHECK(collective_error(replicas, {2 * n}, [](T x) { return all_to_all(x * x); }) < 1e-7);
    CHECK(collective_error(replicas, {2, 2 * n}, [](T x) { return all_to_all(x * x, 1, 0) * 2.0; }) < 1e-7);
    CHECK(collective_error(replicas, {n, 2}, [](T x) { return all_to_all(x * x, 0, 1); }) < 1e-7);
  }
}

TEST_CASE("gradients stay inside groups") {
  const Groups columns = group_columns(4, 2), rows = group_rows(4, 2), uneven{{0, 2, 3}, {1}};
  const auto error = [](auto f) { return collective_error(4, {4}, f); };
  for (const auto& groups : {columns, rows}) {
    const CollectiveOptions in{.group = groups};
    for (const auto reduction : {Reduction::sum, Reduction::mean, Reduction::min, Reduction::max}) {
      CHECK(error([&](T x) { return all_reduce(x * x, reduction, in) * x; }) < 1e-7);
      CHECK(error([&](T x) { return reduce_scatter(x * x, reduction, in); }) < 1e-7);
    }
    CHECK(error([&](T x) { return all_gather(x * x, in); }) < 1e-7);
    CHECK(error([&](T x) { return broadcast(x * x, 1, in) * x; }) < 1e-7);
    CHECK(error([&](T x) { return all_to_all(x * x, 0, 0, in) * x; }) < 1e-7);
  }
  const CollectiveOptions in{.group = uneven};
  CHECK(error([&](T x) { return all_reduce(x * x, Reduction::sum, in) * x; }) < 1e-7);
  CHECK(error([&](T x) { return all_reduce(x * x, Reduction::max, in) * x; }) < 1e-7);
  CHECK(error([&](T x) { return broadcast(x * x, 0, in) * x; }) < 1e-7);
}

TEST_CASE("the gradient of a broadcast inside groups leaves the graphs of all replicas equal") {
  std::vector<Graph> graphs;
  for (int r = 0; r < 4; ++r) {
    auto& graph = graphs.emplace_back(r, 4);
    const T x{test::input(graph, {DType::float64, Shape{2}}, 0)};
    graph.results() = {gradient(broadcast(x * x, 1, {.group = group_rows(4, 2)}), x).any().value()};
  }
  for (const auto& graph : graphs) CHECK(digest_of(graph) == digest_of(graphs[0]));
}

TEST_CASE("gradients pass through map_reduce and map_gather to what the thunks use") {
  const auto thunks = [](T x, int count) {
    std::vector<std::function<T()>> all;
    for (int i = 0; i < count; ++i) all.push_back([x, i] { return x * x * static_cast<double>(i + 1); });
    return all;
  };
  for (const std::size_t replicas : {1, 2, 3})
    for (const int count : {1, 2, 5}) {
      for (const auto reduction : {Reduction::sum, Reduction::mean, Reduction::max})
        CHECK(collective_error(replicas, {3}, [&](T x) { return map_reduce(x.graph(), thunks(x, count), reduction) * x; }) < 1e-7);
      CHECK(collective_error(replicas, {3}, [&](T x) { return map_gather(x.graph(), thunks(x, count)); }) < 1e-7);
      CHECK(collective_error(replicas, {3}, [&](T x) { return map_gather(x.graph(), thunks(sum(x), count)); }) < 1e-7);
    }
}

}  // namespace test_group_gradients
