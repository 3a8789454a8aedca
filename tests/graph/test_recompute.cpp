// SPDX-License-Identifier: Apache-2.0
// Which values a backward pass recomputes, and which it keeps.
#include <catch2/catch.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/ops/recompute.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../support/evaluate.hpp"

namespace test_recompute {

using namespace replicator;
using namespace replicator::detail;

namespace {

constexpr std::int64_t rows = 64, width = 32;

Tensor<float> matrix(Graph& graph, std::uint32_t index, std::int64_t height = rows) {
  return Tensor<float>{test::input(graph, {DType::float32, Shape{height, width}}, index)};
}

// Bytes that nodes of a derivative read and that those before it made.
std::size_t bytes_kept(const Graph& graph) {
  std::size_t bytes = 0;
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    const auto& node = graph.node(i);
    if (!node.get<Compute>() || node.marks.order > 0) continue;
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o) {
      bool late = false;
      for (const auto& user : graph.nodes())
        for (const auto input : user.inputs) late = late || (input == Value{i, o} && user.marks.order > 0);
      if (late) bytes += node.outputs[o].bytes();
    }
  }
  return bytes;
}

template <class Op>
std::size_t count(const Graph& graph) {
  std::size_t n = 0;
  for (const auto& node : graph.nodes()) n += operation_of<Op>(node) != nullptr;
  return n;
}

constexpr passes::RecomputeOptions everything{.smallest = 0};
constexpr passes::RecomputeOptions nothing{.smallest = std::int64_t{1} << 40};

// x -> relu(norm(x w)) -> ..., and the gradients of all w.
template <class Layer>
Graph chain(int layers, Layer layer) {
  Graph graph;
  Tensor<float> x = matrix(graph, 0);
  std::vector<Tensor<float>> weights;
  for (int i = 0; i < layers; ++i) {
    weights.push_back(matrix(graph, 1 + static_cast<std::uint32_t>(i), width));
    x = layer(x, weights.back());
  }
  const auto loss = mean(x * x);
  graph.results().push_back(loss.any().value());
  for (const auto& g : gradients(loss, weights)) graph.results().push_back(g.any().value());
  return graph;
}

Tensor<float> normalised_layer(Tensor<float> x, Tensor<float> w) {
  const auto y = matmul(x, w);
  const auto by = moments(y, Axes{0}.kept());
  return relu(normalise(y, by, by.mean, by.variance));
}
Tensor<float> smooth_layer(Tensor<float> x, Tensor<float> w) { return tanh(matmul(x, w)); }

constexpr std::size_t value = rows * width * sizeof(float);
// Means, variances, scales.
constexpr std::size_t small = 8 * width * sizeof(float);

}  // namespace

TEST_CASE("of a normalised layer the backward pass keeps what the matrix product gave, not what the ReLU makes of it") {
  const int layers = 4;
  const Graph graph = chain(layers, normalised_layer);
  const auto kept = bytes_kept(condense(graph, nothing)), less = bytes_kept(condense(graph, everything));
  CHECK(kept >= 2 * layers * value - value);  // the last ReLU is fused into the loss
  CHECK(less >= layers * value);
  CHECK(less <= layers * (value + small));
  CHECK(count<Matmul>(condense(graph, everything)) == count<Matmul>(condense(graph, nothing)));
}

TEST_CASE("exponentials and the like are kept, and so is what would be computed from a tensor that is not kept") {
  const Graph smooth = chain(3, smooth_layer);
  CHECK(bytes_kept(condense(smooth, everything)) == bytes_kept(condense(smooth, nothing)));
  const Graph plain = chain(3, [](auto x, auto w) { return relu(matmul(x, w)); });
  CHECK(bytes_kept(condense(plain, everything)) == bytes_kept(condense(plain, nothing)));
}

TEST_CASE("a value smaller than asked for is kept") {
  const Graph graph = chain(3, normalised_layer);
  const auto kept = bytes_kept(condense(graph, nothing));
  CHECK(bytes_kept(condense(graph, {.smallest = value + 1})) == kept);
  CHECK(bytes_kept(condense(graph, {.smallest = value})) < kept);
}

