// SPDX-License-Identifier: Apache-2.0
// Collectives in device memory that peers can read: the bits are those of host memory. Also the fallback if devices
// cannot read each other.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>
#include <replicator/runtime/queue.hpp>
#include <replicator/transport/in_process_devices.hpp>

#include "../collectives/ranks.hpp"
#include "../support/cases.hpp"
#include "../support/errors.hpp"
#include "deployments.hpp"
#include "pretend_device.hpp"
#include "random_rows.hpp"
#include "received.hpp"
#include "recordings.hpp"

namespace test_device_collectives {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::Asked;
using replicator::test::counts_to;
using replicator::test::error_of;
using replicator::test::of_all_kinds;
using replicator::test::Received;
using replicator::test::received_on_devices;
using replicator::test::received_on_host;
using replicator::test::soon;
using replicator::test::spec_of;
namespace pretend = replicator::test::pretend;
namespace cl = replicator::detail::collectives;
namespace rt = replicator::detail::transport;

namespace {

using Devices = test::PretendGpus<>;

std::vector<int> one_each(int ranks) {
  std::vector<int> indices;
  for (int rank = 0; rank < ranks; ++rank) indices.push_back(rank % pretend::devices);
  return indices;
}
// cuda:0x2,cuda:1x2, ...
std::vector<int> two_each(int ranks) {
  std::vector<int> indices;
  for (int rank = 0; rank < ranks; ++rank) indices.push_back(rank / 2);
  return indices;
}

Received received_in_their_memory(const std::vector<Asked>& all, const std::vector<int>& indices) {
  const auto& support = support_of(DeviceKind::cuda);
  REQUIRE(rt::why_apart(support, "cuda", indices).empty());
  rt::InProcessDeviceGroup group{support, indices};
  return received_on_devices(all, indices, group,
                             [&](int rank) { return cl::make_communicator(rt::InProcessDevices{group, rank}, all[0].schedule.blocks); });
}

}  // namespace

TEST_CASE("all-reduces on devices have the host's bits by every schedule, on any number of devices, with several replicas on each") {
  const Devices devices;
  for (const int ranks : counts_to(8))
    for (const int replicas : {ranks, 2 * ranks + 1}) {
      const cl::ReplicaBlocks blocks{replicas, ranks};
      std::vector<Asked> all;
      for (const auto name : cl::all_reduce_names) {
        auto spec = spec_of(cl::Kind::all_reduce, 101, static_cast<std::uint32_t>(all.size()));
        spec.reduction = all.size() % 2 ? Reduction::mean : Reduction::sum;
        spec.any_order = true;
        all.push_back({spec, cl::all_reduce_by_name({std::string{name}}, blocks)});
      }
      INFO(replicas << " replicas on " << ranks << " devices");
      const auto expected = received_on_host(all);
      CHECK(received_in_their_memory(all, one_each(ranks)) == expected);
      CHECK(received_in_their_memory(all, two_each(ranks)) == expected);
    }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("all kinds of collectives on devices have the host's bits, in groups too, of every element type") {
  const Devices devices;
  for (const int ranks : counts_to(8)) {
    const cl::ReplicaBlocks blocks{ranks % 2 ? 2 * ranks : ranks, ranks};
    const auto all = of_all_kinds(blocks, 37);
    INFO(blocks.replicas() << " replicas on " << ranks << " devices");
    CHECK(received_in_their_memory(all, one_each(ranks)) == received_on_host(all));
  }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("a device waits for no rank that has not come: its thread does, until the deadline, and says whom") {
  const Devices devices;
  const auto& support = support_of(DeviceKind::cuda);
  rt::InProcessDeviceGroup group{support, {0, 0}};
  const cl::ReplicaBlocks blocks{4, 2};
  auto spec = spec_of(cl::Kind::all_reduce, 10, 0);
  spec.name = "all_reduce \"loss\"";
  const auto on_rank = [&](int rank, auto work) {
    const auto communicator = cl::make_communicator(rt::InProcessDevices{group, rank}, blocks);
    const auto collective = communicator->prepare(spec, cl::owner_computes(blocks));
    work(*collective);
  };
  on_rank(0, [&](cl::Collective& collective) {
    const Queue queue{support, 0};
    collective.on_device()->start_behind(queue.handle());
    CHECK(error_of([&] { collective.wait(rt::Clock::now() + std::chrono::milliseconds{20}); }).starts_with("all_reduce \"loss\": rank 0 waited until the deadline for rank 1 (replicas 2 to 3); "));
    queue.synchronise();  // no device hangs
    CHECK_THAT(error_of([&] { collective.start(); }), Catch::Contains("was started while its last step is under way"));
    group.abort({"rank 1 has left", 1});
    CHECK(error_of([&] { collective.advance(); }) == "rank 1 has left");
  });
}

namespace {

Deployment on(DeviceKind kind, int replicas, int devices) {
  auto result = test::on(kind, replicas, devices);
  result.deadline = std::chrono::seconds{20};
  return result;
}
struct Trained {
  std::string digest, explanation;
  std::int64_t copied;  // bytes between host and devices in the last step
};
Trained train(const Deployment& where, int count = 4) {
  Replicator repl{where};
  auto step = repl.replicate(test::random_rows({3, 4}), [](ReplicaContext& replica, Tensor<float> x) {
    const auto hidden = nn::batch_norm(replica, nn::linear(replica, x, "first", {.features = 5}), "norm");
    const auto y = nn::linear(replica, tanh(hidden), "second", {.features = 1});
    const auto loss = mean(y * y);
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    const auto everybody = all_gather(loss, {.label = "losses"});
    return std::tuple{loss, all_reduce(everybody, Reduction::max), sum(everybody)};
  });
  const auto copied = [] {
    pretend::settle();
    return pretend::counts.from_host + pretend::counts.to_host;
  };
  auto before = copied();
  for (int i = 0; i < count; ++i) {
    before = copied();
    step.step();
  }
  const auto last = copied() - before;
  return {repl.digest(), step.explain(), last};
}

}  // namespace

TEST_CASE("what a device gives to collectives, and receives from them, stays in its memory") {
  const Devices devices;
  const auto expected = train(on(DeviceKind::cpu, 8, 1)).digest;
  for (const int count : {1, 2, 3, 8}) {
    const auto outcome = train(on(DeviceKind::cuda, 8, count));
    CHECK(outcome.digest == expected);
    // Of each replica its element and its loss; of each device the results that are one for all, and the number of the step.
    CHECK(outcome.copied == 8 * (12 * 4 + 4) + count * (8 * 4 + 4 + 8));
    CHECK_THAT(outcome.explanation, !Catch::Contains("through the host's memory"));
    if (count > 1) CHECK_THAT(outcome.explanation, Catch::Contains(" B between devices: one latency"));
  }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("who times a step times collectives on devices until they are done, and changes no bit") {
  const Devices devices;
  auto where = on(DeviceKind::cuda, 4, 2);
  where.see.timing = true;
  const auto outcome = train(where, 5);
  CHECK(outcome.digest == train(on(DeviceKind::cpu, 4, 1), 5).digest);
  CHECK_THAT(outcome.explanation, Catch::Contains("(start to end, median)"));
  CHECK(devices.in_use() == 0);
}

TEST_CASE("devices that do not reach each other meet in the host's memory, with the same bits, and explain says why") {
  const Devices devices;
  const auto expected = train(on(DeviceKind::cpu, 4, 1)).digest;
  pretend::apart = "cuda:0 cannot read the memory of cuda:1";
  for (const int count : {2, 3}) {
    const auto outcome = train(on(DeviceKind::cuda, 4, count));
    CHECK(outcome.digest == expected);
    CHECK_THAT(outcome.explanation, Catch::Contains("; through the host's memory: cuda:0 cannot read the memory of cuda:1"));
  }
  // One device has nobody to reach.
  CHECK_THAT(train(on(DeviceKind::cuda, 4, 1)).explanation, !Catch::Contains("through the host's memory"));
  CHECK(devices.in_use() == 0);
}

TEST_CASE("devices that read other bytes than are in each other's memory meet in the host's, with the same bits, and explain says who reads them how") {
  const auto expected = train(on(DeviceKind::cpu, 4, 1)).digest;
  for (const bool copies : {false, true}) {
    const Devices devices;
    pretend::misread = {2, 1, copies};
    CHECK_THAT(train(on(DeviceKind::cuda, 4, 2)).explanation, !Catch::Contains("through the host's memory"));
    const auto outcome = train(on(DeviceKind::cuda, 4, 3));
    CHECK(outcome.digest == expected);
    CHECK_THAT(outcome.explanation, Catch::Contains(std::string{"; through the host's memory: "} + (copies ? "copies" : "kernels") +
                                                    " of cuda:2 read other bytes from the memory of cuda:1 than are there: an IOMMU or the access control of PCIe "
                                                    "bridges (ACS) stands between them, and is to be switched off"));
    CHECK(devices.in_use() == 0);
  }
}

TEST_CASE("a device that fails in a collective is named, and releases the others") {
  const Devices devices;
  {
    Replicator repl{on(DeviceKind::cuda, 4, 4)};
    auto step = repl.replicate([](const InputContext&) { return data::from_generator([] { return Array<float>{{100}}; }); },
                               [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum, {.label = "x"}); });
    step.step();
    pretend::device(2).lost = true;
    const auto error = error_of([&] { step.step(); });
    CHECK_THAT(error, Catch::StartsWith("all_reduce \"x\" at test_device_collectives.cpp:") &&
                          Catch::EndsWith(": rank 2 (replica 2, device 2 of its kind): the device is lost"));
    CHECK(error_of([&] { step.step(); }) == error);
  }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("a device that fails while it does its part of a collective has changed no variable of any device") {
  const auto floats = [](const AnyArray& array) { return std::vector<float>(array.as<float>().begin(), array.as<float>().end()); };
  for (int run = 0; run < 10; ++run) {
    const Devices devices;
    {
      Replicator repl{on(DeviceKind::cuda, 4, 4)};
      auto step = repl.replicate([](const InputContext&) { return data::from_generator([] { return Array<float>{{100}}; }); },
                                 [](ReplicaContext& replica, Tensor<float> x) {
                                   auto w = replica.variable<float>("w", {100}, Initializer::ones());
                                   w.assign(w.read() + all_reduce(x + 1.0f, Reduction::sum));
                                   return mean(x);
                                 });
      step.step();
      const auto before = floats(repl.value("w"));
      CHECK(before == std::vector<float>(100, 5));
      pretend::device(2).fails = true;
      CHECK_THROWS_WITH(step.step(), "the device has failed");
      for (const int replica : {0, 1, 3}) CHECK(floats(repl.value("w", replica)) == before);
    }
    CHECK(devices.in_use() == 0);
  }
}

TEST_CASE("when collectives are gone on all devices, so is their memory, though the communicators stay") {
  const Devices devices;
  const cl::ReplicaBlocks blocks{3, 3};
  const auto spec = spec_of(cl::Kind::all_reduce, 1000, 0);
  const auto schedule = cl::choose(spec.kind, 4000, blocks, 0, false, {}, {}, rt::Latency::queues).schedule;
  rt::InProcessDeviceGroup group{support_of(DeviceKind::cuda), {0, 1, 1}};
  std::vector<std::unique_ptr<cl::Communicator>> communicators;
  std::vector<std::unique_ptr<cl::Collective>> collectives;
  for (int rank = 0; rank < 3; ++rank) communicators.push_back(cl::make_communicator(rt::InProcessDevices{group, rank}, blocks));
  for (int times = 0; times < 2; ++times) {
    for (auto& communicator : communicators) collectives.push_back(communicator->prepare(spec, schedule));
    const auto held = devices.in_use();
    CHECK(held == 3 * 4);  // a block, a queue and two events each
    collectives.pop_back();
    CHECK(devices.in_use() == held);  // others may have work on it
    collectives.clear();
    CHECK(devices.in_use() == 0);
  }
}

TEST_CASE("what collectives gave a replica on a device is recorded, and replays; a NaN that they make is found") {
  const Devices devices;
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/replica.safetensors";
  auto where = on(DeviceKind::cuda, 4, 2);
  where.see.record = RecordOptions{2, {1, 3}, file};
  train(where);
  Deployment replaying;
  replaying.devices = {{DeviceKind::cuda, 0}};
  replaying.see.replay = file;
  const auto text = replicator::test::told(folder, [&] { train(replaying, 2); });
  CHECK_THAT(text, Catch::Contains("replay of replica 2, step 1: has the recorded bits: ") && Catch::Contains("step 2: has the recorded bits: "));

  auto looking = on(DeviceKind::cuda, 2, 2);
  looking.see.find_nan = true;
  Replicator repl{looking};
  auto step = repl.replicate([](const InputContext& ctx) { return data::from_generator([=] { return Array<float>{{1}, {ctx.replica() ? -3e38f : -2e38f}}; }); },
                             [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum, {.label = "x"}); });
  CHECK_THAT(error_of([&] { step.step(); }), Catch::Contains("all_reduce \"x\" at test_device_collectives.cpp:") && Catch::Contains("made the first infinity"));
}

}  // namespace test_device_collectives
