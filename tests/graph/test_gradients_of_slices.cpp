// SPDX-License-Identifier: Apache-2.0
// The gradient of a tensor that was cut into slices costs as much as the tensor, however many slices there are.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/cpu/movement.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/ops/reduce.hpp>

#include "../support/differences.hpp"

namespace test_gradients_of_slices {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

std::int64_t drawn(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }

Array<float> zeros(const Shape& shape) {
  Array<float> result{shape};
  for (std::int64_t i = 0; i < result.size(); ++i) result[i] = 0;
  return result;
}

// How many nodes of the graph that `y` needs have this name.
int nodes_called(std::string_view name, const Graph& graph) {
  int count = 0;
  for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) {
    const auto* compute = graph.node(i).get<Compute>();
    count += compute && compute->operation.name() == name;
  }
  return count;
}
// Elements of the outputs that operations add up.
std::int64_t elements_written(const Graph& graph, std::uint32_t from) {
  std::int64_t elements = 0;
  for (std::uint32_t i = from; i < graph.nodes().size(); ++i)
    for (const auto& output : graph.node(i).outputs) elements += output.shape.elements();
  return elements;
}

}  // namespace

TEST_CASE("the gradient of n slices side by side is one concat, and is linear in n") {
  std::int64_t before = 0;
  for (const std::int64_t n : {8, 16, 32}) {
    Graph graph;
    const auto x = input(graph, zeros({n, 3, 5}), 0);
    auto y = slice_axis(x, 0, 0, 1);
    for (std::int64_t i = 1; i < n; ++i) y = y + slice_axis(x, 0, i, i + 1);
    const std::uint32_t forward = static_cast<std::uint32_t>(graph.nodes().size());
    const auto gradient = replicator::gradient(sum(y), x);
    CHECK(nodes_called("concat", graph) == 1);
    CHECK(doubles(evaluate(gradient, std::vector{zeros({n, 3, 5}).any()})) == std::vector<double>(static_cast<std::size_t>(15 * n), 1));
    const std::int64_t live = elements_written(graph, forward) - nodes_called("pad", graph) * 15 * n;  // no one uses a pad
    if (before > 0) CHECK(live < 3 * before);
    before = live;
  }
}

// Slice k counts c_k, so an element's gradient is the sum of the c_k of all slices that have it.
TEST_CASE("slices may overlap, leave gaps, and lie along any axes: every element gets what its slices give") {
  REQUIRE(rc::check("slices", [] {
    const Shape shape{drawn(1, 5), drawn(1, 5), drawn(1, 3)};
    Graph graph;
    const auto x = input(graph, zeros(shape), 0);
    std::vector<double> expected(static_cast<std::size_t>(shape.elements()), 0);
    Tensor<float> y = sum(x * 0.0f);
    for (std::int64_t k = drawn(1, 8); k > 0; --k) {
      AxisValues begin, end, step;
      const std::int64_t only = drawn(0, 3);  // the axis that is cut; 3: all of them
      for (std::int64_t axis = 0; axis < 3; ++axis) {
        const bool cut = only == 3 || only == axis;
        begin.push_back(cut ? drawn(0, shape[axis] - 1) : 0);
        end.push_back(cut ? drawn(begin.back() + 1, shape[axis]) : shape[axis]);
        step.push_back(only == 3 ? drawn(1, 2) : 1);
      }
      y = y + sum(slice(x, begin, end, step)) * static_cast<float>(k);
      std::size_t element = 0;
      for_each_index(shape, [&](const std::vector<std::int64_t>& index) {
        bool inside = true;
        for (std::size_t axis = 0; axis < 3; ++axis)
          inside &= index[axis] >= begin[axis] && index[axis] < end[axis] && (index[axis] - begin[axis]) % step[axis] == 0;
        if (inside) expected[element] += static_cast<double>(k);
        ++element;
      });
    }
    RC_ASSERT(doubles(evaluate(replicator::gradient(y, x), std::vector{zeros(shape).any()})) == expected);
  }));
}

TEST_CASE("the gradient of a gradient through slices is that of the formula") {
  Graph graph;
  const Array<float> values{{4}, {1, 2, 3, 4}};
  const auto x = input(graph, values, 0);
  const auto first = slice_axis(x, 0, 0, 2), second = slice_axis(x, 0, 2, 4);
  const auto y = sum(first * first * second);              // x0^2 x2 + x1^2 x3
  const auto slope = gradient(y, x);                       // 2 x0 x2, 2 x1 x3, x0^2, x1^2
  const auto curvature = gradient(sum(slope * slope), x);  // of 4 x0^2 x2^2 + x0^4, likewise
  const auto at = [&](Tensor<float> t) { return doubles(evaluate(t, std::vector{values.any()})); };
  CHECK(at(slope) == std::vector<double>{6, 16, 1, 4});
  CHECK(at(curvature) == std::vector<double>{8 * 9 + 4, 8 * 2 * 16 + 4 * 8, 8 * 3, 8 * 4 * 4});
}

}  // namespace test_gradients_of_slices
