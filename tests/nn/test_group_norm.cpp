// SPDX-License-Identifier: Apache-2.0
// Normalisations of single examples: layer, group and instance norm.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>

#include <replicator/graph/passes/optimise.hpp>
#include <replicator/nn/group_norm.hpp>
#include <replicator/nn/layer_norm.hpp>
#include <replicator/nn/rms_norm.hpp>

#include "../support/differences.hpp"
#include "../support/shapes.hpp"

namespace test_group_norm {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;

namespace {

// (x - mean) / sqrt(variance + epsilon) over each set of elements, set(index) telling which an element belongs to.
template <class Set>
std::vector<double> normalised(const Array<double>& x, double epsilon, const Set& set) {
  struct Sums {
    double n = 0, sum = 0, squares = 0;
  };
  std::map<std::int64_t, Sums> sums;
  const auto values = doubles(x.any());
  std::size_t next = 0;
  for_each_index(x.shape(), [&](const std::vector<std::int64_t>& i) {
    auto& s = sums[set(i)];
    s.n += 1;
    s.sum += values[next++];
  });
  next = 0;
  for_each_index(x.shape(), [&](const std::vector<std::int64_t>& i) {
    auto& s = sums[set(i)];
    const double distance = values[next++] - s.sum / s.n;
    s.squares += distance * distance;
  });
  std::vector<double> result;
  next = 0;
  for_each_index(x.shape(), [&](const std::vector<std::int64_t>& i) {
    const auto& s = sums[set(i)];
    result.push_back((values[next++] - s.sum / s.n) / std::sqrt(s.squares / s.n + epsilon));
  });
  return result;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  const Shape shape{static_cast<std::int64_t>(a.size())};
  if (a.size() != b.size()) return INFINITY;
  return largest_difference(array_of({DType::float64, shape}, a), array_of({DType::float64, shape}, b));
}

AnyTensor input_of(Graph& graph, std::uint32_t index) {
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i)
    if (const auto* input = graph.node(i).get<Input>(); input && input->index == index) return graph.tensor(i);
  return {};
}
// What a layer reads as its weight and its bias are inputs 1 and 2.
void read_inputs(Graph& graph) {
  graph.substitute() = [](Graph& of, std::uint32_t variable, AnyTensor, Location) {
    return input_of(of, of.variables()[variable].name.ends_with("bias") ? 2 : 1);
  };
}

std::vector<AnyArray> variables_like(const Array<double>& x, const Shape& shape) {
  return {x.any(), random_array<double>(shape, 8).any(), random_array<double>(shape, 9).any()};
}

// The values of a layer of x, weight and bias, and its derivatives of first and second order.
void check_layer(const Function& layer, const std::vector<AnyArray>& in, const std::vector<double>& expected) {
  Graph graph;
  const AnyTensor from[] = {input(graph, in[0].type(), 0), input(graph, in[1].type(), 1),
                            input(graph, in[2].type(), 2)};
  RC_ASSERT(difference(doubles(evaluate(layer(graph, from), in)), expected) < 1e-12);
  RC_ASSERT(gradient_error(layer, in, 1) < 1e-6);
  RC_ASSERT(gradient_error(layer, in, 2) < 1e-5);
}

struct GroupCase {
  Shape shape;
  std::int64_t groups;
};
GroupCase draw_groups() {
  const auto groups = *rc::gen::inRange<std::int64_t>(1, 4), width = *rc::gen::inRange<std::int64_t>(1, 4);
  Shape shape{*rc::gen::inRange<std::int64_t>(1, 4), groups * width};
  for (const auto extent : draw_shape(0, 2, 1, 3)) shape.push_back(extent);
  if (shape.elements() / shape[0] == groups) shape.push_back(2);
  return {shape, groups};
}

}  // namespace

TEST_CASE("layer norm normalises each example over any axes, then scales and shifts") {
  CHECK(rc::check([] {
    const auto x = random_array<double>(draw_shape(1, 4, 1, 4), 1);
    const auto rank = static_cast<std::int64_t>(x.shape().rank());
    std::vector<bool> normal(static_cast<std::size_t>(rank));
    normal[*rc::gen::inRange<std::size_t>(0, normal.size())] = true;
    for (std::size_t axis = 0; axis < normal.size(); ++axis) normal[axis] = normal[axis] || *rc::gen::arbitrary<bool>();
    Axes over;
    Shape weights;
    for (std::int64_t axis = 0; axis < rank; ++axis)
      if (normal[static_cast<std::size_t>(axis)]) over.axes.push_back(axis), weights.push_back(x.shape()[static_cast<std::size_t>(axis)]);
    if (*rc::gen::arbitrary<bool>()) over.axes.back() -= rank;
    const auto in = variables_like(x, weights);
    const auto layer = [&](Graph& graph, std::span<const AnyTensor> from) {
      ReplicaContext replica{graph};
      read_inputs(graph);
      return nn::layer_norm(replica, Tensor<double>{from[0]}, "ln", {.over = over, .epsilon = 0.1}).any();
    };
    // The number of an element among the axes that are normalised, or among the others.
    const auto number = [&](const std::vector<std::int64_t>& i, bool of) {
      std::int64_t result = 0;
      for (std::size_t axis = 0; axis < normal.size(); ++axis)
        if (normal[axis] == of) result = result * x.shape()[axis] + i[axis];
      return result;
    };
    auto expected = normalised(x, 0.1, [&](const std::vector<std::int64_t>& i) { return number(i, false); });
    const auto gain = doubles(in[1]), shift = doubles(in[2]);
    std::size_t element = 0;
    for_each_index(x.shape(), [&](const std::vector<std::int64_t>& i) {
      const auto weight = static_cast<std::size_t>(number(i, true));
      expected[element] = expected[element] * gain[weight] + shift[weight];
      ++element;
    });
    check_layer(layer, in, expected);
  }));
}

