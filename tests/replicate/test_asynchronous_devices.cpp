// SPDX-License-Identifier: Apache-2.0
// Devices with queues that are threads: programs have the CPU's bits, and every missing wait is found.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <replicator/collectives/run/run.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>
#include <replicator/runtime/arena.hpp>
#include <replicator/runtime/host_memory.hpp>
#include <replicator/runtime/queue.hpp>
#include <replicator/runtime/staged_collective.hpp>
#include <replicator/transport/in_process_devices.hpp>

#include "../collectives/ranks.hpp"
#include "../support/errors.hpp"
#include "deployments.hpp"
#include "pretend_device.hpp"
#include "random_rows.hpp"
#include "received.hpp"

namespace test_asynchronous_devices {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::error_of;
using replicator::test::of_all_kinds;
using replicator::test::Received;
using replicator::test::received_on_devices;
using replicator::test::received_on_host;
namespace pretend = replicator::test::pretend;
namespace cl = replicator::detail::collectives;
namespace rt = replicator::detail::transport;

namespace {

using Devices = test::PretendGpus<>;

constexpr int replicas = 4;

// Regression of a network with a batch norm and dropout, on elements that differ in every step. Step `by_another` is made by another thread.
std::string trained(const Deployment& where, int steps = 4, int by_another = -1) {
  Replicator repl{where};
  auto train = repl.replicate(test::random_rows({3, 4}), [&](ReplicaContext& replica, Tensor<float> x) {
    auto y = tanh(nn::batch_norm(replica, nn::linear(replica, x, "first", {.features = 5}), "norm"));
    if (where.logical_devices > 1) {
      const auto there = replica.logical_device(1);
      y = nn::linear(replica, y, "there", {.features = 3});
    }
    y = nn::linear(replica, dropout(y, 0.25), "last", {.features = 1});
    const auto loss = mean(y * y);
    nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  });
  for (int step = 0; step < steps; ++step) {
    if (step == by_another) std::thread{[&] { train.step(); }}.join();
    else train.step();
  }
  return repl.digest();
}
Deployment on_gpus(int devices, int logical_devices = 1) {
  auto result = test::on(DeviceKind::cuda, replicas, devices);
  result.logical_devices = logical_devices;
  result.deadline = std::chrono::seconds{60};
  return result;
}

}  // namespace

TEST_CASE("a step on several devices has the CPU's bits whenever their queues get to their work") {
  const Devices devices;
  const auto expected = trained(test::on(DeviceKind::cpu, replicas, 1));
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const pretend::ByThreads threads{seed};
    pretend::pinned.all = seed % 2;
    pretend::apart = seed % 3 ? "" : "they are apart";
    for (const int count : {1, 2, 3}) CHECK(trained(on_gpus(count)) == expected);
  }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("logical devices hand values to each other with the CPU's bits, whenever their queues get to their work") {
  const Devices devices;
  auto on_cpu = test::on(DeviceKind::cpu, replicas, 2);
  on_cpu.logical_devices = 2;
  const auto expected = trained(on_cpu);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const pretend::ByThreads threads{seed};
    pretend::pinned.all = seed % 2;
    pretend::apart = seed % 3 ? "" : "they are apart";
    for (const int count : {2, 4}) CHECK(trained(on_gpus(count, 2)) == expected);
  }
}

TEST_CASE("steps are captured and replayed with the same bits, also when another thread makes one") {
  const Devices devices;
  const int before = pretend::counts.replays;
  const auto expected = trained(test::on(DeviceKind::cpu, replicas, 1), 6);
  const pretend::ByThreads threads{1};
  CHECK(trained(on_gpus(2), 6, 2) == expected);
  CHECK(pretend::counts.replays > before);
}

namespace {

// All kinds of collectives between so many ranks, in the devices' memory or by way of the host's.
Received received(const std::vector<test::Asked>& all, int ranks, bool in_their_memory) {
  const auto& support = support_of(DeviceKind::cuda);
  std::vector<int> indices;
  for (int rank = 0; rank < ranks; ++rank) indices.push_back(rank);
  if (in_their_memory) {
    CHECK(rt::why_apart(support, "cuda", indices).empty());
    rt::InProcessDeviceGroup group{support, indices};
    return received_on_devices(all, indices, group, [&](int rank) { return cl::make_communicator(rt::InProcessDevices{group, rank}, all[0].schedule.blocks); });
  }
  rt::InProcessGroup group{ranks};
  std::vector<std::unique_ptr<cl::Communicator>> on_host(static_cast<std::size_t>(ranks));
  return received_on_devices(all, indices, group, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    on_host[r] = cl::make_communicator(rt::InProcess{group, rank}, all[0].schedule.blocks, 256);
    return std::make_unique<StagedCommunicator>(*on_host[r], support, rank, 512);
  });
}

}  // namespace

TEST_CASE("collectives have the host's bits in the devices' memory and by way of the host's, whenever their queues get to their work") {
  const Devices devices;
  for (const int ranks : {2, 3}) {
    const auto all = of_all_kinds({2 * ranks, ranks}, 300);
    const auto expected = received_on_host(all);
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      const pretend::ByThreads threads{seed};
      CHECK(received(all, ranks, true) == expected);
      CHECK(received(all, ranks, false) == expected);
    }
  }
  CHECK(devices.in_use() == 0);
}

