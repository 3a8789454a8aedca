// SPDX-License-Identifier: Apache-2.0
// The pass that makes small arithmetic the epilogue of a reduction: which nodes it joins, and that they keep their bits.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/cpu/map.hpp>
#include <replicator/cpu/movement.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/graph/passes/fuse_reduces.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/ops/reduce.hpp>

#include "../support/run_graph.hpp"

namespace test_fused_reduces {

using namespace replicator;
using namespace replicator::detail;

namespace {

std::size_t count(const Graph& graph, std::string_view kind) {
  return static_cast<std::size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) { return node.kind() == kind; }));
}
std::size_t small_maps(const Graph& graph, std::int64_t most) {
  return static_cast<std::size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    const auto* map = operation_of<Map>(node);
    return map && map->domain.elements() <= most;
  }));
}

// What the operation stands for: a Reduce, and a Map that reads its results.
Graph split(const Graph& graph) {
  Rewriter rewriter{graph};
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    const auto* fused = operation_of<FusedReduce>(graph.node(i));
    if (!fused) {
      rewriter.copy(i);
      continue;
    }
    Graph& to = rewriter.to();
    std::vector<AnyTensor> inputs, operands;
    for (const auto input : graph.node(i).inputs) inputs.push_back(rewriter.tensor(input));
    const auto reduced = static_cast<std::ptrdiff_t>(fused->reduced_inputs());
    const auto reduce = add_compute(to, fused->reduce, std::vector(inputs.begin(), inputs.begin() + reduced), {});
    const Shape results = to.tensor(reduce, 0).shape();
    for (std::uint32_t o = 0; o < fused->reduce.dtypes.size(); ++o) operands.push_back(to.tensor(reduce, o));
    for (auto input = inputs.begin() + reduced; input != inputs.end(); ++input)
      operands.push_back(reshape(*input, input->shape().elements() == 1 ? Shape{} : results, {}));
    const auto map = add_compute(to, Map{fused->epilogue, results, fused->dtypes}, operands, {});
    std::vector<Value> values;
    for (std::uint32_t o = 0; o < fused->shapes.size(); ++o) values.push_back(reshape(to.tensor(map, o), fused->shapes[o], {}).value());
    rewriter.replace(i, std::move(values));
  }
  return std::move(rewriter).finish();
}

void require_same(const Graph& graph, const Graph& fused, const std::vector<AnyArray>& inputs) {
  const auto want = test::run_graph(graph, inputs), got = test::run_graph(split(fused), inputs);
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].type() == want[i].type());
    REQUIRE(std::memcmp(got[i].data(), want[i].data(), want[i].size_bytes()) == 0);
  }
}

// A graph with float32 inputs of these shapes, and its results.
class Traced {
 public:
  explicit Traced(const std::vector<Shape>& shapes) {
    for (const auto& shape : shapes) add(shape);
  }
  Tensor<float> add(const Shape& shape) {
    arrays_.push_back(test::random_array<float>(shape, 5 + arrays_.size()).any());
    return inputs_.emplace_back(test::input(graph_, {DType::float32, shape}, static_cast<std::uint32_t>(inputs_.size())));
  }
  const Tensor<float>& operator[](std::size_t i) const { return inputs_[i]; }
  Graph& graph() { return graph_; }
  void give(AnyTensor result) { graph_.results().push_back(result.value()); }
  // The graph behind the pass. It has kept its bits.
  Graph fused() const {
    const Graph single = optimise(graph_);
    const Graph result = passes::fuse_reduces(single).graph;
    require_same(single, result, arrays_);
    return result;
  }

 private:
  Graph graph_;
  std::vector<Tensor<float>> inputs_;
  std::vector<AnyArray> arrays_;
};

}  // namespace

