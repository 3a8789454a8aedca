// SPDX-License-Identifier: Apache-2.0
// Devices with endless kernels: no wait for them exceeds the deadline, and nothing that would wait is called
// afterwards.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <string>

#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>

#include "../support/errors.hpp"
#include "deployments.hpp"
#include "pretend_device.hpp"

namespace test_hanging_device {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::error_of;
namespace pretend = replicator::test::pretend;

namespace {

using Devices = replicator::test::PretendGpus<>;

// Of the third step, in which device `stuck` of so many hangs: from its beginning, or behind a look at the last replica's values.
std::string error_of_step(int devices, int stuck, bool amid = false, SeeOptions see = {}, int logical_devices = 1) {
  pretend::pinned.all = true;
  auto where = test::on(DeviceKind::cuda, 4, devices);
  where.logical_devices = logical_devices;
  where.deadline = std::chrono::seconds{2};
  where.see = see;
  std::atomic<bool> now{false};
  const auto sink = [&](const std::string&) { pretend::device(stuck).stuck = now.load(); };
  Replicator repl{where};
  auto step = repl.replicate([](const InputContext&) { return data::from_generator([] { return Array<float>{{3, 4}}; }); },
                             [&](ReplicaContext& replica, Tensor<float> x) {
                               if (amid && replica.id() == 3) x = print(x, "x", {.sink = sink});
                               auto y = nn::linear(replica, x, "layer", {.features = 5});
                               if (logical_devices > 1) {
                                 const auto there = replica.logical_device(1);
                                 y = nn::linear(replica, y, "last", {.features = 2});
                               }
                               const auto loss = mean(tanh(y));
                               nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
                               return loss;
                             });
  for (int i = 0; i < 2; ++i) step.step();
  now = true;
  pretend::device(stuck).stuck = !amid;
  const auto error = error_of([&] { step.step(); });
  CHECK(error_of([&] { step.step(); }) == error);
  return error;
}

}  // namespace

TEST_CASE("a device that hangs ends the step at the deadline, by an error that names it and not who waits for it; the program ends") {
  for (const int stuck : {0, 1}) {
    const Devices devices;
    CHECK(error_of_step(2, stuck) == "step 2: cuda:" + std::to_string(stuck) + ", of the replicas " + (stuck ? "2 to 3" : "0 to 1") +
                                         ", had not done what it was given when the deadline was over. A kernel hangs or is slow: look there, run with "
                                         "--timing, which waits for each node and names it, or allow more time with --deadline");
  }
}

TEST_CASE("where nodes are timed the one that hangs is named, unless a rank that waits for it is the first to say so") {
  const Devices devices;
  SeeOptions see;
  see.timing = true;
  CHECK_THAT(error_of_step(2, 1, true, see),
             Catch::Contains("rank 0 waited until the deadline for rank 1 (replicas 2 to 3)") ||
                 (Catch::StartsWith("step 2: cuda:1, of the replicas 2 to 3, had not done observe at test_hanging_device.cpp:") &&
                  Catch::EndsWith(" slow: look there, or allow more time with --deadline")));
}

TEST_CASE("devices that hand values to each other do so by memory that is pinned: none of them waits for one that hangs in its driver") {
  for (const int devices : {2, 4})
    for (int stuck = 0; stuck < 2; ++stuck) {
      const Devices pretended;
      CHECK_THAT(error_of_step(devices, stuck, false, {}, 2), Catch::Contains("deadline"));
    }
}

TEST_CASE("devices that meet in the host's memory are released, too, when one hangs, and it is the one that is named") {
  for (const int stuck : {0, 1, 2}) {
    const Devices devices;
    pretend::apart = "they are apart";
    const auto rank = std::to_string(stuck);
    CHECK_THAT(error_of_step(3, stuck), Catch::Contains("rank " + rank + " waited until the deadline for its own device " + rank + ", which computes") ||
                                            Catch::StartsWith("step 2: cuda:" + rank + ", of " + (stuck == 0 ? "the replicas 0 to 1" : "replica " + std::to_string(stuck + 1)) + ", had not done "));
  }
}

}  // namespace test_hanging_device
