// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <replicator/cpu/convolution.hpp>
#include <replicator/nn/conv1d.hpp>
#include <replicator/nn/conv2d.hpp>

#include "../support/evaluate.hpp"

namespace test_conv1d {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;

TEST_CASE("conv1d sums windows of a sequence as defined, with stride, padding, dilation and groups") {
  CHECK(rc::check([] {
    const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
    const std::int64_t groups = in(1, 2), inputs = in(1, 3), outputs = groups * in(1, 3), length = in(6, 11);
    const nn::Conv1dOptions options{
        .features = outputs, .kernel = in(1, 3), .stride = in(1, 3), .padding = {in(0, 2), in(0, 2)}, .dilation = in(1, 2), .groups = groups};
    const auto x = random_array<double>({2, groups * inputs, length}, 1), w = random_array<double>({outputs, inputs, options.kernel}, 2);
    const auto b = random_array<double>({outputs}, 3);
    Graph graph;
    ReplicaContext replica{graph};
    const auto y = nn::conv1d(replica, input(graph, x, 0), "conv", options);
    const auto places = (length + options.padding[0] + options.padding[1] - options.dilation * (options.kernel - 1) - 1) / options.stride + 1;
    RC_ASSERT((y.shape() == Shape{2, outputs, places}));
    const auto found = doubles(evaluate(y, std::vector{x.any()}, {.variables = {{"conv.weight", w.any()}, {"conv.bias", b.any()}}}));
    std::size_t element = 0;
    for_each_index(y.shape(), [&](const std::vector<std::int64_t>& i) {
      double sum = b[i[1]];
      for (std::int64_t c = 0; c < inputs; ++c)
        for (std::int64_t k = 0; k < options.kernel; ++k) {
          const auto place = i[2] * options.stride + k * options.dilation - options.padding[0];
          const auto channel = i[1] / (outputs / groups) * inputs + c;
          if (place >= 0 && place < length) sum += w[(i[1] * inputs + c) * options.kernel + k] * x[(i[0] * groups * inputs + channel) * length + place];
        }
      RC_ASSERT(std::abs(found[element] - sum) < 1e-13);
      ++element;
    });
  }));
}

TEST_CASE("one number is the padding on both sides, and the extent of both axes") {
  Graph graph;
  ReplicaContext replica{graph};
  const auto x = Tensor<float>{input(graph, {DType::float32, {1, 2, 7}}, 0)};
  CHECK(nn::conv1d(replica, x, "one", {.features = 4, .kernel = 3, .padding = 1}).shape() == Shape{1, 4, 7});
  const auto images = Tensor<float>{input(graph, {DType::float32, {1, 2, 7, 9}}, 1)};
  CHECK(nn::conv2d(replica, images, "two", {.features = 4, .kernel = 3, .stride = 2, .padding = 1}).shape() == Shape{1, 4, 4, 5});
}

TEST_CASE("conv1d and conv2d refuse what is no batch, and groups that do not divide the channels, at the user's line") {
  Graph graph{1, 2};
  ReplicaContext replica{graph};
  const Tensor<float> image{input(graph, {DType::float32, {2, 3, 4, 4}}, 0)}, x{input(graph, {DType::float32, {2, 3, 4}}, 1)};
  CHECK_THROWS_WITH(nn::conv1d(replica, image, "conv", {.features = 2}),
                    Contains("replica 1: conv1d \"conv\" at test_conv1d.cpp:") && Contains("x must be [N, C, L]") && Contains("found float32[2, 3, 4, 4]"));
  CHECK_THROWS_WITH(nn::conv1d(replica, x, "conv", {}), Contains("0 features"));
  const auto divisor = Contains("groups a divisor of both C and the features; found float32[2, 3, 4");
  CHECK_THROWS_WITH(nn::conv1d(replica, x, "conv", {.features = 2, .groups = 2}), divisor && Contains("2 features and 2 groups"));
  CHECK_THROWS_WITH(nn::conv1d(replica, x, "conv", {.features = 2, .groups = 3}), divisor && Contains("2 features and 3 groups"));
  CHECK_THROWS_WITH(nn::conv2d(replica, image, "conv", {.features = 2, .groups = 2}), divisor && Contains("conv2d \"conv\" at test_conv1d.cpp:"));
  CHECK_THROWS_WITH(nn::conv2d(replica, image, "conv", {.features = 2, .groups = 3}), divisor && Contains("2 features and 3 groups"));
  CHECK_THROWS_WITH(nn::conv2d(replica, x, "conv", {.features = 3}), Contains("x must be [N, C, H, W]"));
  CHECK_THROWS_WITH(nn::conv1d(replica, x, "wide", {.features = 2, .kernel = 5}), Contains("a window of 5 does not fit an extent of 4"));
}

}  // namespace test_conv1d
