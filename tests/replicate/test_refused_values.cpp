// SPDX-License-Identifier: Apache-2.0
// Invalid values for kernels of devices with their own memory. The host detects them when it waits for the device, and
// the step fails as on a CPU.
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"
#include "pretend_device.hpp"

namespace test_refused_values {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on;
namespace pretend = replicator::test::pretend;

namespace {

using Devices = test::PretendGpus<Gather, ScatterAdd>;

// Three indices per replica and step; in step `bad` the second of replica 1 is 9, the first of replica 2 is -1.
auto indices_until(std::int64_t bad) {
  return [bad](const InputContext& ctx) {
    return data::from_generator([bad, replica = ctx.replica()](std::int64_t position) {
      const auto own = static_cast<std::int32_t>(position + replica) % 5;
      if (position < bad) return Array<std::int32_t>{{3}, {own, 2, 0}};
      return Array<std::int32_t>{{3}, {replica == 2 ? -1 : own, replica == 1 ? 9 : 2, 0}};
    });
  };
}

struct Outcome {
  std::string error, digest, explanation;
  int given = 0, replays = 0;                // to the devices in the last step
  std::vector<std::vector<float>> values{};  // behind the last step, whole or not
};

// Trains an embedding for `steps`; an index of step `bad` is refused.
template <class Look>
Outcome train(const Deployment& where, int steps, std::int64_t bad, Look look) {
  Outcome outcome;
  Replicator repl{where};
  auto train = repl.replicate(indices_until(bad), [&](ReplicaContext& replica, Tensor<std::int32_t> indices) {
    const auto rows = look(nn::embedding(replica, indices, "words", {.entries = 5, .features = 4, .initializer = Initializer::uniform(-1, 1)}));
    const auto loss = mean(rows * rows);
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  });
  outcome.error = error_of([&] {
    for (int step = 0; step < steps; ++step) {
      outcome.given = -pretend::counts.given;
      outcome.replays = -pretend::counts.replays;
      train.step();
      outcome.given += pretend::counts.given;
      outcome.replays += pretend::counts.replays;
    }
  });
  for (int device = 0; device < (where.logical_devices > 1 ? 1 : static_cast<int>(where.devices.size())); ++device) {
    const auto value = repl.value("words.weight", device);
    outcome.values.emplace_back(value.as<float>().begin(), value.as<float>().end());
  }
  if (outcome.error.empty()) outcome.digest = repl.digest();
  else CHECK(error_of([&] { train.step(); }) == outcome.error);
  outcome.explanation = train.explain();
  return outcome;
}
Outcome train(const Deployment& where, int steps, std::int64_t bad = 100) {
  return train(where, steps, bad, [](auto rows) { return rows; });
}

const std::string refused = "the index 9 at [1] of the indices int32[3] lies outside of axis 0 of float32[5, 4]: indices count from 0 and must be below 5";

}  // namespace

TEST_CASE("an embedding has the CPU's bits, and all that its step gives to a device is captured") {
  const Devices devices;
  const auto expected = train(on(DeviceKind::cpu, 4, 1), 5);
  for (const int count : {1, 2, 3}) CHECK(train(on(DeviceKind::cuda, 4, count), 5).digest == expected.digest);
  const auto alone = train(on(DeviceKind::cuda, 4, 1), 5);
  CHECK(alone.replays == 3);    // inputs, results, updates
  CHECK(alone.given == 3 + 5);  // single instructions are given alone; so are the mean, and what was refused: before the updates and at the end
  CHECK_THAT(alone.explanation, !Catch::Contains("is not captured"));
  CHECK(devices.in_use() == 0);
}

TEST_CASE("an index outside ends the step with the CPU's words, whether the step is launched, captured or replayed, and no variable has changed") {
  const Devices devices;
  for (const int bad : {0, 1, 3})
    for (const int count : {1, 2, 3}) {
      const auto before = train(on(DeviceKind::cpu, 3, 1), bad).values[0];
      const auto cpu = train(on(DeviceKind::cpu, 3, 1), 5, bad);
      const auto outcome = train(on(DeviceKind::cuda, 3, count), 5, bad);
      CHECK_THAT(cpu.error, Catch::StartsWith("replica 1: embedding \"words\" at test_refused_values.cpp:") && Catch::EndsWith(": " + refused));
      if (count == 1) CHECK(outcome.error == cpu.error);
      else CHECK_THAT(outcome.error, Catch::StartsWith("replica 1: embedding \"words\" at ") || Catch::StartsWith("replica 2: embedding \"words\" at "));
      for (const auto& value : outcome.values) CHECK(value == before);
      CHECK(outcome.values.size() == static_cast<std::size_t>(count));
    }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("replicas that are spread over devices, and devices that meet in the host's memory, are told too") {
  const Devices devices;
  const auto before = train(on(DeviceKind::cpu, 2, 1), 2).values[0];
  auto spread = on(DeviceKind::cuda, 2, 2);
  spread.logical_devices = 2;
  const auto parts = train(spread, 4, 2);
  CHECK_THAT(parts.error, Catch::EndsWith(refused));
  CHECK(parts.values[0] == before);
  pretend::apart = "they are apart";
  const auto staged = train(on(DeviceKind::cuda, 2, 2), 4, 2);
  CHECK_THAT(staged.error, Catch::EndsWith(refused));
  CHECK(staged.values == std::vector<std::vector<float>>(2, before));
}

TEST_CASE("nobody on the host sees what a kernel has made of a value that it refused") {
  const Devices devices;
  const auto seen_on = [](DeviceKind kind) {
    std::vector<std::string> lines;
    const auto outcome = train(on(kind, 2, 1), 4, 2, [&](auto rows) { return print(rows, "rows", {.sink = [&](const std::string& text) { lines.push_back(text); }}); });
    return std::pair{lines, outcome.error};
  };
  const auto expected = seen_on(DeviceKind::cpu);
  CHECK(expected.first.size() == 5);  // replica 0 of step 2 was well
  CHECK(seen_on(DeviceKind::cuda) == expected);
}

TEST_CASE("what only an update asks for is refused before the update") {
  const Devices devices;
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    Replicator repl{on(kind, 2, 1)};
    const auto input_fn = [](const InputContext&) { return data::from_generator([](std::int64_t i) { return Array<std::int32_t>{{2}, {1, i < 2 ? 0 : 7}}; }); };
    auto step = repl.replicate(input_fn, [](ReplicaContext& replica, Tensor<std::int32_t> indices) {
      auto w = replica.variable<float>("w", {2}, Initializer::uniform(-1, 1));
      auto slot = replica.variable<float>("slot", {2}, Initializer::ones());
      const auto same = all_reduce(indices, Reduction::max);
      slot.assign(slot.read() + w.read());
      w.assign(gather(w.read() + slot.read(), same));
      return indices;
    });
    step.step(), step.step();
    const auto w = repl.value("w"), slot = repl.value("slot");
    CHECK_THAT(error_of([&] { step.step(); }), Catch::StartsWith("gather at test_refused_values.cpp:") && Catch::Contains("the index 7 at [1]"));
    if (kind == DeviceKind::cpu) continue;  // there the update may have begun
    CHECK(std::memcmp(w.data(), repl.value("w").data(), w.size_bytes()) == 0);
    CHECK(std::memcmp(slot.data(), repl.value("slot").data(), slot.size_bytes()) == 0);
  }
}

TEST_CASE("the other processes of a job end with an error that names the one whose kernel refused a value") {
  const auto results = test::run_as_job(2, [](int) {
    const Devices devices;
    auto where = on(DeviceKind::cuda, 4, 1);
    where.deadline = std::chrono::seconds{20};
    return train(where, 5, 2).error;
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::Contains(": embedding \"words\" at test_refused_values.cpp:") && Catch::Contains("lies outside of axis 0"));
}

}  // namespace test_refused_values