TEST_CASE("group norm normalises the channels of each group together, then scales and shifts each channel") {
  CHECK(rc::check([] {
    const auto [shape, groups] = draw_groups();
    RC_LOG(shape.text() + " in " + std::to_string(groups));
    const auto x = random_array<double>(shape, 1);
    const auto channels = shape[1], width = shape[1] / groups;
    const auto in = variables_like(x, {channels});
    const auto layer = [groups = groups](Graph& graph, std::span<const AnyTensor> from) {
      ReplicaContext replica{graph};
      read_inputs(graph);
      return nn::group_norm(replica, Tensor<double>{from[0]}, "gn", {.groups = groups, .epsilon = 0.1}).any();
    };
    auto expected =
        normalised(x, 0.1, [&](const std::vector<std::int64_t>& i) { return i[0] * channels + i[1] / width; });
    const auto gain = doubles(in[1]), shift = doubles(in[2]);
    std::size_t next = 0;
    for_each_index(x.shape(), [&](const std::vector<std::int64_t>& i) {
      const auto c = static_cast<std::size_t>(i[1]);
      expected[next] = expected[next] * gain[c] + shift[c];
      ++next;
    });
    check_layer(layer, in, expected);
  }));
}

TEST_CASE("instance norm normalises each channel of each example by itself") {
  const auto x = random_array<double>({2, 3, 2, 2}, 4);
  Graph graph;
  ReplicaContext replica{graph};
  const auto y = nn::instance_norm(replica, input(graph, x, 0), "in");
  CHECK(graph.variables().empty());
  const auto expected = normalised(x, 1e-5, [](const std::vector<std::int64_t>& i) { return i[0] * 3 + i[1]; });
  CHECK(difference(doubles(evaluate(y, std::vector{x.any()})), expected) < 1e-12);
}

TEST_CASE("a batch without examples is normalised to one, and gives gradients of 0") {
  const Array<double> x{Shape{0, 4, 3}};
  const auto check = [&](const Shape& weights, auto layer) {
    Graph graph;
    ReplicaContext replica{graph};
    const auto in = variables_like(x, weights);
    const AnyTensor from[] = {input(graph, in[0].type(), 0), input(graph, in[1].type(), 1)};
    read_inputs(graph);
    input(graph, in[2].type(), 2);
    const Tensor<double> y = layer(replica, Tensor<double>{from[0]});
    const auto slopes = gradients(sum(y), from, {});
    const auto results = evaluate(graph, std::vector{y.any().value(), slopes[0].value(), slopes[1].value()}, in);
    CHECK(results[0].shape() == x.shape());
    CHECK(results[1].shape() == x.shape());
    CHECK(doubles(results[2]) == std::vector<double>(static_cast<std::size_t>(weights.elements())));
  };
  check({3}, [](auto& r, auto of) { return nn::layer_norm(r, of, "ln"); });
  check({4}, [](auto& r, auto of) { return nn::layer_norm(r, of, "ln", {.over = 1}); });
  check({3}, [](auto& r, auto of) { return nn::rms_norm(r, of, "rn"); });
  check({4}, [](auto& r, auto of) { return nn::group_norm(r, of, "gn", {.groups = 2}); });
  check({4}, [](auto& r, auto of) { return nn::instance_norm(r, of, "in", {.affine = true}); });
}

TEST_CASE("group norm far from zero does not cancel") {
  Array<double> x{{1, 2, 500}};
  for (std::int64_t i = 0; i < 1000; ++i) x[i] = 1e8 + static_cast<double>(i % 2);
  Graph graph;
  ReplicaContext replica{graph};
  const auto y = nn::group_norm(replica, input(graph, x, 0), "gn", {.groups = 1, .epsilon = 0, .affine = false});
  for (const double value : doubles(evaluate(y, std::vector{x.any()}))) REQUIRE(std::abs(value) == Approx(1));
}

