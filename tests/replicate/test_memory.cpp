// SPDX-License-Identifier: Apache-2.0
// The memory figures of a step's plan, the memory limit, and the savings of recomputation. None of it changes a bit.
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/runtime/memory_need.hpp>

#include "../support/cases.hpp"
#include "deployments.hpp"

namespace test_memory {

using namespace replicator;
using namespace replicator::detail;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t batch = 4, channels = 16, extent = 8, blocks = 5;
constexpr std::int64_t value_bytes = batch * channels * extent * extent * 4;

auto images(const InputContext& ctx) {
  return data::from_generator([replica = ctx.replica()](std::int64_t position) {
    Array<float> x{{batch, channels, extent, extent}};
    PhiloxStream random{7, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(replica)};
    for (auto& value : x) value = 2 * random.uniform() - 1;
    return std::tuple{x};
  });
}

// Blocks of convolution, batch norm and ReLU.
Tensor<float> block(ReplicaContext& replica, Tensor<float> x, std::int64_t i) {
  const auto scope = replica.scope("block" + std::to_string(i));
  return relu(nn::batch_norm(replica, nn::conv2d(replica, x, "conv", {.features = channels, .padding = {}, .bias = false}), "norm"));
}
template <class Block>
auto step_of(Block apply, std::int64_t count = blocks) {
  return [apply, count](ReplicaContext& replica, Tensor<float> x) {
    for (std::int64_t i = 0; i < count; ++i) x = apply(replica, x, i);
    const auto loss = mean(x * x);
    nn::sgd({.learning_rate = 0.1f, .momentum = 0.9f}).minimize(replica, loss);
    return loss;
  };
}
const auto plain = step_of(&block);
// Two blocks at once are forgotten.
auto pairs_forgotten(std::int64_t count) {
  const auto two = [count](ReplicaContext& replica, Tensor<float> x, std::int64_t i) {
    return i % 2 ? x : recompute([&](Tensor<float> y) {
      y = block(replica, y, i);
      return i + 1 < count ? block(replica, y, i + 1) : y;
    })(x);
  };
  return step_of(two, count);
}
const auto marked = pairs_forgotten(blocks);

struct Outcome {
  std::string digest;
  std::string explanation;
};
template <class Step>
Outcome train(Deployment where, std::int64_t recompute_bytes, Step step_fn) {
  where.recompute_bytes = recompute_bytes;
  Replicator repl{where};
  auto step = repl.replicate(images, step_fn);
  for (int i = 0; i < 3; ++i) step.step();
  return {repl.digest(), step.explain()};
}
constexpr std::int64_t never = std::int64_t{1} << 40;

// In bytes, as `explain` says it.
double said(const std::string& text, const std::string& use) {
  const auto at = text.find(use + " ", text.find("\nmemory "));
  if (at == std::string::npos) return 0;
  std::size_t end = 0;
  const std::string rest = text.substr(at + use.size() + 1);
  const double amount = std::stod(rest, &end);
  return amount * (rest.compare(end, 4, " KiB") == 0   ? 1024
                   : rest.compare(end, 4, " MiB") == 0 ? 1024 * 1024
                                                       : 1);
}

}  // namespace

