// SPDX-License-Identifier: Apache-2.0
// Collectives of devices through host memory: their bits and their overlap. The host does not wait for the device, nor the
// device for the network.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <replicator/collectives/run/run.hpp>
#include <replicator/runtime/staged_collective.hpp>

#include "../collectives/ranks.hpp"
#include "../support/cases.hpp"
#include "../support/errors.hpp"
#include "pretend_device.hpp"
#include "received.hpp"

namespace test_staged_collectives {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::Asked;
using replicator::test::counts_to;
using replicator::test::error_of;
using replicator::test::MessagesOnly;
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

using Devices = replicator::test::PretendDevices<>;

// On devices that meet in the host's memory, in pieces of 256 bytes, of which a copy has at least two.
template <class T>
Received received_through_host(const std::vector<Asked>& all) {
  const auto& blocks = all[0].schedule.blocks;
  rt::InProcessGroup group{blocks.ranks()};
  std::vector<std::unique_ptr<cl::Communicator>> on_host(static_cast<std::size_t>(blocks.ranks()));
  std::vector<int> indices;
  for (int rank = 0; rank < blocks.ranks(); ++rank) indices.push_back(rank % pretend::devices);
  return received_on_devices(all, indices, group, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    on_host[r] = cl::make_communicator(T{group, rank}, blocks, 256);
    return std::make_unique<StagedCommunicator>(*on_host[r], support_of(DeviceKind::cuda), indices[r], 512);
  });
}

// What comes from a network that is told when. One block, of which each piece is `piece_bytes`.
class Network : public cl::Collective {
 public:
  Network(int pieces, std::size_t piece_bytes) : pieces_{pieces}, block_(static_cast<std::size_t>(pieces) * piece_bytes), memory_(2 * block_ + page) {}
  int inputs() const override { return 1; }
  // On pages of its own, because it is pinned.
  std::byte* input(int) override {
    void* begin = memory_.data();
    std::size_t room = memory_.size();
    return static_cast<std::byte*>(std::align(page, 2 * block_, begin, room));
  }
  std::byte* output() override { return input(0) + block_; }
  std::size_t bytes() const override { return 2 * block_; }
  void start() override { give(pieces_); }
  bool start_on(const cl::CallerBuffers&) override { return false; }
  int pieces() const override { return pieces_; }
  void give(int count) override { given = count; }
  int received() const override { return comes; }
  bool advance() override {
    if (comes == pieces_) std::copy_n(input(0), block_, output());
    return comes == pieces_;
  }
  void wait(rt::Clock::time_point) override { throw CommunicationError{"the network was waited for", 0}; }
  bool wait_until(rt::Clock::time_point time, const std::function<void()>& beside) override {
    while (!advance() && rt::Clock::now() < time) beside();
    return advance();
  }
  Missing missing() const override { return {1, 100}; }

  int given = 0;  // pieces
  int comes = 0;  // pieces that have been received

 private:
  static constexpr std::size_t page = 4096;

  int pieces_;
  std::size_t block_;
  std::vector<std::byte> memory_;
};

// The rank 0 of two, each with a replica, whose one collective is this.
class OneCollective final : public cl::Communicator {
 public:
  explicit OneCollective(std::unique_ptr<cl::Collective> collective) : collective_{std::move(collective)} {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  const cl::ReplicaBlocks& blocks() const override { return blocks_; }
  rt::Latency latency() const override { return rt::Latency::messages; }
  std::unique_ptr<cl::Collective> prepare(const cl::CollectiveSpec& spec, const cl::Schedule&) override {
    CHECK(spec.piecewise);
    return std::move(collective_);
  }
  void check() override {}

 private:
  cl::ReplicaBlocks blocks_{2, 2};
  std::unique_ptr<cl::Collective> collective_;
};

}  // namespace

TEST_CASE("collectives by way of the host's memory have the bits of those that begin there, piece by piece, over messages or loads") {
  const Devices devices;
  for (const int ranks : counts_to(5)) {
    const cl::ReplicaBlocks blocks{ranks % 2 ? 2 * ranks : ranks, ranks};
    for (const std::int64_t elements : {3, 2500}) {
      const auto all = of_all_kinds(blocks, elements);
      INFO(blocks.replicas() << " replicas on " << ranks << " devices, " << elements << " elements");
      const auto expected = received_on_host(all);
      CHECK(received_through_host<rt::InProcess>(all) == expected);
      CHECK(received_through_host<MessagesOnly>(all) == expected);
    }
  }
  CHECK(devices.in_use() == 0);
}