TEST_CASE("normalisations of examples have PyTorch's variables, or none") {
  const auto names = [](auto declare) {
    Graph graph;
    ReplicaContext replica{graph};
    declare(replica, Tensor<float>{input(graph, {DType::float32, {2, 6, 4}}, 0)});
    std::vector<std::string> result;
    for (const auto& variable : graph.variables())
      result.push_back(variable.name + variable.type.shape.text() + (variable.initializer.a == 1 ? " ones" : " zeros"));
    return result;
  };
  using Names = std::vector<std::string>;
  CHECK(names([](auto& r, auto x) { nn::layer_norm(r, x, "ln"); }) == Names{"ln.weight[4] ones", "ln.bias[4] zeros"});
  CHECK(names([](auto& r, auto x) { nn::layer_norm(r, x, "ln", {.over = {-2, -1}}); }) ==
        Names{"ln.weight[6, 4] ones", "ln.bias[6, 4] zeros"});
  CHECK(names([](auto& r, auto x) { nn::layer_norm(r, x, "ln", {.over = 1}); }) == Names{"ln.weight[6] ones", "ln.bias[6] zeros"});
  CHECK(names([](auto& r, auto x) { nn::layer_norm(r, x, "ln", {.affine = false}); }) == Names{});
  CHECK(names([](auto& r, auto x) { nn::group_norm(r, x, "gn", {.groups = 2}); }) ==
        Names{"gn.weight[6] ones", "gn.bias[6] zeros"});
  CHECK(names([](auto& r, auto x) { nn::group_norm(r, x, "gn", {.groups = 2, .affine = false}); }) == Names{});
  CHECK(names([](auto& r, auto x) { nn::instance_norm(r, x, "in", {.affine = true}); }) ==
        Names{"in.weight[6] ones", "in.bias[6] zeros"});
}

TEST_CASE("layer and group norm and their gradients pass over the activations as often as batch norm") {
  const bool layer = GENERATE(true, false);
  INFO((layer ? "layer" : "group"));
  const Shape shape = layer ? Shape{512, 64} : Shape{8, 16, 8, 8};
  Graph graph;
  ReplicaContext replica{graph};
  const Tensor<double> x{input(graph, {DType::float64, shape}, 0)};
  const auto y = layer ? nn::layer_norm(replica, x, "n") : nn::group_norm(replica, x, "n", {.groups = 4});
  std::vector<AnyTensor> wanted{x};
  for (const auto& variable : replica.trainable_variables<double>()) wanted.push_back(variable.read());
  // dy = exp(y): one pass that reads y and writes dy.
  for (const auto& gradient : gradients(apply(ScalarOp::exponential, {y.any()}, {}), wanted))
    graph.results().push_back(gradient.value());
  graph.results().push_back(y.any().value());
  const auto optimised = optimise(graph);
  int reads = 0, writes = 0;
  for (const auto& node : optimised.nodes()) {
    for (const auto value : node.inputs) reads += optimised.type(value).shape == shape ? 1 : 0;
    for (const auto& output : node.outputs) writes += output.shape == shape && node.get<Compute>() ? 1 : 0;
  }
  // As batch norm: mean, variance; y; dy; the sums of dy and x; dx of dy and x. Layer norm sums dy and x twice: the
  // gradients of its variables are sums over the examples, those of its moments over the features.
  CHECK(reads == 2 + 1 + 1 + 2 + 2 + (layer ? 2 : 0));
  CHECK(writes == 3);
}

TEST_CASE("normalisations of examples refuse what they cannot normalise, at the user's line") {
  Graph graph{1, 2};
  ReplicaContext replica{graph};
  const auto images = [&](const Shape& shape) { return Tensor<float>{input(graph, {DType::float32, shape}, 0)}; };
  const std::string text = ": asked for 4 groups, which must divide the channels, found float32[2, 6, 4]";
  const auto at = "replica 1: group_norm \"gn\" at test_group_norm.cpp:" + std::to_string(__LINE__ + 1);
  CHECK_THROWS_WITH(nn::group_norm(replica, images({2, 6, 4}), "gn", {.groups = 4}), at + text);
  CHECK_THROWS_WITH(nn::group_norm(replica, images({2, 6}), "gn", {}), Contains("asked for 0 groups"));
  CHECK_THROWS_WITH(nn::group_norm(replica, images({6}), "gn", {.groups = 2}), Contains("x must be [N, C, ...]"));
  CHECK_THROWS_WITH(nn::instance_norm(replica, images({2, 6, 1, 1}), "in"),
                    Contains("instance_norm \"in\"") && Contains("more than one element in each group"));
  CHECK_THROWS_WITH(nn::instance_norm(replica, images({6}), "in"), Contains("x must be [N, C, ...]"));
  CHECK_THROWS_WITH(nn::layer_norm(replica, images({2, 6}), "ln", {.over = 2}),
                    Contains("layer_norm \"ln\" at test_group_norm.cpp:") && Contains("the axis 2 does not exist in the shape [2, 6]"));
  CHECK_THROWS_WITH(nn::layer_norm(replica, images({2, 0}), "ln"), Contains("layer_norm \"ln\"") && Contains("x must have an axis, and elements along the normalised axes, found float32[2, 0]"));
  CHECK_THROWS_WITH(nn::group_norm(replica, images({2, 6, 0}), "gn", {.groups = 2}), Contains("its examples must have elements, found float32[2, 6, 0]"));
}

}  // namespace test_group_norm
