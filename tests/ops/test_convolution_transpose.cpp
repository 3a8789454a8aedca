// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <replicator/cpu/convolution.hpp>
#include <replicator/nn/conv_transpose2d.hpp>

#include "../support/differences.hpp"

namespace test_convolution_transpose {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

struct TransposedCase {
  ConvolutionTransposeOptions options;
  Shape x, w, y;
};

std::int64_t in(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }

TransposedCase draw_transposed() {
  TransposedCase c;
  auto& o = c.options;
  o.groups = in(1, 3);
  c.x = {in(1, 2), o.groups * in(1, 2)};
  c.w = {c.x[1], in(1, 2)};
  c.y = {c.x[0], c.w[1] * o.groups};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t extent = in(1, 4), window = in(1, 3);
    o.stride[i] = in(1, 3);
    o.dilation[i] = in(1, 2);
    o.output_padding[i] = in(0, o.stride[i] - 1);
    const std::int64_t whole = (extent - 1) * o.stride[i] + o.dilation[i] * (window - 1) + 1 + o.output_padding[i];
    o.padding.low[i] = in(0, std::min(window - 1, whole - 1));
    o.padding.high[i] = in(0, std::min(window - 1, whole - 1 - o.padding.low[i]));
    c.x.push_back(extent);
    c.w.push_back(window);
    c.y.push_back(whole - o.padding.low[i] - o.padding.high[i]);
  }
  return c;
}

// Every element of x, through every tap of its window, to its place in y.
std::vector<double> by_definition(const TransposedCase& c, const AnyArray& x, const AnyArray& w) {
  const auto& o = c.options;
  const auto xs = doubles(x), ws = doubles(w);
  std::vector<double> y(static_cast<std::size_t>(c.y.elements()));
  for_each_index(Shape{c.x[0], c.x[1], c.x[2], c.x[3], c.w[1], c.w[2], c.w[3]},
                 [&](const std::vector<std::int64_t>& i) {
                   const std::int64_t row = i[2] * o.stride[0] + i[5] * o.dilation[0] - o.padding.low[0];
                   const std::int64_t column = i[3] * o.stride[1] + i[6] * o.dilation[1] - o.padding.low[1];
                   if (row < 0 || row >= c.y[2] || column < 0 || column >= c.y[3]) return;
                   const std::int64_t channel = i[1] / (c.x[1] / o.groups) * c.w[1] + i[4];
                   y[static_cast<std::size_t>(((i[0] * c.y[1] + channel) * c.y[2] + row) * c.y[3] + column)] +=
                       xs[static_cast<std::size_t>(((i[0] * c.x[1] + i[1]) * c.x[2] + i[2]) * c.x[3] + i[3])] *
                       ws[static_cast<std::size_t>(((i[1] * c.w[1] + i[4]) * c.w[2] + i[5]) * c.w[3] + i[6])];
                 });
  return y;
}

}  // namespace

TEST_CASE("transposed convolution is as defined, with groups, dilation, padding and output padding") {
  REQUIRE(rc::check("float32, float64", [] {
    const auto c = draw_transposed();
    RC_LOG(c.x.text() + " " + c.w.text() + " -> " + c.y.text());
    const auto error = [&]<class T>() {
      const auto x = random_array<T>(c.x, 1), w = random_array<T>(c.w, 2);
      Graph graph;
      const auto y = convolution_transpose(input(graph, x, 0), input(graph, w, 1), c.options);
      RC_ASSERT(y.shape() == c.y);
      const AnyArray inputs[] = {x.any(), w.any()};
      return largest_difference(evaluate(y, inputs), array_of(y.any().type(), by_definition(c, x.any(), w.any())));
    };
    RC_ASSERT(error.template operator()<float>() < 1e-5);
    RC_ASSERT(error.template operator()<double>() < 1e-13);
  }));
}