namespace {

constexpr std::size_t piece = 4096;  // bytes

// A collective of four pieces on device 0, each a copy of its own, which nobody hurries.
struct Staged {
  Staged() : communicator{on_host, support_of(DeviceKind::cuda), 0, piece} {
    auto spec = spec_of(cl::Kind::all_reduce, 4 * piece / 4, 0);
    spec.name = "all_reduce \"loss\"";
    collective = communicator.prepare(spec, cl::owner_computes({2, 2}));
    pretend::device(0).held = true;
  }
  ~Staged() {
    pretend::device(0).held = false;
    network->comes = 4;
  }
  // Pieces in the host's inputs that are written, and those of the device's output.
  int out() const { return copied(network->input(0)); }
  int home() const { return copied(collective->output()); }
  static int copied(const std::byte* to) {
    return static_cast<int>(std::count_if(pretend::copied.begin(), pretend::copied.end(), [&](const std::byte* at) { return at >= to && at < to + 4 * piece; }));
  }
  // One thing more is done by the device; false where it has nothing to do.
  static bool work() {
    const std::lock_guard lock{pretend::gate};
    return pretend::advance(pretend::device(0));
  }

  Network* network = new Network{4, piece};
  OneCollective on_host{std::unique_ptr<cl::Collective>{network}};
  StagedCommunicator communicator;
  std::unique_ptr<cl::Collective> collective;
};

}  // namespace

TEST_CASE("a piece is on the network while the next one is copied from the device, and the one before it to the device") {
  const Devices devices;
  pretend::copied.clear();
  Staged staged;
  staged.collective->start();
  for (int k = 1; k <= 4; ++k) {
    while (staged.out() < k) REQUIRE(Staged::work());
    while (staged.network->given < k) {
      CHECK_FALSE(staged.collective->advance());
      if (staged.network->given < k) REQUIRE(Staged::work());
    }
    CHECK(staged.out() == k);  // those behind it are not there yet
    CHECK(staged.home() <= k - 1);
    staged.network->comes = k - 1;
    CHECK_FALSE(staged.collective->advance());  // gives what has come to the queue
  }
  while (Staged::work()) {
  }
  CHECK(staged.home() == 3);  // while the last piece is on the network
  staged.network->comes = 4;
  CHECK(staged.collective->advance());
  while (Staged::work()) {
  }
  CHECK(staged.home() == 4);
}

