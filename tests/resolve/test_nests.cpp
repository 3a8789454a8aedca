// SPDX-License-Identifier: Apache-2.0
// Collectives over nests: a placeholder for each tensor, labelled by its path, merged by resolution.
#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/resolve/nests.hpp>

#include "graphs.hpp"

namespace test_nests {

using namespace replicator;
using namespace replicator::detail;
using test::traced;
using T = Tensor<float>;

namespace {

struct Layer {
  T weight;
  T bias;
  int steps = 0;  // is no tensor, and stays

  template <class V>
  void describe(V& v) const {
    v("weight", weight);
    v("bias", bias);
    v("steps", steps);
  }
};
struct Model {
  std::vector<Layer> layers;
  std::pair<T, std::array<T, 1>> rest;

  template <class V>
  void describe(V& v) const {
    v("layers", layers);
    v("rest", rest);
  }
};

std::vector<std::string> labels(const Graph& graph) {
  std::vector<std::string> found;
  for (const auto& node : graph.nodes())
    if (node.get<Placeholder>()) found.push_back(node.label);
  return found;
}

struct Nothing {};
struct NotDescribed {
  T x;
};
static_assert(TensorNest<std::tuple<T, Tensor<int>>> && TensorNest<std::vector<T>> && TensorNest<Layer> &&
              TensorNest<Model> && TensorNest<std::vector<std::tuple<Model>>>);
static_assert(!TensorNest<T> && !TensorNest<int> && !TensorNest<Nothing> && !TensorNest<NotDescribed> && !TensorNest<std::vector<int>>);

}  // namespace

TEST_CASE("each tensor of a nest has a placeholder with its path as label, and the shape of the nest stays") {
  const auto graphs = traced(2, [](ReplicaContext& replica, T x) {
    const Model model{{{x, x * 2.0f, 7}, {x * 3.0f, x * 4.0f, 8}}, {x * 5.0f, {x * 6.0f}}};
    const Model sum = all_reduce(model, Reduction::sum, {.label = "g"});
    CHECK(sum.layers.size() == 2);
    CHECK(sum.layers[1].steps == 8);
    for (const auto& t : {sum.layers[0].weight, sum.layers[0].bias, sum.layers[1].weight, sum.layers[1].bias, sum.rest.first, sum.rest.second[0]}) {
      CHECK(replica.graph().node(t.any().value()).get<Placeholder>());
      replica.graph().results().push_back(t.any().value());
    }
    CHECK(model.layers[0].weight.any().value() == x.any().value());
  });
  CHECK(labels(graphs[0]) ==
        std::vector<std::string>{"g/layers/0/weight", "g/layers/0/bias", "g/layers/1/weight", "g/layers/1/bias", "g/rest/0", "g/rest/1/0"});
  const auto resolution = resolve(graphs);
  CHECK(resolution.buckets.size() == 1);
  CHECK(resolution.buckets[0].members.size() == 6);
}

TEST_CASE("every collective takes nests") {
  const auto graphs = traced(2, [](ReplicaContext& replica, T x) {
    const std::tuple both{x, cast<double>(x)};
    CHECK(std::get<0>(all_gather(both)).shape() == Shape{8, 2});
    CHECK(std::get<1>(reduce_scatter(both, Reduction::sum)).shape() == Shape{2, 2});
    CHECK(std::get<1>(all_to_all(both, 0, 1)).shape() == Shape{2, 4});
    CHECK(std::get<0>(broadcast(both, 1)).shape() == Shape{4, 2});
    std::vector<T> row{x, x * x};
    for (const auto& t : all_reduce(row, Reduction::mean, {.group = {{0}, {1}}}))
      CHECK(replica.graph().node(t.any().value()).get<Placeholder>()->groups.count() == 2);
    CHECK(all_reduce(std::vector<T>{}, Reduction::sum).empty());
  });
  CHECK(labels(graphs[1]) == std::vector<std::string>{"0", "1", "0", "1", "0", "1", "0", "1", "0", "1"});
  CHECK(test::resolution_error(graphs) == "nothing");
}

TEST_CASE("gradients come as a row that can be reduced at once") {
  const auto graphs = traced(2, [](ReplicaContext& replica, T x) {
    const auto w = replica.variable<float>("w", {2}, Initializer::ones()).read(), b = replica.variable<float>("b", {2}, Initializer::zeros()).read();
    const auto mean = all_reduce(gradients(x * w + b, std::vector<T>{w, b}), Reduction::mean, {.label = "gradient"});
    for (const auto& t : mean) replica.graph().results().push_back(t.any().value());
  });
  CHECK(labels(graphs[0]) == std::vector<std::string>{"gradient/0", "gradient/1"});
}

TEST_CASE("the collective of a gradient is labelled by the collective that it belongs to") {
  const auto graphs = traced(2, [](ReplicaContext& replica, T x) {
    const auto named = all_gather(x, {.label = "weights"}), unnamed = all_gather(x);
    replica.graph().results().push_back(gradient(sum(named * unnamed), x).any().value());
  });
  CHECK(labels(graphs[0]) == std::vector<std::string>{"weights", "", "", "weights/gradient"});
}

}  // namespace test_nests