TEST_CASE("of what is in rp::recompute only the arguments and the results are kept") {
  const int layers = 6;
  const auto two = [](Tensor<float> x, Tensor<float> w) { return smooth_layer(smooth_layer(x, w), w); };
  const Graph plain = chain(layers, two), marked = chain(layers, recompute(two));
  // Plainly, of each pair both; the last one too, since mean(x x) reads it.
  CHECK(bytes_kept(condense(plain, everything)) == 2 * layers * value);
  CHECK(bytes_kept(condense(marked, everything)) == layers * value);
  // The first product of each pair again, and of the second nothing.
  CHECK(count<Matmul>(condense(marked, everything)) == count<Matmul>(condense(plain, everything)) + layers);
}

TEST_CASE("what a region returns is kept though it could be computed from what the region computes again") {
  const int layers = 6;
  const auto two = [](Tensor<float> x, Tensor<float> w) { return normalised_layer(normalised_layer(x, w), w); };
  const auto kept = bytes_kept(condense(chain(layers, recompute(two)), everything));
  CHECK(kept >= (layers - 1) * value);  // the last one is fused into the loss
  CHECK(kept <= layers * (value + 2 * small));
}

TEST_CASE("what is computed again stands right before the first later use of it") {
  const auto two = [](Tensor<float> x, Tensor<float> w) { return smooth_layer(smooth_layer(x, w), w); };
  const Graph graph = condense(chain(3, recompute(two)), everything);
  int open = 0, most = 0;  // copies of inner values of layers whose derivative is not through
  const auto users = users_of(graph);
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    const auto& node = graph.node(i);
    for (std::uint32_t j = 0; j < i; ++j)
      if (graph.node(j).marks.region > 0 && graph.node(j).marks.order > 0 && users[j].back() == i) --open;
    if (node.marks.region > 0 && node.marks.order > 0) ++open;
    most = std::max(most, open);
  }
  CHECK(most <= 2);  // the product and its tanh
}

TEST_CASE("collectives inside of rp::recompute are asked for once, random numbers are the same again") {
  Graph graph{0, 2};
  const auto x = matrix(graph, 0), w = matrix(graph, 1, width);
  const auto y = recompute([](auto a, auto b) { return tanh(all_reduce(matmul(a, b), Reduction::sum) * a); })(x, w);
  graph.results().push_back(gradient(mean(y * y), w).any().value());
  std::size_t placeholders = 0;
  const Graph condensed = condense(graph, everything);
  for (const auto& node : condensed.nodes()) placeholders += node.get<Placeholder>() != nullptr;
  CHECK(placeholders == 2);  // and that of the gradient
}

TEST_CASE("within another one, rp::recompute is part of it") {
  Graph graph;
  const auto x = matrix(graph, 0), w = matrix(graph, 1, width);
  const auto inner = recompute([](auto a, auto b) { return tanh(matmul(a, b)); });
  const auto y = recompute([&](auto a, auto b) { return inner(inner(a, b), b); })(x, w);
  for (const auto& node : graph.nodes())
    if (node.get<Compute>()) CHECK(node.marks.region == 1);
  const auto loss = mean(y * y);
  graph.results().push_back(loss.any().value());
  graph.results().push_back(gradient(loss, w).any().value());
  CHECK(bytes_kept(condense(graph, everything)) == value);
}

TEST_CASE("a region may be a chain of any length") {
  constexpr int length = 100000;
  Graph graph;
  const auto x = matrix(graph, 0);
  const auto chain = replicator::recompute([](Tensor<float> y) {
    for (int i = 0; i < length; ++i) y = transpose(y, {1, 0});
    return sum(y * y);
  });
  const auto loss = chain(x);
  graph.results() = {loss.any().value(), gradient(loss, x).any().value()};
  CHECK(count<Transpose>(passes::recompute(graph, everything)) == 3 * length);  // forward, again, back
}

}  // namespace test_recompute
