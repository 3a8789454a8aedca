// SPDX-License-Identifier: Apache-2.0
// Programs on a kind of device with its own memory and queue.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/replicator.hpp>

#include "deployments.hpp"
#include "pretend_device.hpp"
#include "run_random.hpp"

namespace test_device_memory {

using namespace replicator;
using namespace replicator::detail;

namespace {

using Devices = test::PretendGpus<Convolution, ConvolutionBackwardData, ConvolutionBackwardWeights, MaxPool, MaxPoolSpread>;

Deployment deployment(DeviceKind kind, int replicas, int devices) { return test::on(kind, replicas, devices, 5); }

std::string random_outcome(const test::RandomProgram& program, const Deployment& where) {
  const auto outcome = test::run(program, where);
  return outcome.outputs + outcome.digest;
}

std::string regression_digest(const Deployment& where) {
  Replicator repl{where};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([n = ctx.replica_batch(24), ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> x{{n, 2}}, y{{n, 1}};
      for (auto& value : x) value = 2 * random.uniform() - 1;
      for (std::int64_t i = 0; i < n; ++i) y[i] = 0.75f * x[2 * i] - 0.5f * x[2 * i + 1];
      return std::tuple{x, y};
    });
  };
  const auto step_fn = [](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
    auto w = replica.variable<float>("w", {2, 1}, Initializer::zeros());
    auto loss = mean(map([](auto a, auto b) { return pow(tanh(a) - tanh(b), 2); }, matmul(x, w.read()), y));
    nn::sgd({.learning_rate = 0.5, .momentum = 0.5}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  float last = 0;
  for (auto [loss] : train.steps(10)) last = mean(loss);
  CHECK(last < 0.02f);
  return repl.digest();
}

// Convolution, batch norm, pooling and a class for each picture, two steps.
std::string pictures_digest(const Deployment& where) {
  Replicator repl{where};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([n = ctx.replica_batch(12), ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> images{{n, 2, 9, 9}};
      Array<std::int32_t> labels{{n}};
      for (auto& value : images) value = 2 * random.uniform() - 1;
      for (auto& label : labels) label = static_cast<std::int32_t>(random.below(3));
      return std::tuple{images, labels};
    });
  };
  const auto step_fn = [](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    auto x = relu(nn::batch_norm(replica, nn::conv2d(replica, images, "first", {.features = 8, .kernel = {3, 3}, .padding = {1, 1}}), "norm"));
    x = nn::conv2d(replica, max_pool(x, {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}), "second", {.features = 4, .kernel = {3, 3}});
    auto loss = mean(softmax_cross_entropy(nn::linear(replica, global_average_pool(x), "classes", {.features = 3}), labels));
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (int i = 0; i < 2; ++i) train.step();
  return repl.digest();
}

}  // namespace

TEST_CASE("training on devices with memory of their own gives the CPU's bits") {
  const Devices devices;
  const std::string expected = regression_digest(deployment(DeviceKind::cpu, 8, 1));
  for (const int count : {1, 2, 3, 8}) CHECK(regression_digest(deployment(DeviceKind::cuda, 8, count)) == expected);
  const std::string of_pictures = pictures_digest(deployment(DeviceKind::cpu, 4, 1));
  for (const int count : {1, 3, 4}) CHECK(pictures_digest(deployment(DeviceKind::cuda, 4, count)) == of_pictures);
  CHECK(devices.in_use() == 0);
}

TEST_CASE("several logical devices share one GPU with the same bits") {
  const Devices devices;
  const std::string expected = regression_digest(deployment(DeviceKind::cpu, 8, 1));
  const char* const arguments[] = {"--replicas", "8", "--seed", "5", "--input-threads", "1", "--devices", "cuda:0x3,cuda:2"};
  const auto shared = Deployment::from(arguments);
  REQUIRE(shared.devices.size() == 4);
  CHECK(shared.devices[2].text() == "cuda:0/2");
  CHECK(shared.devices[3].text() == "cuda:2");
  CHECK(regression_digest(shared) == expected);
  const char* const twice[] = {"--devices", "cuda:0x3,cuda:0"};
  CHECK_THROWS_WITH(Deployment::from(twice), "--devices names cuda:0 twice");
  const char* const logical[] = {"--devices", "cpu:0x2"};
  CHECK_THROWS_WITH(Deployment::from(logical), Catch::Contains("--devices has \"cpu:0x2\": name devices as"));
}

TEST_CASE("kernels are made where the first device of the process has been entered, for libraries look at it") {
  const Devices devices;
  auto where = deployment(DeviceKind::cuda, 2, 2);
  where.devices = {{DeviceKind::cuda, 5}, {DeviceKind::cuda, 2}};
  test::pretend::made_on.clear();
  (void)regression_digest(where);
  CHECK(test::pretend::made_on == std::set<int>{5});
}

TEST_CASE("random programs give the same bits on devices with memory of their own") {
  const Devices devices;
  const bool same = rc::check([] {
    const auto program = test::draw_program();
    const int replicas = *rc::gen::inRange(1, 6), teams = *rc::gen::inRange(1, replicas + 1),
              logical = *rc::gen::inRange(1, teams > 4   ? 2
                                             : teams > 2 ? 3
                                                         : 4);
    auto where = deployment(DeviceKind::cuda, replicas, teams * logical);
    where.logical_devices = logical;
    test::pretend::pinned.all = *rc::gen::arbitrary<bool>();
    test::pretend::apart = *rc::gen::arbitrary<bool>() ? "they are apart" : "";
    RC_LOG() << replicas << " replicas of " << logical << " logical devices on " << teams * logical << " devices: " << text_of(program) << '\n';
    RC_ASSERT(random_outcome(program, deployment(DeviceKind::cpu, replicas, 1)) == random_outcome(program, where));
  });
  CHECK(same);
}

TEST_CASE("no copy of a step waits in the driver where memory can be pinned, and constants are copied once") {
  const Devices devices;
  test::pretend::pinned.all = true;
  static constexpr std::int64_t large = 10000;
  const auto trained = [](const Deployment& where) {
    Replicator repl{where};
    const auto input_fn = [](const InputContext& ctx) {
      return data::from_generator([replica = ctx.replica()](std::int64_t i) { return Array<float>{{3}, {1, static_cast<float>(i), static_cast<float>(replica)}}; });
    };
    auto train = repl.replicate(input_fn, [](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {3}, Initializer::uniform(-1, 1));
      Array<float> many{{large}};
      for (std::int64_t i = 0; i < large; ++i) many[i] = static_cast<float>(i % 7);
      auto y = dropout(x * w.read(), 0.5) + 1e-4f * sum(constant(x.graph(), many));
      {
        const auto there = replica.logical_device(replica.logical_devices() - 1);
        y = tanh(y);
      }
      const auto loss = sum(all_reduce(y, Reduction::max));  // whose gradient asks which replica it is at
      nn::sgd({.learning_rate = [](Symbol step) { return 0.1 / (1 + step); }}).minimize(replica, loss);
      return std::tuple{loss, y};
    });
    std::int64_t copied = 0;
    for (int i = 0; i < 6; ++i) {
      copied = -test::pretend::counts.from_host;
      train.step();
      copied += test::pretend::counts.from_host;
    }
    CHECK(copied < large);
    return repl.digest();
  };
  const auto expected = trained(deployment(DeviceKind::cpu, 4, 1));
  for (const int count : {1, 2, 4})
    for (const int logical : {1, 2})
      for (const char* const apart : {"", "they are apart"}) {
        if (logical > count) continue;
        test::pretend::apart = apart;
        auto where = deployment(DeviceKind::cuda, 4, count);
        where.logical_devices = logical;
        CHECK(trained(where) == expected);
      }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("values in a device's own memory are shown on the host, and the first NaN there is found") {
  const Devices devices;
  std::string line;
  auto where = deployment(DeviceKind::cuda, 1, 1);
  where.see.find_nan = true;
  Replicator repl{where};
  auto train = repl.replicate(
      [](const InputContext&) {
        return data::from_generator([](std::int64_t i) { return Array<float>{{2}, {1, 1 - static_cast<float>(i)}}; });
      },
      [&](ReplicaContext&, Tensor<float> x) {
        return sqrt(print(x + 0.5f, "x", {.sink = [&](const std::string& text) { line = text; }}) - 1.0f);
      });
  train.step();
  CHECK_THAT(line, Catch::EndsWith("float32[2] = 1.5 1.5"));
  CHECK_THROWS_WITH(train.step(), Catch::Contains("replica 0, step 1: map#") && Catch::Contains("made the first NaN"));
  CHECK_THAT(line, Catch::EndsWith("float32[2] = 1.5 0.5"));
}

TEST_CASE("the limits of a kind of device that cannot be measured are not those of the CPU") {
  const Devices devices;
  auto where = deployment(DeviceKind::cuda, 1, 1);
  where.see.timing = true;
  Replicator repl{where};
  auto train = repl.replicate([](const InputContext&) { return data::from_generator([] { return Array<float>{{64, 64}}; }); },
                              [](ReplicaContext&, Tensor<float> x) { return sum(matmul(x, x)); });
  for (int i = 0; i < 4; ++i) train.step();
  CHECK_THAT(train.explain({.calibrate = true}), Catch::StartsWith("limits of a cuda device: not measured, ") && !Catch::Contains("of the roofline"));
  CHECK_THAT(train.explain({.machine = {.flops = 1e15, .memory_bytes = 1e15}, .calibrate = true}),
             Catch::StartsWith("limits of a cuda device: not measured, ") && Catch::Contains("of the roofline"));
}

TEST_CASE("a kind of device that is not part of the program is refused with its name") {
  CHECK_THROWS_WITH(Replicator{deployment(DeviceKind::cuda, 1, 1)},
                    Catch::Contains("the device cuda:0 was asked for, but this program was built without cuda"));
}

}  // namespace test_device_memory
