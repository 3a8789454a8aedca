// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <span>

#include <replicator/cpu/convolution.hpp>

#include "../support/convolution.hpp"
#include "../support/differences.hpp"

namespace test_convolution {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

TEST_CASE("the loops compute convolution and both its transposes as defined") {
  REQUIRE(rc::check("float32, float64, int32", [] {
    const auto c = draw_convolution({1, 2, 3});
    RC_LOG(c.text());
    RC_ASSERT(convolution_error<float>(c) < 1e-5);
    RC_ASSERT(convolution_error<double>(c) < 1e-13);
    RC_ASSERT(convolution_error<std::int32_t>(c) == 0);
  }));
}

TEST_CASE("the gradients of convolution agree with differences to second order") {
  REQUIRE(rc::check("x and w", [] {
    const auto c = draw_convolution({1, 2}, 6);
    RC_LOG(c.text());
    const Function f = [&](Graph& graph, std::span<const AnyTensor> in) {
      return compute(graph, Convolution{c.options}, {in[0], in[1]}, {});
    };
    const std::vector<AnyArray> at{random_array<double>(c.x, 1).any(), random_array<double>(c.w, 2).any()};
    RC_ASSERT(gradient_error(f, at, 1) < 1e-8);
    RC_ASSERT(gradient_error(f, at, 2) < 1e-8);
  }));
}

TEST_CASE("the gradients of both transposes agree with differences to second order") {
  const auto c =
      convolution_case({2, 4, 6, 5}, {6, 2, 3, 2}, {.stride = {2, 1}, .padding = {{1, 0}, {0, 1}}, .groups = 2});
  const auto x = random_array<double>(c.x, 1).any(), w = random_array<double>(c.w, 2).any(),
             dy = random_array<double>(c.y, 3).any();
  const Function data = [&](Graph& graph, std::span<const AnyTensor> in) {
    return compute(graph, ConvolutionBackwardData{c.options, c.x}, {in[0], in[1]}, {});
  };
  const Function weights = [&](Graph& graph, std::span<const AnyTensor> in) {
    return compute(graph, ConvolutionBackwardWeights{c.options, c.w}, {in[0], in[1]}, {});
  };
  for (const int order : {1, 2}) {
    CHECK(gradient_error(data, {dy, w}, order) < 1e-8);
    CHECK(gradient_error(weights, {x, dy}, order) < 1e-8);
  }
}

TEST_CASE("the gradient of a convolution that needs only the weights' builds one node") {
  Graph graph;
  const Array<float> x{{1, 2, 4, 4}}, w{{3, 2, 3, 3}};
  const auto y = convolution(input(graph, x, 0), input(graph, w, 1));
  const AnyTensor wanted[] = {graph.tensor(1)};
  const auto before = graph.nodes().size();
  (void)gradients(y, wanted, {});
  int backward = 0;
  for (const auto& node : std::span{graph.nodes()}.subspan(before)) backward += node.kind().starts_with("convolution");
  CHECK(backward == 1);
}

TEST_CASE("a bias is added to every position of its channel") {
  Graph graph;
  const Array<float> x{{1, 1, 2, 2}, {1, 2, 3, 4}}, w{{2, 1, 1, 1}, {1, 10}}, bias{{2}, {100, 200}};
  const auto y = convolution(input(graph, x, 0), input(graph, w, 1), input(graph, bias, 2));
  const AnyArray inputs[] = {x.any(), w.any(), bias.any()};
  CHECK(doubles(evaluate(y, inputs)) == std::vector<double>{101, 102, 103, 104, 210, 220, 230, 240});
}

TEST_CASE("convolution says which extents do not fit, and where") {
  Graph graph{2, 4};
  const Array<float> x{{1, 64, 8, 8}}, w{{128, 32, 3, 3}}, tall{{8, 64, 9, 3}}, flat{{8, 8}}, bias{{3}};
  const auto image = input(graph, x, 0);
  const auto message = [&](auto weights, ConvolutionOptions options) -> std::string {
    try {
      (void)convolution(image, weights, options);
    } catch (const BuildError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(message(input(graph, w, 1), {}),
             Contains("replica 2: convolution at test_convolution.cpp:") &&
                 Contains("x has 64 channels, but the weights [128, 32, 3, 3] with groups 1 take 32"));
  CHECK_THAT(message(input(graph, w, 1), {.groups = 3}), Contains("128 output channels, which 3 groups do not divide"));
  CHECK_THAT(message(input(graph, tall, 1), {}),
             Contains("a window of 9 does not fit an extent of 8 with padding 0, 0"));
  CHECK_THAT(message(input(graph, flat, 1), {}), Contains("found [1, 64, 8, 8] and [8, 8]"));
  CHECK_THAT(message(input(graph, w, 1), {.stride = {0, 1}, .groups = 2}), Contains("stride 0"));
  CHECK_THROWS_WITH(convolution(image, input(graph, w, 1), input(graph, bias, 2), {.groups = 2}),
                    Contains("need a bias [128], found [3]"));
}

}  // namespace test_convolution
