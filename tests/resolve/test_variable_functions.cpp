// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <replicator/cpu/movement.hpp>
#include <replicator/resolve/replica_context.hpp>
#include <replicator/resolve/variable_functions.hpp>

#include "../support/evaluate.hpp"

namespace test_variable_functions {

using namespace replicator;
namespace rp = replicator;

TEST_CASE("a function of one tensor takes a variable, too") {
  Graph graph;
  ReplicaContext replica{graph};
  const auto w = replica.variable<float>("w", {2, 3}, Initializer::zeros());
  const test::EvaluateOptions options{.variables = {{"w", Array<float>{{2, 3}, {0.5f, 1, 2, 3, 4, 5}}.any()}}};
  const auto same = [&](AnyTensor given, AnyTensor expected) {
    CHECK(given.type() == expected.type());
    CHECK(test::doubles(test::evaluate(given, std::vector<AnyArray>{}, options)) == test::doubles(test::evaluate(expected, std::vector<AnyArray>{}, options)));
  };
  const auto x = w.read();
  same(rp::exp(w), rp::exp(x));
  same(rp::tanh(w), rp::tanh(x));
  same(rp::softplus(w), rp::softplus(x));
  same(rp::gelu(w, Gelu::exact), rp::gelu(x, Gelu::exact));
  same(rp::pow(w, 2), rp::pow(x, 2));
  same(rp::pow(2, w), rp::pow(2, x));
  same(rp::maximum(w, 2), rp::maximum(x, 2));
  same(rp::maximum(2, w), rp::maximum(2, x));
  same(rp::minimum(2, w), rp::minimum(2, x));
  same(rp::clamp(w, 1, 3), rp::clamp(x, 1, 3));
  same(rp::sum(w), rp::sum(x));
  same(rp::mean(w, {0}), rp::mean(x, {0}));
  same(rp::max(w, Axes{1}.kept()), rp::max(x, Axes{1}.kept()));
  same(rp::softmax(w), rp::softmax(x));
  same(rp::reshape(w, {3, -1}), rp::reshape(x, {3, -1}));
  same(rp::transpose(w, {1, 0}), rp::transpose(x, {1, 0}));
  same(rp::cast<double>(w), rp::cast<double>(x));
}

TEST_CASE("a function of a variable reads what the step has assigned so far, at the line of the call") {
  Graph graph;
  ReplicaContext replica{graph};
  const auto w = replica.variable<float>("w", {2}, Initializer::zeros());
  w.assign(w.read() + 3.0f);
  const auto y = rp::exp(w);
  CHECK(graph.node(y.any().value()).where.text() == "test_variable_functions.cpp:" + std::to_string(__LINE__ - 1));
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(rp::sum(w, {1}), Contains("sum at test_variable_functions.cpp:" + std::to_string(__LINE__)));
}

TEST_CASE("a variable prints its name and type") {
  Graph graph;
  ReplicaContext replica{graph};
  std::ostringstream out;
  out << replica.variable<float>("w", {2, 3}, Initializer::zeros());
  CHECK(out.str() == "w float32[2, 3]");
}

}  // namespace test_variable_functions
