// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cmath>

#include <replicator/cpu/index.hpp>

#include "../support/differences.hpp"
#include "../support/elements.hpp"

namespace test_index {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

TEST_CASE("argmax gives the first place of the maximum along any axis, in any dtype") {
  REQUIRE(rc::check("argmax", [] {
    Shape shape;
    for (auto rank = *rc::gen::inRange(1, 4); rank > 0; --rank) shape.push_back(*rc::gen::inRange(1, 6));
    const auto axis = *rc::gen::inRange<std::size_t>(0, shape.rank());
    for_all_elements([&]<class T>() {
      Array<T> x{shape};
      PhiloxStream random{shape.rank(), 5};
      for (auto& value : x) value = static_cast<T>(random.below(3));
      Graph graph;
      const auto places =
          doubles(evaluate(argmax(input(graph, x, 0), static_cast<std::int64_t>(axis)), std::vector{x.any()}));
      std::size_t next = 0;
      Shape rest = shape;
      rest[axis] = 1;
      for_each_index(rest, [&](std::vector<std::int64_t> index) {
        std::int64_t best = 0;
        const auto value = [&](std::int64_t i) {
          index[axis] = i;
          return static_cast<double>(x[offset_of({}, shape, index)]);
        };
        for (std::int64_t i = 0; i < shape[axis]; ++i)
          if (value(i) > value(best)) best = i;
        RC_ASSERT(places[next++] == static_cast<double>(best));
      });
    });
  }));
}

TEST_CASE("the first NaN is where the maximum lies") {
  Graph graph;
  const Array<float> x{{4}, {1, NAN, 5, NAN}};
  CHECK(doubles(evaluate(argmax(input(graph, x, 0), -1), std::vector{x.any()})) == std::vector<double>{1});
}

TEST_CASE("one_hot is 1 at the label and 0 elsewhere, and 0 throughout for a label outside") {
  Graph graph;
  const Array<std::int32_t> labels{{2, 2}, {2, 0, 3, -1}};
  const auto y = one_hot(input(graph, labels, 0), 3);
  CHECK(y.shape() == Shape{2, 2, 3});
  CHECK(doubles(evaluate(y, std::vector{labels.any()})) == std::vector<double>{0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(one_hot<double>(input(graph, labels, 0), 3).any().dtype() == DType::float64);
  const Array<std::int64_t> wide{{2}, {1, std::int64_t{1} << 32}};  // no label, though its low half is one
  CHECK(doubles(evaluate(one_hot(input(graph, wide, 1), 2), std::vector{labels.any(), wide.any()})) == std::vector<double>{0, 1, 0, 0});
  const auto at = "replica 0: one_hot at test_index.cpp:" + std::to_string(__LINE__ + 1);
  CHECK_THROWS_WITH(one_hot(input(graph, labels, 0), 0), at + ": asked for 0 classes of labels int32[2, 2]: give the number of classes, at least 1");
  CHECK_THROWS_WITH(one_hot(input(graph, labels, 0), -1), Catch::Matchers::Contains("asked for -1 classes"));
}

TEST_CASE("iota counts from 0") {
  Graph graph;
  CHECK(doubles(evaluate(iota(graph, 4), {})) == std::vector<double>{0, 1, 2, 3});
  CHECK(iota(graph, 0).shape() == Shape{0});
  CHECK_THROWS_WITH(iota(graph, -1), "replica 0: iota at test_index.cpp:" + std::to_string(__LINE__) + ": asked for -1 numbers: ask for 0 or more");
}

TEST_CASE("argmax refuses axes that are not there or empty") {
  Graph graph;
  const auto x = Tensor<float>{input(graph, {DType::float32, {2, 0}}, 0)};
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(argmax(x, 2), Contains("argmax at test_index.cpp:") && Contains("axis 2 of float32[2, 0]: axes count from 0, or from -1 at the end"));
  CHECK_THROWS_WITH(argmax(x, 1), Contains("has no maximum"));
}

}  // namespace test_index
