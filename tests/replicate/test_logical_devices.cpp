// SPDX-License-Identifier: Apache-2.0
// Model parallelism: a replica spread over several devices has the bits of one that is not.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/sgd.hpp>
#include <replicator/ops/loss.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/replicate/replicator.hpp>

#include "deployments.hpp"
#include "run_random.hpp"

using namespace replicator;
using Catch::Matchers::Contains;
using test::error_of;
using test::run;

namespace {

Deployment spread(int replicas, int devices, int logical, std::int64_t bucket_bytes = 4 << 20) {
  Deployment result = test::on_devices(replicas, devices);
  result.logical_devices = logical;
  result.bucket_bytes = bucket_bytes;
  result.deadline = std::chrono::seconds{20};
  return result;
}

// What differs, or nothing.
std::string difference(const test::RandomProgram& program, const test::Outcome& alone, const Deployment& where) {
  const auto other = run(program, where);
  if (other.digest == alone.digest && other.outputs == alone.outputs) return {};
  return std::to_string(where.replicas) + " replicas of " + std::to_string(where.logical_devices) + " logical devices on " +
         std::to_string(where.devices.size()) + " devices: " + (other.outputs == alone.outputs ? "the variables" : "the outputs") +
         " differ\n" + test::text_of(program) + "\n" + other.explanation;
}

// (x W0) W1 with W0 on logical device 0 and W1 on the last; the loss follows what it is made of.
Tensor<float> two_layers(ReplicaContext& replica, Tensor<float> x) {
  const auto layer = [&](Tensor<float> in, const char* name, int device) {
    const auto here = replica.logical_device(device);
    const auto w = replica.variable<float>(name, {4, 4}, Initializer::normal(0, 0.5));
    return map([](auto v) { return tanh(v); }, matmul(in, w.read()));
  };
  const auto last = replica.logical_devices() - 1;
  const auto loss = mean(layer(layer(x, "first", 0), "second", last));
  nn::sgd({.learning_rate = 0.5, .momentum = 0.9}).minimize(replica, loss);
  return loss;
}
auto rows(const InputContext& ctx) {
  return data::from_generator([ctx](std::int64_t position) {
    PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
    Array<float> x{{2, 4}};
    for (auto& value : x) value = random.uniform();
    return x;
  });
}

}  // namespace

TEST_CASE("any program, placed anyhow over the logical devices of a replica, has the bits of one that is not placed") {
  const bool holds = rc::check([] {
    const auto program = test::draw_program();
    const int replicas = *rc::gen::element(1, 2, 3, 5), logical = *rc::gen::inRange(2, 4);
    const auto alone = run(program, spread(replicas, 1, 1));
    // Fewer devices than logical ones, as many, and groups of them.
    std::vector<int> counts{1, logical - 1};
    for (int groups = 1; groups <= replicas; ++groups) counts.push_back(groups * logical);
    for (const int devices : counts) {
      const auto bucket_bytes = *rc::gen::element<std::int64_t>(1, 64, 4 << 20);
      const auto found = difference(program, alone, spread(replicas, devices, logical, bucket_bytes));
      RC_ASSERT(found == "");
    }
  });
  CHECK(holds);
}

TEST_CASE("every collective works between any device of the replicas, and values cross in every direction") {
  test::RandomProgram program;
  for (unsigned device = 0; device < 3; ++device)
    for (const unsigned op : {7u, 8u, 9u, 10u, 12u, 14u, 15u, 0u, 13u, 6u, 5u, 11u})
      for (unsigned shape = 0; shape < 4; ++shape) program.push_back({op, shape, 61 + device, 7 * op + shape, op % 4, device + op});
  for (const int replicas : {1, 2, 3}) {
    const auto alone = run(program, spread(replicas, 1, 1));
    for (const int logical : {2, 3})
      for (int groups = 1; groups <= replicas; ++groups)
        CHECK(difference(program, alone, spread(replicas, groups * logical, logical, 64)) == "");
  }
}

TEST_CASE("a model of two halves trains like one, and each device does its half only") {
  const auto train = [](const Deployment& where) {
    Replicator repl{where};
    auto step = repl.replicate(rows, two_layers);
    for (const auto& result : step.steps(5)) (void)result;
    return repl.digest();
  };
  const auto alone = train(spread(4, 1, 1));
  for (const int devices : {1, 2, 4, 8}) CHECK(train(spread(4, devices, 2)) == alone);
}

TEST_CASE("ResNet-18, its first half on one device and its second on another, has the digest of the one that is not spread") {
  const auto train = [](const Deployment& where) {
    Replicator repl{where};
    const auto input_fn = [](const InputContext& ctx) {
      return data::from_generator([ctx](std::int64_t position) {
        PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
        Array<float> images{{2, 3, 8, 8}};
        for (auto& value : images) value = random.uniform();
        return std::tuple{std::move(images), Array<std::int32_t>{{2}, {1, 7}}};
      });
    };
    auto step = repl.replicate(input_fn, [](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
      const auto logits = models::resnet18(replica, images, {.classes = 10, .cifar_stem = true, .logical_devices = replica.logical_devices()});
      const auto loss = mean(softmax_cross_entropy(logits, labels));
      nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
      return loss;
    });
    for (const auto& result : step.steps(2)) (void)result;
    return repl.digest();
  };
  const auto alone = train(spread(2, 1, 1));
  CHECK(train(spread(2, 2, 2)) == alone);
  CHECK(train(spread(2, 4, 2)) == alone);
}

TEST_CASE("a logical device that does not exist is refused at the user's line") {
  const auto error = [](int logical, int asked) {
    Replicator repl{spread(1, 1, logical)};
    return error_of([&] {
      repl.replicate(rows, [asked](ReplicaContext& replica, Tensor<float>) { (void)replica.logical_device(asked); });
    });
  };
  CHECK_THAT(error(1, 1), Contains("replica 0: logical_device(1) at test_logical_devices.cpp:") &&
                              Contains("does not exist: a replica has the logical device 0 only; ask for more with --logical-devices"));
  CHECK_THAT(error(2, 2), Contains("a replica has the logical devices 0 to 1;"));
  CHECK_THAT(error(2, -1), Contains("logical_device(-1)"));
}

TEST_CASE("devices that cannot be dealt to replicas are refused") {
  CHECK(error_of([] { Replicator{spread(4, 3, 2)}; }) ==
        "--devices names 3 devices for replicas of 2 logical devices: name a multiple of 2, or fewer, which they share");
  CHECK_THAT(error_of([] { Replicator{spread(1, 4, 2)}; }),
             Contains("there are 1 replicas for 4 devices on 1 process(es)") && Contains("2 devices share theirs"));
}

TEST_CASE("replicas that place a collective or a variable on different logical devices are refused") {
  const auto error = [](bool variable) {
    Replicator repl{spread(2, 2, 2)};
    return error_of([&] {
      repl.replicate(rows, [variable](ReplicaContext& replica, Tensor<float> x) {
        const auto here = replica.logical_device(replica.id());
        if (variable) replica.variable<float>("w", {}, Initializer::zeros());
        else all_reduce(x, Reduction::sum, {.label = "x"});
      });
    });
  };
  CHECK_THAT(error(false), Contains("replica 1: all_reduce \"x\" at test_logical_devices.cpp:") &&
                               Contains("has its place on logical device 1; replica 0 has logical device 0 at") &&
                               Contains("replicas must place their collectives on the same logical devices"));
  CHECK_THAT(error(true), Contains("the variable \"w\" at test_logical_devices.cpp:") &&
                              Contains("is on logical device 1; in replica 0 it is on logical device 0 at"));
}