TEST_CASE("the host does not wait for the device, nor the device for the network") {
  const Devices devices;
  {
    Staged staged;
    const auto& support = support_of(DeviceKind::cuda);
    const Queue queue{support, 0};
    int computed = 0;
    pretend::enqueue(queue.handle(), {[&] { ++computed; }});
    staged.collective->on_device()->start_behind(queue.handle());
    CHECK_FALSE(staged.collective->advance());
    CHECK(computed == 0);
    CHECK(staged.network->given == 0);

    pretend::enqueue(queue.handle(), {[&] { ++computed; }});
    pretend::settle();  // would throw where a queue waits for what nobody has queued
    CHECK(computed == 2);
    CHECK(staged.collective->on_device()->host_part().to_host == 4 * piece);
    CHECK(staged.out() == 4);
    CHECK_FALSE(staged.collective->advance());
    CHECK(staged.network->given == 4);

    staged.network->comes = 4;
    CHECK(staged.collective->advance());
    staged.collective->on_device()->precede(queue.handle());
    queue.synchronise();
    CHECK(staged.home() == 4);
  }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("a wait until the deadline names the device that has not computed, or the rank whose messages do not come") {
  const Devices devices;
  Staged staged;
  const auto wait = [&] { staged.collective->wait(rt::Clock::now() + std::chrono::milliseconds{5}); };
  staged.collective->start();
  CHECK(error_of(wait) ==
        "all_reduce \"loss\": rank 0 waited until the deadline for its own device 0, which computes what it contributes: it hangs or is "
        "slow; look there, or allow more time with --deadline");
  CHECK(staged.collective->missing().rank == 0);
  CHECK(error_of([&] { staged.collective->start(); }) == "all_reduce \"loss\" was started while its last step is under way: wait() for it first");
  pretend::settle();
  CHECK(error_of(wait) == "the network was waited for");
  CHECK(staged.collective->missing().rank == 1);
}

namespace {

// A kind of device with simulated time, which the test controls. A copy takes one unit of time for each piece; each
// queue is a bus.
namespace timed {

std::size_t now = 0;
struct Line {
  std::size_t free = 0;
};
struct Mark {
  std::size_t at = 0;
};
Line& line(void* queue) { return *static_cast<Line*>(queue); }
Mark& mark(void* event) { return *static_cast<Mark*>(event); }

constexpr StagingSupport staging{
    .allocate = [](std::size_t) -> std::byte* { return nullptr; },
    .release = [](std::byte*, std::size_t) noexcept {},
    .pin = [](std::byte*, std::size_t) { return true; },
    .unpin = [](std::byte*) noexcept {},
    .make_event = [](int) -> void* { return new Mark; },
    .destroy_event = [](int, void* event) noexcept { delete &mark(event); },
    .record = [](void* queue, void* event) { mark(event).at = std::max(line(queue).free, now); },
    .wait = [](void* queue, void* event) { line(queue).free = std::max(line(queue).free, mark(event).at); },
    .await = [](void*) {},
    .happened = [](void* event) { return mark(event).at <= now; }};
constexpr DeviceSupport support{
    .require = [](int) {},
    .allocate = [](int, std::size_t bytes) { return static_cast<std::byte*>(std::malloc(bytes)); },
    .release = [](int, std::byte* memory, std::size_t) noexcept { std::free(memory); },
    .make_queue = [](int) -> void* { return new Line; },
    .destroy_queue = [](int, void* queue) noexcept { delete &line(queue); },
    .enter = [](int) {},
    .copy = [](void* queue, std::byte*, const std::byte*, std::size_t bytes) { line(queue).free = std::max(line(queue).free, now) + bytes / piece; },
    .synchronise = [](void*) {},
    .staging = &staging};

// A piece takes so long.
class TimedNetwork final : public Network {
 public:
  TimedNetwork(int pieces, std::size_t piece_bytes, std::size_t takes) : Network{pieces, piece_bytes}, takes_{takes} {}
  void give(int count) override {
    for (; given < count; ++given) {
      free_ = std::max(free_, now) + takes_;
      ends_.push_back(free_);
    }
  }
  int received() const override {
    return static_cast<int>(std::count_if(ends_.begin(), ends_.end(), [](std::size_t end) { return end <= now; }));
  }
  bool advance() override { return received() == pieces(); }

 private:
  std::size_t takes_, free_ = 0;
  std::vector<std::size_t> ends_;
};

// Of a collective from start to end, begun behind work that takes `computes`.
std::size_t duration(int pieces, std::size_t piece_bytes, std::size_t network_takes, std::size_t computes) {
  now = 0;
  OneCollective on_host{std::make_unique<TimedNetwork>(pieces, piece_bytes, network_takes)};
  StagedCommunicator communicator{on_host, support, 0, piece_bytes};
  const auto elements = static_cast<std::int64_t>(static_cast<std::size_t>(pieces) * piece_bytes / 4);
  const auto collective = communicator.prepare(spec_of(cl::Kind::all_reduce, elements, 0), cl::owner_computes({2, 2}));
  const Queue queue{support, 0};
  line(queue.handle()).free = computes;
  collective->on_device()->start_behind(queue.handle());
  while (!collective->advance()) ++now;
  collective->on_device()->precede(queue.handle());
  return line(queue.handle()).free;
}

}  // namespace timed

}  // namespace

TEST_CASE("of n pieces copies and network take the time of n + 2, where one piece takes that of three times all") {
  CHECK(timed::duration(1, 8 * piece, 8, 0) == 24);
  CHECK(timed::duration(8, piece, 1, 0) == 10);
  CHECK(timed::duration(8, piece, 1, 5) == 15);  // behind what the device computes
  CHECK(timed::duration(8, piece, 3, 0) == 26);  // a slow network hides all copies but the first and the last
  CHECK(timed::duration(1, 8 * piece, 24, 0) == 40);
}

}  // namespace test_staged_collectives
