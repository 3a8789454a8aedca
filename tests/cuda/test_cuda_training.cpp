// SPDX-License-Identifier: Apache-2.0
// Promise 1 on a GPU: the bits do not depend on the number of logical devices that share it.
#include "device_run.hpp"

#include <tuple>

#include <replicator/replicator.hpp>

namespace test_cuda_training {

using namespace replicator;
using namespace replicator::detail;

namespace {

struct Outcome {
  std::string digest;
  float loss = 0;
  std::string explanation;
};

// Regression, y = tanh(x w), with noise in x, 20 steps on 8 replicas.
Outcome train_on(const char* devices, bool capture = true) {
  const char* const arguments[] = {"--replicas", "8", "--input-threads", "1", "--devices", devices};
  auto where = Deployment::from(arguments);
  where.capture = capture;
  Replicator repl{where};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([n = ctx.replica_batch(512), ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> x{{n, 2}}, y{{n, 1}};
      for (auto& value : x) value = 2 * random.uniform() - 1;
      for (std::int64_t i = 0; i < n; ++i) y[i] = 0.75f * x[2 * i] - 0.5f * x[2 * i + 1];
      return std::tuple{x, y};
    });
  };
  const auto step_fn = [](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
    auto w = replica.variable<float>("w", {2, 1}, Initializer::zeros());
    x = x + uniform<float>(replica, x.shape(), -0.01f, 0.01f);
    auto loss = mean(map([](auto a, auto b) { return pow(tanh(a) - tanh(b), 2); }, matmul(x, w.read()), y));
    nn::sgd({.learning_rate = 0.5, .momentum = 0.5}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  Outcome outcome;
  for (auto [loss] : train.steps(20)) outcome.loss = mean(loss);
  outcome.digest = repl.digest();
  outcome.explanation = train.explain();
  return outcome;
}

// Convolutions, batch statistics, pooling and a residual, 3 steps on 4 replicas.
Outcome train_images_on(const char* devices) {
  const char* const arguments[] = {"--replicas", "4", "--input-threads", "1", "--devices", devices};
  Replicator repl{Deployment::from(arguments)};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([n = ctx.replica_batch(8), ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> images{{n, 3, 8, 8}};
      Array<std::int32_t> labels{{n}};
      for (auto& value : images) value = 2 * random.uniform() - 1;
      for (auto& label : labels) label = static_cast<std::int32_t>(random.below(3));
      return std::tuple{images, labels};
    });
  };
  const auto step_fn = [](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto layer = [&](Tensor<float> x, const char* name, std::int64_t features, std::int64_t kernel) {
      const std::int64_t around = kernel / 2;
      return nn::batch_norm(replica, nn::conv2d(replica, x, name, {.features = features, .kernel = {kernel, kernel}, .padding = {around, around}}),
                            std::string{name} + "_norm");
    };
    auto x = max_pool(relu(layer(images, "first", 10, 3)), {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    x = relu(layer(x, "second", 10, 3) + layer(x, "shortcut", 10, 1));
    const auto logits = nn::linear(replica, global_average_pool(x), "last", {.features = 3});
    const auto loss = mean(softmax_cross_entropy(logits, labels));
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  Outcome outcome;
  for (auto [loss] : train.steps(3)) outcome.loss = mean(loss);
  outcome.digest = repl.digest();
  return outcome;
}

// An embedding on 2 replicas, 4 steps long; in step `bad` replica 1 names a row that is not there.
Outcome train_embedding_on(const char* devices, std::int64_t bad, std::string& error) {
  const char* const arguments[] = {"--replicas", "2", "--input-threads", "1", "--devices", devices};
  Replicator repl{Deployment::from(arguments)};
  const auto input_fn = [bad](const InputContext& ctx) {
    return data::from_generator([bad, replica = ctx.replica()](std::int64_t position) {
      return Array<std::int32_t>{{3}, {replica, position >= bad && replica == 1 ? 9 : 2, 0}};
    });
  };
  auto train = repl.replicate(input_fn, [](ReplicaContext& replica, Tensor<std::int32_t> indices) {
    const auto rows = nn::embedding(replica, indices, "words", {.entries = 5, .features = 4, .initializer = Initializer::uniform(-1, 1)});
    const auto loss = mean(rows * rows);
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  });
  Outcome outcome;
  try {
    for (auto [loss] : train.steps(4)) outcome.loss = mean(loss);
    outcome.digest = repl.digest();
  } catch (const DataError& refused) {
    error = refused.what();
    outcome.loss = repl.value("words.weight").as<float>()[8];
  }
  outcome.explanation = train.explain();
  return outcome;
}

}  // namespace

TEST_CASE("an embedding is captured whole; a row that is not there ends the step as on a CPU, and no variable has changed") {
  if (!replicator::test::gpu_is_here()) return;
  std::string error, cpu_error;
  const auto one = train_embedding_on("cuda:0", 100, error);
  CHECK_THAT(one.explanation, Catch::Contains(" instructions are captured, replayed as ") && !Catch::Contains("not captured"));
  CHECK(train_embedding_on("cuda:0x2", 100, error).digest == one.digest);
  CHECK(error.empty());
  for (const std::int64_t bad : {0, 1, 3}) {
    const auto cpu = train_embedding_on("cpu:0", bad, cpu_error);
    CHECK(train_embedding_on("cuda:0", bad, error).loss == Approx(cpu.loss).epsilon(1e-5));
    CHECK(error == cpu_error);
    CHECK_THAT(error, Catch::StartsWith("replica 1: embedding \"words\" at test_cuda_training.cpp:") && Catch::Contains("the index 9 at [1] of the indices int32[3]"));
  }
}

TEST_CASE("one digest for a convolutional network on a GPU as 1, 2, 3 and 4 logical devices, and the CPU's loss") {
  if (!replicator::test::gpu_is_here()) return;
  const auto one = train_images_on("cuda:0");
  for (const char* devices : {"cuda:0x2", "cuda:0x3", "cuda:0x4"}) CHECK(train_images_on(devices).digest == one.digest);
  CHECK(one.loss == Approx(train_images_on("cpu:0").loss).epsilon(1e-3));
}

TEST_CASE("one digest for two GPUs, with logical devices or without, as for one") {
  if (!replicator::test::gpu_is_here()) return;
  try {
    support_of(DeviceKind::cuda).require(1);
  } catch (const DeviceError& error) {
    WARN("skipped: it needs two GPUs: " << error.what());
    return;
  }
  const auto one = train_on("cuda:0");
  CHECK_THAT(one.explanation, !Catch::Contains("through the host's memory"));
  for (const char* devices : {"cuda:0,cuda:1", "cuda:0x2,cuda:1x3"}) CHECK(train_on(devices).digest == one.digest);
  CHECK(train_images_on("cuda:0,cuda:1").digest == train_images_on("cuda:0").digest);
}

TEST_CASE("one digest for a GPU as 1, 2, 3, 4 and 8 logical devices, with steps captured and not, and the CPU's loss") {
  if (!replicator::test::gpu_is_here()) return;
  const auto one = train_on("cuda:0");
  for (const char* devices : {"cuda:0", "cuda:0x2", "cuda:0x3", "cuda:0x4", "cuda:0x8"}) CHECK(train_on(devices).digest == one.digest);
  CHECK_THAT(one.explanation, Catch::Contains(" instructions are captured, replayed as ") && !Catch::Contains("could not be captured"));
  for (const char* devices : {"cuda:0", "cuda:0x3"}) {
    const auto launched = train_on(devices, false);
    CHECK(launched.digest == one.digest);
    CHECK_THAT(launched.explanation, Catch::StartsWith("0 of ") || Catch::Contains("\n0 of "));
  }
  const auto cpu = train_on("cpu:0");
  CHECK(one.loss == Approx(cpu.loss).epsilon(1e-3).margin(1e-6));
}

}  // namespace test_cuda_training
