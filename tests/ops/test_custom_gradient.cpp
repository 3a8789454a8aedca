// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <source_location>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/ops/custom_gradient.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/replica_context.hpp>

#include "../support/errors.hpp"
#include "../support/evaluate.hpp"

namespace test_custom_gradient {

using namespace replicator;
using test::error_of;
using V = std::vector<double>;

namespace {

struct Setting {
  Graph graph;
  Tensor<double> x = constant(graph, Array<double>{{3}, {1, 2, 4}}), y = constant(graph, Array<double>{{3}, {5, 7, 11}});
  Tensor<std::int32_t> n = constant(graph, Array<std::int32_t>{{3}, {2, 3, 5}});
  V values(AnyTensor t) const { return test::doubles(test::evaluate(t, {})); }
};

// A square whose gradient is told to be 10 dy x.
const auto square = custom_gradient([](auto x) { return x * x; }, [](auto x, auto, auto dy) { return 10.0 * dy * x; });

}  // namespace

TEST_CASE("the value is the function's, and the gradient is what the second function says") {
  Setting s;
  const auto y = square(s.x);
  CHECK(s.values(y) == V{1, 4, 16});
  CHECK(s.values(gradient(sum(3.0 * y), s.x)) == V{30, 60, 120});
}

TEST_CASE("gradients of gradients go through the second function's operations") {
  Setting s;
  const auto first = gradient(sum(square(s.x)), s.x);           // 10 x
  CHECK(s.values(gradient(sum(first), s.x)) == V{10, 10, 10});  // and not 2
  // By the result: dy y, whose derivative goes through the custom rule again: 10 x.
  const auto by_result = custom_gradient([](auto x) { return x * x; }, [](auto, auto y, auto dy) { return dy * y; });
  const auto slope = gradient(sum(by_result(s.x)), s.x);  // x^2, by the result
  CHECK(s.values(slope) == V{1, 4, 16});
  CHECK(s.values(gradient(sum(slope), s.x)) == V{1, 4, 16});
}

TEST_CASE("several arguments and results, integers among them") {
  Setting s;
  const auto both = custom_gradient(
      [](auto a, auto n, auto b) {
        return std::tuple{a * cast<double>(n), map([](auto p, auto q) { return p + q; }, a, b)};
      },
      [](auto a, auto n, auto b, auto, auto, auto dp, auto dq) {
        return std::tuple{dp * cast<double>(n) + dq, 100.0 * dq + 0.0 * (a + b)};
      });
  const auto [p, q] = both(s.x, s.n, s.y);
  CHECK(s.values(p) == V{2, 6, 20});
  CHECK(s.values(q) == V{6, 9, 15});
  CHECK(s.values(gradients(sum(p + 2.0 * q), {s.x, s.y})[0]) == V{4, 5, 7});
  CHECK(s.values(gradients(sum(p + 2.0 * q), {s.x, s.y})[1]) == V{200, 200, 200});
  CHECK(s.values(gradient(sum(p), s.y)) == V{0, 0, 0});  // no gradient arrives at q
}

TEST_CASE("a variable is an argument as it is") {
  Graph graph;
  ReplicaContext replica{graph};
  const auto w = replica.variable<double>("w", {}, Initializer::constant(3));
  const auto y = square(w);
  CHECK(test::doubles(test::evaluate(gradient(y, w.read()), {}, {.variables = {{"w", Array<double>{{}, {3}}.any()}}})) == V{30});
}

TEST_CASE("a gradient of another shape names the line, and so does a captured tensor that needs a gradient") {
  Setting s;
  std::source_location where;
  const auto shape = error_of([&] {
    where = std::source_location::current();
    const auto f = custom_gradient([](auto x) { return x * x; }, [](auto, auto, auto dy) { return sum(dy); });
    (void)gradient(sum(f(s.x)), s.x);
  });
  const Location line{where.file_name(), where.line() + 1};
  CHECK(shape == "replica 0: the gradient rule of custom_gradient at " + line.text() +
                     " gives float64[] for input 0, which is float64[3]: a gradient has the type and shape of its input");
  const auto f = custom_gradient([&](auto x) { return x * s.y; }, [&](auto, auto, auto dy) { return dy * s.y; });
  CHECK(s.values(gradient(sum(f(s.x)), s.x)) == V{5, 7, 11});
  CHECK_THAT(error_of([&] { (void)gradient(sum(f(s.x)), s.y); }),
             Catch::Contains("the function given to custom_gradient at test_custom_gradient.cpp:") &&
                 Catch::Contains("uses a tensor that is not among its arguments, and a gradient for that tensor was asked for: pass it as an argument"));
}

}  // namespace test_custom_gradient