TEST_CASE("a batch norm and its gradient are three reductions and the arithmetic on all elements") {
  constexpr std::int64_t channels = 6;
  Traced traced{{{4, channels, 5, 5}, {1, channels, 1, 1}, {1, channels, 1, 1}, {channels}, {4, channels, 5, 5}}};
  const auto x = traced[0], gamma = traced[1], beta = traced[2], running = traced[3];
  const auto by = moments(x, Axes{0, 2, 3}.kept());
  const auto y = normalise(x, by, gamma, beta);
  traced.give(y.any());
  traced.give((running * 0.9f + reshape(by.mean, {channels}) * 0.1f).any());
  for (const auto& d : gradients(sum(y * traced[4]).any(), std::vector<AnyTensor>{x.any(), gamma.any(), beta.any()})) traced.give(d);
  CHECK(small_maps(optimise(traced.graph()), channels) == 7);
  const Graph fused = traced.fused();
  CHECK(count(fused, "fused_reduce") == 3);
  CHECK(count(fused, "reduce") == 0);
  CHECK(small_maps(fused, channels) == 0);
}

TEST_CASE("a result that others read is an output beside those of the epilogue") {
  Traced traced{{{20, 6}}};
  const auto sums = sum(traced[0], {0});
  traced.give(sums.any());
  traced.give(exp(sums * 0.5f).any());
  const Graph fused = traced.fused();
  REQUIRE(count(fused, "fused_reduce") == 1);
  CHECK(fused.results()[0].node == fused.results()[1].node);
}

TEST_CASE("arithmetic on several reductions belongs to the last one, for which the others are there") {
  Traced traced{{{20, 6}}};
  const auto means = mean(traced[0], Axes{0}.kept());
  const auto squares = sum(traced[0] * means, {0});
  traced.give((reshape(means, {6}) / squares).any());
  const Graph fused = traced.fused();
  CHECK(count(fused, "fused_reduce") == 2);
  CHECK(count(fused, "map") == 0);
}

TEST_CASE("arithmetic is joined where its other operands are made before the reduction, or are inputs") {
  Traced traced{{{20, 6}, {3, 2}}};
  const auto turned = [&] { return reshape(transpose(traced[1], {1, 0}), {6}); };
  const auto early = turned();
  const auto sums = sum(traced[0], {0});
  SECTION("made before") {
    traced.give((sums * early).any());
    CHECK(count(traced.fused(), "map") == 0);
  }
  SECTION("made behind") {
    const auto late = exp(turned());
    traced.give(early.any());
    traced.give((sums * reshape(transpose(reshape(late, {2, 3}), {1, 0}), {6})).any());
    CHECK(count(traced.fused(), "fused_reduce") == 0);
  }
  SECTION("an input behind, by way of another shape") {
    traced.give((sums * reshape(traced.add({6, 1}), {6})).any());
    CHECK(count(traced.fused(), "map") == 0);
  }
}

TEST_CASE("what stays a node of its own") {
  const auto joined = [](auto formula, Shape shape = {20, 6}) {
    Traced traced{{shape}};
    formula(traced);
    return count(traced.fused(), "fused_reduce");
  };
  CHECK(joined([](Traced& t) { t.give(exp(sum(t[0], {0})).any()); }) == 1);
  CHECK(joined([](Traced& t) { t.give(exp(sum(t[0], {0})).any()); }, {40, 4096}) == 1);
  // more results than a launch is worth
  CHECK(joined([](Traced& t) { t.give(exp(sum(t[0], {0})).any()); }, {40, 4097}) == 0);
  // it is for all elements
  CHECK(joined([](Traced& t) { t.give((t[0] * sum(t[0], {0})).any()); }) == 0);
  // the sum is stored as bfloat16, and read again
  CHECK(joined([](Traced& t) { t.give(exp(cast<float>(sum(cast<bfloat16>(t[0]), {0}))).any()); }) == 0);
  // a sum of nothing
  CHECK(joined([](Traced& t) { t.give(exp(sum(t[0], {0})).any()); }, {0, 6}) == 0);
  // results in another order
  CHECK(joined([](Traced& t) { t.give(exp(transpose(sum(t[0], {0}), {1, 0})).any()); }, {20, 3, 2}) == 0);
}

TEST_CASE("arithmetic in another type stays a node of its own, behind the conversion") {
  Traced traced{{{20, 6}}};
  traced.give((cast<double>(sum(traced[0], {0})) * 3.0).any());
  const Graph fused = traced.fused();
  CHECK(count(fused, "fused_reduce") == 1);
  CHECK(count(fused, "map") == 1);
}