#if !defined(__SANITIZE_THREAD__)  // it finds a race at the first wait that is left out, and ends the program
namespace {

// Leaves out a wait of work(), which returns what it computes: one after the other, `stride` apart. Each is found, or was not needed: other
// waits order the same. Goes on with the waits between them until `enough` were found, and returns how many were.
template <class Work>
int found_of(int stride, int enough, Work work) {
  pretend::planted = {};
  const auto expected = work();
  const int waits = pretend::planted.waits;
  int found = 0;
  for (int first = 0; first < stride && found < enough; ++first) {
    for (int left_out = first; left_out < waits; left_out += stride) {
      pretend::planted = {.left_out = left_out};
      const bool same = work() == expected;
      INFO("wait " << left_out << " of " << waits);
      CHECK((same || !pretend::planted.found.empty()));
      found += !pretend::planted.found.empty();
      pretend::planted = {};
    }
  }
  return found;
}

}  // namespace

TEST_CASE("a queue that does not wait for another one is found in steps, by what conflicts") {
  const Devices devices;
  const pretend::ByThreads threads{2};
  CHECK(found_of(3, 3, [] { return trained(on_gpus(2), 2); }) >= 3);
  pretend::apart = "they are apart";
  CHECK(found_of(3, 3, [] { return trained(on_gpus(2), 2); }) >= 3);
}

TEST_CASE("a queue that does not wait for another one is found in collectives, by what conflicts") {
  const Devices devices;
  const pretend::ByThreads threads{3};
  const auto all = of_all_kinds({2, 2}, 300);
  for (const bool in_their_memory : {true, false}) CHECK(found_of(17, 5, [&] { return received(all, 2, in_their_memory); }) >= 5);
}

// A queue that nobody waits for, because another device hangs, may still use the host's executables. On a GPU it would not.
TEST_CASE("a device that hangs is named at the deadline, while other queues go on") {
  for (const char* const apart : {"", "they are apart"}) {
    const Devices devices;
    const pretend::ByThreads threads{4};
    pretend::pinned.all = true;
    pretend::apart = apart;
    auto where = on_gpus(2);
    where.deadline = std::chrono::seconds{3};
    Replicator repl{where};
    auto train = repl.replicate(test::random_rows({3, 4}), [](ReplicaContext& replica, Tensor<float> x) {
      const auto loss = mean(tanh(nn::linear(replica, x, "layer", {.features = 5})));
      nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
      return loss;
    });
    for (int step = 0; step < 3; ++step) train.step();
    pretend::device(1).stuck = true;
    CHECK_THAT(error_of([&] { train.step(); }), Catch::Contains("rank 1 waited until the deadline for its own device 1, which computes") ||
                                                    Catch::StartsWith("step 3: cuda:1, of the replicas 2 to 3, had not done "));
  }
}

#endif

TEST_CASE("an event happens after the work before it, not at once, and what waits for it comes later") {
  const Devices devices;
  const pretend::ByThreads threads{0};
  const auto& support = support_of(DeviceKind::cuda);
  const Queue first{support, 0}, second{support, 1};
  const Event event{support, 0};
  CHECK(event.happened());
  std::atomic<bool> may{false};
  int value = 0;
  pretend::enqueue(first.handle(), {[&] {
                     while (!may) std::this_thread::yield();
                     value = 1;
                   }});
  event.record(first);
  event.precede(second);
  pretend::enqueue(second.handle(), {[&] { value *= 5; }});
  CHECK_FALSE(event.happened());
  may = true;
  second.synchronise();
  CHECK(value == 5);
  CHECK(event.happened());
}

TEST_CASE("while a thread captures its calls fail that wait, ask, allocate or make something, and the capture is lost") {
  const Devices devices;
  const pretend::ByThreads threads{0};
  const auto& support = support_of(DeviceKind::cuda);
  const Queue queue{support, 0}, other{support, 0};
  const Event event{support, 0};
  event.record(other);
  const std::vector<std::function<void()>> calls{[&] { queue.synchronise(); }, [&] { other.synchronise(); }, [&] { event.await(); },
                                                 [&] { (void)event.happened(); }, [&] { event.record(queue); }, [&] { event.precede(queue); },
                                                 [&] { Arena(support, 0, 8); }, [&] { HostMemory(*support.staging, 8); }, [&] { Queue(support, 1); }, [&] { Event(support, 1); }};
  int computed = 0, refused = 0;
  for (const auto& call : calls) {
    const auto work = [&] {
      pretend::enqueue(queue.handle(), {[&] { computed = -1; }});
      try {
        call();
      } catch (const DeviceError&) {
        ++refused;
      }
    };
    CHECK_THROWS_WITH(queue.capture(work), "what was captured was spoiled");
  }
  CHECK(refused == static_cast<int>(calls.size()));
  const auto captured = queue.capture([&] { pretend::enqueue(queue.handle(), {[&] { ++computed; }}); });
  for (int i = 0; i < 3; ++i) queue.replay(captured);
  queue.synchronise();
  CHECK(computed == 3);
}

}  // namespace test_asynchronous_devices