TEST_CASE("variables that no device can hold are refused before they take any memory") {
  const auto message_of = [](Deployment deployment, std::int64_t features) {
    try {
      Replicator repl{std::move(deployment)};
      (void)repl.replicate([](const InputContext&) { return std::vector<Array<float>>(2, Array<float>{{1, 16}}); },
                           [&](ReplicaContext& replica, Tensor<float> x) { return mean(nn::linear(replica, x, "fc", {.features = features})); });
    } catch (const Error& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  CHECK_THAT(message_of({.memory_limit = 1 << 20}, 1 << 20), Contains("the step needs 68.0 MiB of memory on cpu:0, but --memory-limit allows 1.00 MiB") &&
                                                                 Contains("64.0 MiB: fc.weight declared at test_memory.cpp:"));
  CHECK_THAT(message_of({}, std::int64_t{1} << 38), Contains(" of memory on cpu:0, but ") && Contains(" is all that is there") && Contains("fc.weight"));
  if (!test::few_cases())  // AddressSanitizer ends the program instead of telling it
    CHECK_THAT(message_of({.memory_limit = std::int64_t{1} << 62}, std::int64_t{1} << 40), Contains("fc.weight") && Contains(", which has no memory for it"));
}

TEST_CASE("batch norm and ReLU computed again save the ReLU's output of every block but the last, and no bit changes") {
  const auto all = train(test::on_devices(1, 1), never, plain), less = train(test::on_devices(1, 1), 0, plain);
  CHECK(all.digest == less.digest);
  const std::string use = "activations kept for the backward pass";
  // Kept are the results of the convolutions and of the ReLUs; the last ReLU is part of the loss. The sums over the
  // batch are small.
  INFO(all.explanation << less.explanation);
  CHECK(said(all.explanation, use) == Approx((2 * blocks - 1) * value_bytes).epsilon(0.02));
  CHECK(said(less.explanation, use) == Approx(blocks * value_bytes).epsilon(0.03));
}

TEST_CASE("a step with attention needs memory that is linear in the length of the sequence") {
  if (cpu::instruction_level() != cpu::InstructionLevel::avx512) {
    WARN("skipped: the kernels of attention need AVX-512");
    return;
  }
  const auto needed = [](std::int64_t places) {
    Replicator repl{test::on_devices(1, 1)};
    auto step = repl.replicate([](const InputContext&) { return std::vector<Array<float>>(2, Array<float>{{1}}); },
                               [places](ReplicaContext& replica, Tensor<float>) {
                                 const auto variable = replica.variable<float>("x", Shape{2, places, 16}, Initializer::normal(0, 1));
                                 const auto x = variable.read();
                                 const auto y = attention(x, x * 2.0f, x, {.causal = true});
                                 const auto loss = mean(y * y);
                                 nn::sgd({.learning_rate = 0.1f}).minimize(replica, loss);
                                 return loss;
                               });
    const std::string text = step.explain();
    INFO(text);
    CHECK_THAT(text, Contains("attention gradient"));
    return said(text, "\nmemory");
  };
  const double half = needed(1024), whole = needed(2048);
  CHECK(half > 5 * 2 * 1024 * 16 * 4);
  CHECK(whole < 2.05 * half);
  CHECK(whole < 4 * 2048 * 2048);  // the weights of one head
}

TEST_CASE("the plan of a step whose blocks are marked with recompute keeps what is between them only, and needs less memory in all") {
  constexpr std::int64_t many = 16;
  const auto all = train(test::on_devices(1, 1), 0, step_of(&block, many)), marks = train(test::on_devices(1, 1), 0, pairs_forgotten(many));
  CHECK(marks.digest == all.digest);
  const std::string use = "activations kept for the backward pass";
  INFO(all.explanation << marks.explanation);
  CHECK(said(all.explanation, use) == Approx(many * value_bytes).epsilon(0.03));
  // The values between the pairs, and two values of the last pair, whose derivatives are computed at once.
  CHECK(said(marks.explanation, use) == Approx((many / 2 - 1 + 2) * value_bytes).epsilon(0.03));
  // What is computed again counts while it is there: of one pair at a time.
  CHECK(said(marks.explanation, "\nmemory") < said(all.explanation, "\nmemory") - 4 * value_bytes);
}

TEST_CASE("with recomputation or without, marked or not, on any placement, the variables are the same") {
  const auto expected = train(test::on_devices(4, 1), never, plain).digest;
  for (const int devices : {1, 3, 4})
    for (const auto from : {std::int64_t{0}, never}) {
      CHECK(train(test::on_devices(4, devices), from, plain).digest == expected);
      CHECK(train(test::on_devices(4, devices), from, marked).digest == expected);
    }
}

TEST_CASE("a step that needs more than the limit is refused while it is planned, with the largest owners named") {
  auto where = test::on_devices(1, 1);
  where.memory_limit = 100 << 10;
  const auto error = test::error_of([&] { train(where, never, plain); });
  CHECK_THAT(
      error,
      Contains("the step needs ") &&
          Contains(" of memory on cpu:0, but --memory-limit allows 100.0 KiB. It is for variables ") &&
          Contains("activations kept for the backward pass ") && Contains("The largest:\n  ") &&
          Contains("\n  16.0 KiB: replica0/convolution#") && Contains(" at test_memory.cpp:") &&
          Contains("float32[4, 16, 8, 8]") &&
          Contains(
              "\nUse smaller batches, wrap parts of the model in rp::recompute, or deal the replicas to more devices"));
  where.memory_limit = 1 << 20;
  CHECK(test::error_of([&] { train(where, never, plain); }) == "nothing");
}

TEST_CASE("on several devices every one is held to the limit, and mirrored variables count on each") {
  auto where = test::on_devices(2, 2);
  where.memory_limit = 100 << 10;
  CHECK_THAT(test::error_of([&] { train(where, never, plain); }), Contains("of memory on cpu:") && Contains("--memory-limit allows 100.0 KiB"));
  const auto one = train(test::on_devices(1, 1), never, plain).explanation, two = train(test::on_devices(2, 2), never, plain).explanation;
  CHECK(said(one, "variables") == said(two, "variables"));
}

TEST_CASE("a value that another device of the replica reads counts on the device that writes it") {
  auto where = test::on_devices(1, 2);
  where.logical_devices = 2;
  const auto split = [](ReplicaContext& replica, Tensor<float> x) {
    const auto h = [&] { const auto here = replica.logical_device(0); return block(replica, x, 0); }();
    const auto loss = [&] {
      const auto here = replica.logical_device(1);
      return mean(block(replica, h, 1));
    }();
    nn::sgd({.learning_rate = 0.1f}).minimize(replica, loss);
    return loss;
  };
  const auto text = train(where, never, split).explanation;  // of logical device 0, then 1
  const auto second = text.find("\nmemory ", text.find("\nmemory ") + 1);
  INFO(text);
  REQUIRE(second != std::string::npos);
  // Forward h, backward its gradient; the loss and small sums cross, too.
  for (const auto& of : {text.substr(0, second), text.substr(second)}) {
    CHECK(said(of, "values for other devices") == Approx(value_bytes).epsilon(0.03));
    CHECK_THAT(of, Contains("for the other devices of its replica"));
  }
  where.memory_limit = 100 << 10;
  CHECK_THAT(test::error_of([&] { train(where, never, split); }), Contains("values for other devices "));
}

TEST_CASE("bytes are told in the unit that fits") {
  CHECK(text_of_bytes(0) == "0 B");
  CHECK(text_of_bytes(1023) == "1023 B");
  CHECK(text_of_bytes(1536) == "1.50 KiB");
  CHECK(text_of_bytes(12 << 20) == "12.0 MiB");
  CHECK(text_of_bytes(std::size_t{3} << 30) == "3.00 GiB");
}

}  // namespace test_memory
