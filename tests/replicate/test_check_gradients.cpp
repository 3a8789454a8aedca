// SPDX-License-Identifier: Apache-2.0
// What helps while a model is written: the check of a gradient, and the table of variables.
#include <catch2/catch.hpp>

#include <cmath>
#include <source_location>
#include <string>

#include <replicator/nn/linear.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/custom_gradient.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/replicate/check_gradients.hpp>
#include <replicator/replicate/summary.hpp>

#include "deployments.hpp"

namespace test_check_gradients {

using namespace replicator;
using test::on_devices;

TEST_CASE("a right gradient has a small error, for several arguments") {
  const Array<double> a{{2, 3}, {0.1, -0.7, 2, 0.3, 1.5, -0.2}}, b{{3, 2}, {1, 0.5, -0.25, 2, 0.75, -1}};
  const auto check = check_gradients([](auto x, auto y) { return tanh(matmul(x, y)) * 3.0; }, a, b);
  CHECK(check.error < 1e-8);
  CHECK_THAT(check.text, Catch::StartsWith("argument "));
}

TEST_CASE("a wrong gradient is found, with its place and both values") {
  const auto wrong = custom_gradient([](auto x, auto y) { return x * y; }, [](auto x, auto y, auto, auto dy) { return std::tuple{dy * y, 2.0 * dy * x}; });
  const auto check = check_gradients(wrong, Array<double>{{2}, {0.5, 4}}, Array<double>{{2}, {3, 5}});
  // The weight of element i is 0.5 and the fraction of 0.618034 (i + 1). Element 0 has a difference below 1, so its error is smaller.
  const double expected = 4 * (0.5 + 0.236068);
  CHECK(check.error == Approx(1).epsilon(1e-6));
  CHECK(check.text == "argument 1, element 1: the gradient is " + detail::number_text(2 * expected) + ", differences give " + detail::number_text(expected));
  const auto infinite = check_gradients([](auto x) { return sqrt(x); }, Array<double>{{1}, {0}});
  CHECK(std::isinf(infinite.error));
}

TEST_CASE("the summary has a line for each variable, with the layer's line, and the sums") {
  Replicator repl{on_devices(2, 1)};
  std::source_location where;
  repl.replicate([&](ReplicaContext& replica) {
    where = std::source_location::current(), nn::linear(replica, full<float>(replica, {1, 500}, 1), "out", {.features = 3});
    replica.variable<std::int64_t>("own", {}, Initializer::zeros(), {VariableKind::replica_local});
  });
  const std::string text = summary(repl), line = Location{where}.text();
  CHECK_THAT(text, Catch::StartsWith("variable     type              elements   trained   kind            declared at\n"));
  CHECK_THAT(text, Catch::Contains("out.bias     float32[3]               3   trained   mirrored        " + line + "\n"));
  CHECK_THAT(text, Catch::Contains("out.weight   float32[3, 500]      1,500   trained   mirrored        " + line + "\n"));
  CHECK_THAT(text, Catch::Contains("own          int64[]                  1   -         replica_local   test_check_gradients.cpp:"));
  CHECK_THAT(text, Catch::EndsWith("\n3 variable(s) of 1,504 elements, of which 1,503 are trained\n"));
}

}  // namespace test_check_gradients
