// SPDX-License-Identifier: Apache-2.0
// Networks whose layers compute in bfloat16 and keep float32 variables.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/conv2d.hpp>
#include <replicator/nn/layer_norm.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/convolution_transpose.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/mixed_precision.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/pooling.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../replicate/deployments.hpp"

namespace test_training {

using namespace replicator;
using namespace replicator::detail;
using B = bfloat16;

namespace {

// Ten points of two classes for each replica: inside of a circle or not.
std::tuple<Array<float>, Array<std::int32_t>> points(int replica, std::int64_t position) {
  PhiloxStream random{4, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(replica)};
  Array<float> x{{10, 2}};
  Array<std::int32_t> inside{{10}};
  for (std::int64_t i = 0; i < 10; ++i) {
    const float a = 2 * random.uniform() - 1, b = 2 * random.uniform() - 1;
    x[2 * i] = a;
    x[2 * i + 1] = b;
    inside[i] = a * a + b * b < 0.6f;
  }
  return {x, inside};
}

struct Outcome {
  std::string digest;
  std::vector<float> losses;
};

template <class Network>
Outcome train(int devices, int steps, const Network& network) {
  Replicator repl{test::on_devices(3, devices)};
  auto step = repl.replicate(
      [](const InputContext& ctx) {
        return data::from_generator([replica = ctx.replica()](std::int64_t position) { return points(replica, position); });
      },
      [&](ReplicaContext& replica, Tensor<float> x, Tensor<std::int32_t> labels) {
        const auto loss = mean(softmax_cross_entropy(network(replica, x), labels));
        nn::sgd({.learning_rate = 0.2f, .momentum = 0.9f}).minimize(replica, loss);
        return loss;
      });
  Outcome result;
  for (auto [loss] : step.steps(steps)) result.losses.push_back(mean(loss));
  result.digest = repl.digest();
  return result;
}

// In T between the layers; the logits are float32 again.
template <class T>
Tensor<float> perceptron(ReplicaContext& replica, Tensor<float> x) {
  auto h = relu(nn::linear(replica, cast<T>(x), "first", {.features = 32}));
  h = relu(nn::linear(replica, h, "second", {.features = 32}));
  return cast<float>(nn::linear(replica, h, "last", {.features = 2}));
}

// Everything that a small image network is made of.
Tensor<float> images(ReplicaContext& replica, Tensor<float> x) {
  auto h = relu(nn::linear(replica, cast<B>(x), "in", {.features = 8 * 8 * 4}));
  h = reshape(nn::layer_norm(replica, h, "norm"), {10, 4, 8, 8});
  h = nn::batch_norm(replica, nn::conv2d(replica, h, "conv", {.features = 16, .kernel = {3, 3}, .padding = {1, 1}}), "bn");
  h = dropout(max_pool(relu(h), {.window = {2, 2}}), 0.2);
  const auto logits = nn::linear(replica, global_average_pool(h), "out", {.features = 2});
  return cast<float>(log_softmax(logits + normal<B>(replica, {10, 2}) * 0.01f));
}

// A small residual network, of float32 tensors; its products are in T. A smooth one has no kink that rounding could cross.
template <class T, bool smooth = false>
Tensor<float> residual(ReplicaContext& replica, Tensor<float> x) {
  const auto mixed = mixed_precision(replica, dtype_of<T>);
  const auto conv = [&](Tensor<float> images, const char* name) {
    const auto y = nn::conv2d(replica, images, name, {.features = 8, .kernel = {3, 3}, .padding = {1, 1}, .bias = false});
    return nn::batch_norm(replica, y, std::string{name} + "_norm");
  };
  const auto bent = [](Tensor<float> y) { return smooth ? tanh(y) : relu(y); };
  auto h = reshape(nn::linear(replica, x, "in", {.features = 4 * 4 * 8}), {10, 8, 4, 4});
  h = bent(conv(h, "stem"));
  h = bent(h + conv(bent(conv(h, "first")), "second"));
  return nn::linear(replica, global_average_pool(h), "out", {.features = 2});
}

float last(const Outcome& outcome) {
  float total = 0;
  for (std::size_t i = outcome.losses.size() - 20; i < outcome.losses.size(); ++i) total += outcome.losses[i] / 20;
  return total;
}

}  // namespace

TEST_CASE("a network of bfloat16 layers learns what one of float32 does, with the same bits on any placement") {
  const auto serial = train(1, 300, perceptron<B>);
  const auto wide = train(1, 300, perceptron<float>);
  CHECK(serial.losses[0] == Approx(wide.losses[0]).epsilon(0.02));
  CHECK(last(wide) < 0.2f);
  CHECK(last(serial) < 0.2f);
  CHECK(serial.digest != wide.digest);
  CHECK(train(2, 300, perceptron<B>).digest == serial.digest);
  CHECK(train(3, 300, perceptron<B>).digest == serial.digest);
}

TEST_CASE("convolution, normalisation, pooling and dropout in bfloat16 train to the same bits on any placement") {
  const auto serial = train(1, 5, images);
  for (const float loss : serial.losses) CHECK(std::isfinite(loss));
  CHECK(train(2, 5, images).digest == serial.digest);
  CHECK(train(3, 5, images).digest == serial.digest);
}

TEST_CASE("layers of bfloat16 keep float32 variables, so small steps of an optimizer are not lost") {
  Replicator repl{test::on_devices(1, 1)};
  auto step = repl.replicate([](const InputContext&) { return data::from_generator([](std::int64_t) { return Array<B>{{1, 1}, {1.0f}}; }); },
                             [](ReplicaContext& replica, Tensor<B> x) {
                               const auto y = nn::linear(replica, x, "layer", {.features = 1, .bias = false, .initializer = Initializer::ones()});
                               nn::sgd({.learning_rate = 0x1p-12f}).minimize(replica, mean(cast<float>(y)));
                               return y;
                             });
  for (int i = 0; i < 16; ++i) step.step();
  CHECK(repl.value("layer.weight").as<float>()[0] == 1 - 16 * 0x1p-12f);
}

TEST_CASE("losses of bfloat16 logits tell more classes apart than bfloat16 can count") {
  constexpr std::int64_t classes = 600;
  Array<B> logits{{2, classes}};
  logits[300] = logits[classes + 299] = 8;
  Replicator repl{test::on_devices(1, 1)};
  auto step = repl.replicate(
      [&](const InputContext&) {
        return data::from_generator([=](std::int64_t) { return std::tuple{logits, Array<std::int32_t>{{2}, {300, 300}}}; });
      },
      [](ReplicaContext&, Tensor<B> x, Tensor<std::int32_t> labels) {
        return std::tuple{accuracy(x, labels), softmax_cross_entropy(x, labels), softmax(x)};
      });
  const auto [right, loss, parts] = step.step();
  const double total = std::exp(8.0) + classes - 1;
  CHECK(right[0].item() == 0.5f);
  CHECK(loss[0][0].bits == B{static_cast<float>(std::log(total) - 8)}.bits);
  CHECK(loss[0][1].bits == B{static_cast<float>(std::log(total))}.bits);
  CHECK(parts[0][300].bits == B{static_cast<float>(std::exp(8.0) / total)}.bits);
}

TEST_CASE("mixed precision rounds the operands and the sums of products of float32 and what relu gives of it, and nothing else") {
  using F = Tensor<float>;
  using D = Tensor<double>;
  const auto row = [](float a, float b, float c) { return Array<float>{{1, 1, 1, 3}, {a, b, c}}; };
  const auto x = row(1.01f, -0.3337f, 77.7f), w = Array<float>{{1, 1, 1, 1}, {0.12345f}};
  Replicator repl{test::on_devices(1, 1)};
  auto step = repl.replicate([&](const InputContext&) { return data::from_generator([=](std::int64_t) { return std::tuple{x, w}; }); },
                             [](ReplicaContext& replica, F x, F w) {
                               const F column = reshape(x, {3, 1}), factor = reshape(w, {1, 1});
                               const auto before = matmul(column, factor);
                               const auto mixed = mixed_precision(replica);
                               const auto products = std::tuple{matmul(column, factor), convolution(x, w), convolution_transpose(x, w)};
                               const F biased = convolution(x, w, reshape(w, {1}));
                               const F rectified = relu(column), slope = gradient(sum(rectified * column), column), plain = tanh(column) * factor;
                               const D wide_rectified = relu(cast<double>(column));
                               const D wide = matmul(cast<double>(column), cast<double>(factor));
                               const auto exact = [&] {
                                 const auto part = mixed_precision(replica, DType::float32);
                                 return matmul(column, factor);
                               }();
                               return std::tuple_cat(products, std::tuple{biased, wide, before, exact, rectified, slope, plain, tanh(column), wide_rectified});
                             });
  const auto [product, convolved, transposed, biased, wide, before, exact, rectified, slope, plain, curved, wide_rectified] = step.step();
  for (std::int64_t i = 0; i < 3; ++i) {
    const float rounded = B{static_cast<float>(B{x[i]}) * static_cast<float>(B{w[0]})};
    CHECK(product[0][i] == rounded);
    CHECK(convolved[0][i] == rounded);
    CHECK(transposed[0][i] == rounded);
    CHECK(biased[0][i] == rounded + w[0]);
    CHECK(wide[0][i] == static_cast<double>(x[i]) * static_cast<double>(w[0]));
    CHECK(before[0][i] == x[i] * w[0]);
    CHECK(exact[0][i] == x[i] * w[0]);
    const float positive = std::max(x[i], 0.0f);
    CHECK(rectified[0][i] == static_cast<float>(B{positive}));
    CHECK(slope[0][i] == (x[i] > 0 ? static_cast<float>(B{x[i]}) : 0.0f) + rectified[0][i]);
    CHECK(plain[0][i] == curved[0][i] * w[0]);
    CHECK(wide_rectified[0][i] == std::max(static_cast<double>(x[i]), 0.0));
  }
}

TEST_CASE("mixed precision is refused for a type that no product can be in") {
  Graph graph{3, 4};
  const auto error = test::error_of([&] { const auto mixed = mixed_precision(graph, DType::int32); });
  CHECK_THAT(error, Catch::Matchers::Contains("replica 3: mixed_precision at ") && Catch::Matchers::Contains("test_training.cpp:") &&
                        Catch::Matchers::Contains("was asked for products in int32: take rp::DType::bfloat16"));
}

TEST_CASE("in mixed precision every gradient is that of float32 within the rounding of bfloat16") {
  Replicator repl{test::on_devices(1, 1)};
  auto step = repl.replicate([](const InputContext&) { return data::from_generator([](std::int64_t position) { return points(0, position); }); },
                             [](ReplicaContext& replica, Tensor<float> x, Tensor<std::int32_t> labels) {
                               const auto of = [&](auto network) {
                                 const auto loss = mean(softmax_cross_entropy(network(replica, x), labels));
                                 return std::pair{loss, nn::variable_gradients(loss, replica.trainable_variables<float>())};
                               };
                               const auto [exact, slopes] = of(residual<float, true>);
                               const auto [mixed, rounded] = of(residual<B, true>);
                               auto farthest = full(replica, {}, 0.0f);
                               for (std::size_t i = 0; i < slopes.size(); ++i) {
                                 const auto gap = rounded[i] - slopes[i];
                                 const auto far = sqrt(sum(gap * gap) / sum(slopes[i] * slopes[i]));
                                 farthest = map([](auto a, auto b) { return max(a, b); }, farthest, far);
                               }
                               return std::tuple{exact, mixed, farthest};
                             });
  const auto [exact, mixed, farthest] = step.step();
  CHECK(mixed[0].item() != exact[0].item());
  CHECK(mixed[0].item() == Approx(exact[0].item()).epsilon(0.01));
  CHECK(farthest[0].item() < 0x1p-5f);
}

TEST_CASE("a residual network in mixed precision learns what one of float32 does, with the same bits on any placement") {
  const auto exact = train(1, 60, residual<float>), mixed = train(1, 60, residual<B>);
  CHECK(mixed.losses[0] == Approx(exact.losses[0]).epsilon(0.01));
  CHECK(last(exact) < 0.4f);
  CHECK(last(mixed) == Approx(last(exact)).epsilon(0.1));
  CHECK(mixed.digest != exact.digest);
  CHECK(train(2, 60, residual<B>).digest == mixed.digest);
  CHECK(train(3, 60, residual<B>).digest == mixed.digest);
}

}  // namespace test_training