TEST_CASE("the gradients of transposed convolution agree with differences to second order") {
  REQUIRE(rc::check("x, w and bias", [] {
    const auto c = draw_transposed();
    RC_LOG(c.x.text() + " " + c.w.text() + " -> " + c.y.text());
    const Function f = [&](Graph&, std::span<const AnyTensor> in) {
      const Tensor<double> x{in[0]}, w{in[1]}, bias{in[2]};
      return convolution_transpose(x, w, bias, c.options).any();
    };
    const std::vector<AnyArray> at{random_array<double>(c.x, 1).any(), random_array<double>(c.w, 2).any(),
                                   random_array<double>({c.y[1]}, 3).any()};
    RC_ASSERT(gradient_error(f, at, 1) < 1e-8);
    RC_ASSERT(gradient_error(f, at, 2) < 1e-8);
  }));
}

TEST_CASE("a transposed convolution of one pixel is its weights, plus the bias of each channel") {
  Graph graph;
  const Array<float> x{{1, 1, 1, 1}, {2}}, w{{1, 2, 1, 2}, {1, 2, 3, 4}}, bias{{2}, {10, 20}};
  const auto y = convolution_transpose(input(graph, x, 0), input(graph, w, 1), input(graph, bias, 2),
                                       {.stride = {1, 2}, .output_padding = {0, 1}});
  CHECK(y.shape() == Shape{1, 2, 1, 3});
  const AnyArray inputs[] = {x.any(), w.any(), bias.any()};
  CHECK(doubles(evaluate(y, inputs)) == std::vector<double>{12, 14, 10, 26, 28, 20});
}

TEST_CASE("the layer has PyTorch's names and shapes, and doubles an image") {
  Graph graph;
  ReplicaContext replica{graph};
  const Array<float> x{{2, 6, 4, 4}};
  const auto y = nn::conv_transpose2d(
      replica, input(graph, x, 0), "up",
      {.features = 4, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .output_padding = {1, 1}, .groups = 2});
  CHECK(y.shape() == Shape{2, 4, 8, 8});
  REQUIRE(graph.find_variable("up.weight"));
  CHECK(graph.find_variable("up.weight")->type.shape == Shape{6, 2, 3, 3});
  CHECK(graph.find_variable("up.weight")->initializer.b == Approx(1 / std::sqrt(18.0)));
  CHECK(graph.find_variable("up.bias")->type.shape == Shape{4});
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(
      nn::conv_transpose2d(replica, input(graph, x, 0), "up", {.features = 3, .groups = 2}),
      Contains("conv_transpose2d \"up\" at test_convolution_transpose.cpp:") && Contains("3 features and 2 groups"));
}

TEST_CASE("transposed convolution says what does not fit, and where") {
  Graph graph;
  const Array<float> x{{1, 6, 4, 4}}, w{{6, 2, 3, 3}}, other{{5, 2, 3, 3}}, flat{{6, 2}}, bias{{3}};
  const auto image = input(graph, x, 0), weights = input(graph, w, 1);
  using Catch::Matchers::Contains;
  const auto at_line = Contains("convolution_transpose at test_convolution_transpose.cpp:");
  CHECK_THROWS_WITH(convolution_transpose(image, input(graph, other, 1)),
                    at_line && Contains("x has 6 channels, but the weights [5, 2, 3, 3] take 5"));
  CHECK_THROWS_WITH(convolution_transpose(image, input(graph, flat, 1)),
                    at_line && Contains("found [1, 6, 4, 4] and [6, 2]"));
  CHECK_THROWS_WITH(convolution_transpose(image, weights, {.groups = 4}),
                    at_line && Contains("6 input channels, which 4 groups do not divide"));
  CHECK_THROWS_WITH(convolution_transpose(image, weights, {.stride = {2, 2}, .output_padding = {2, 0}}),
                    at_line && Contains("output padding 2 with stride 2"));
  CHECK_THROWS_WITH(convolution_transpose(image, weights, {.padding = {3, 0}}),
                    at_line && Contains("a padding of 3, 3 leaves nothing of 6 rows or columns"));
  CHECK_THROWS_WITH(convolution_transpose(image, weights, {.stride = {1, 0}}), at_line && Contains("stride 0"));
  CHECK_THROWS_WITH(convolution_transpose(image, weights, input(graph, bias, 2), {.groups = 2}),
                    at_line && Contains("in 2 groups need a bias [4], found [3]"));
}

}  // namespace test_convolution_transpose
