// SPDX-License-Identifier: Apache-2.0
// Operations with their own kernels, through the whole engine. A network of all of them trains to the same bits on any
// placement.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/nn/conv_transpose2d.hpp>
#include <replicator/nn/embedding.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/attention.hpp>
#include <replicator/ops/cumulative_sum.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/resize.hpp>
#include <replicator/ops/top_k.hpp>
#include <replicator/replicate/replicator.hpp>

#include "deployments.hpp"

namespace test_operations {

using namespace replicator;
using namespace replicator::detail;

namespace {

// Words [2, 8] that look at each other, become an image, which is enlarged twice.
Tensor<float> network(ReplicaContext& replica, Tensor<std::int32_t> words) {
  const auto x = nn::embedding(replica, words, "words", {.entries = 11, .features = 16});  // [2, 8, 16]
  const auto query = nn::linear(replica, x, "query", {.features = 16});                    // [2, 8, 16]
  const auto heads = reshape(query, {2, 1, 8, 16}), keys = reshape(x, {2, 1, 8, 16});
  const auto products = matmul(heads, keys, {.transpose_b = true});  // [2, 1, 8, 8]
  const auto seen = attention(heads, keys, keys, {.causal = true});  // [2, 1, 8, 16]
  const auto image = reshape(matmul(products * 0.01f, keys) + seen, {2, 8, 4, 4});
  const auto doubled = nn::conv_transpose2d(replica, image, "up",
                                            {.features = 8, .kernel = {4, 4}, .stride = {2, 2}, .padding = {1, 1}});
  const auto large = upsample(relu(doubled), {2, 2}, Interpolation::bilinear);  // [2, 8, 16, 16]
  const auto sums = cumulative_sum(reshape(large, {2, -1}), -1, {.exclusive = true});
  return mean(top_k(sums, 5).values) * 0.001f + mean(upsample(doubled, {1, 3}) * upsample(image, {2, 6}));
}

struct Outcome {
  std::string digest;
  float loss = 0;
};
Outcome train(int devices, int threads) {
  auto deployment = test::on_devices(3, devices);
  deployment.threads_per_device = threads;
  Replicator repl{deployment};
  auto train = repl.replicate(
      [](const InputContext& ctx) {
        return data::from_generator([replica = ctx.replica()](std::int64_t position) {
          Array<std::int32_t> words{{2, 8}};
          for (std::int64_t i = 0; i < words.size(); ++i)
            words[i] = static_cast<std::int32_t>((3 * i * i + replica + position) % 11);
          return words;
        });
      },
      [](ReplicaContext& replica, Tensor<std::int32_t> words) {
        const auto loss = network(replica, words);
        nn::sgd({.learning_rate = 0.05f}).minimize(replica, loss);
        return loss;
      });
  Outcome result;
  for (auto [loss] : train.steps(4)) result.loss = mean(loss);
  result.digest = repl.digest();
  return result;
}

}  // namespace

TEST_CASE(
    "gather, batches of products, attention, transposed convolution, up-sampling, sums and top_k give the same bits on any "
    "placement") {
  const auto serial = train(1, 1);
  CHECK(std::isfinite(serial.loss));
  CHECK(train(2, 1).digest == serial.digest);
  CHECK(train(3, 1).digest == serial.digest);
}

TEST_CASE("the same operations keep their bits on any placement of devices with two threads") {
  CHECK(train(1, 2).digest == train(3, 2).digest);
}

TEST_CASE("the remainder by zero is the first operand, and of the lowest integer by -1 it is 0") {
  Replicator repl{test::on_devices(1, 1)};
  auto step = repl.replicate([](ReplicaContext& replica) {
    const auto a = constant(replica, Array<std::int32_t>{{4}, {5, -5, std::numeric_limits<std::int32_t>::min(), -7}});
    const auto b = constant(replica, Array<std::int32_t>{{4}, {0, 0, -1, 4}});
    return std::tuple{a % b, map([](auto x, auto y) { return x % y; }, a, b)};
  });
  const auto [written, mapped] = step.step();
  const std::vector<std::int32_t> expected{5, -5, 0, -3};
  CHECK(std::equal(expected.begin(), expected.end(), written[0].begin()));
  CHECK(std::equal(expected.begin(), expected.end(), mapped[0].begin()));
}

}  // namespace test_operations