TEST_CASE("an epilogue has at most 64 instructions; what is left are Maps") {
  Traced traced{{{20, 6}}};
  auto value = sum(traced[0], {0});
  for (int i = 0; i < 40; ++i) value = exp(value * (0.5f + static_cast<float>(i)) - 1.0f);
  traced.give(value.any());
  const Graph fused = traced.fused();
  REQUIRE(count(fused, "fused_reduce") == 1);
  CHECK(count(fused, "map") > 0);
  for (const auto& node : fused.nodes())
    if (const auto* operation = operation_of<FusedReduce>(node)) CHECK(operation->epilogue->code.size() <= 64);
}

TEST_CASE("an epilogue reads at most 24 values") {
  Traced traced{{{20, 6}}};
  auto value = sum(traced[0], {0});
  for (int i = 0; i < 30; ++i) value = tanh(value * traced.add({6}));
  traced.give(value.any());
  const Graph fused = traced.fused();
  REQUIRE(count(fused, "fused_reduce") == 1);
  CHECK(count(fused, "map") > 0);
  for (const auto& node : fused.nodes())
    if (const auto* operation = operation_of<FusedReduce>(node)) CHECK(operation->epilogue->inputs <= 24);
}

TEST_CASE("nodes of other segments and uniform nodes are not joined") {
  Traced traced{{{20, 6}}};
  traced.give(exp(sum(traced[0], {0})).any());
  const Graph graph = optimise(traced.graph());
  const auto joined = [&](const std::vector<bool>& uniform, const std::vector<std::uint32_t>& segments) {
    return count(passes::fuse_reduces(graph, uniform, segments).graph, "fused_reduce");
  };
  REQUIRE(graph.nodes().size() == 3);
  CHECK(joined({false, false, false}, {0, 0, 0}) == 1);
  CHECK(joined({true, true, true}, {0, 0, 0}) == 0);
  CHECK(joined({true, true, false}, {0, 0, 0}) == 0);
  CHECK(joined({false, false, false}, {0, 0, 1}) == 0);
}

TEST_CASE("each output says which value it is, and keeps its line") {
  Traced traced{{{20, 6}}};
  const auto sums = sum(traced[0], {0});
  const auto halves = exp(sums * 0.5f);
  traced.give(halves.any());
  const Graph graph = optimise(traced.graph());
  const auto fused = passes::fuse_reduces(graph);
  REQUIRE(fused.graph.nodes().size() == 2);
  REQUIRE(fused.origins.size() == 2);
  CHECK(fused.origins[1] == std::vector<Value>{graph.results()[0]});
  CHECK(fused.graph.node(1).line_of(0).text() == graph.node(graph.results()[0].node).where.text());
  CHECK(operation_of<FusedReduce>(fused.graph.node(1))->formula(100) == "sum of x0, then exp(mul(x0, 0.5))");
}

TEST_CASE("random graphs of sums and arithmetic on them keep their bits") {
  std::size_t joined = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    PhiloxStream random{seed, 4};
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(n))); };
    Traced traced{{{40, 6}, {6}, {1, 6}, {}, {40, 6}}};
    std::vector<Tensor<float>> pool{traced[0], traced[1], traced[2], traced[3], traced[4]};
    for (std::size_t i = 4 + below(16); i > 0; --i) {
      const auto a = pool[below(pool.size())], b = pool[below(pool.size())];
      switch (below(8)) {
        case 0: pool.push_back(a - b); break;
        case 1: pool.push_back(a * b); break;
        case 2: pool.push_back(exp(tanh(a))); break;
        case 3: pool.push_back(max(traced[0] - a, {0})); break;
        case 4: pool.push_back(a.shape() == Shape{6} ? reshape(a, {1, 6}) : a); break;
        case 5: pool.push_back(sum(a)); break;
        default: pool.push_back(sum(traced[4] * a, below(2) ? Axes{0} : Axes{0}.kept()));
      }
    }
    for (std::size_t i = 0; i < 3; ++i) traced.give(pool[pool.size() - 1 - below(std::min<std::size_t>(pool.size(), 6))].any());
    joined += count(traced.fused(), "fused_reduce");
  }
  CHECK(joined > 50);
}

}  // namespace test_fused_reduces
