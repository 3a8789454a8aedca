// SPDX-License-Identifier: Apache-2.0
// Variables stay on a device with its own memory; the host's copy is updated on request.
#include <catch2/catch.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "checkpointed.hpp"
#include "deployments.hpp"
#include "pretend_device.hpp"
#include "recordings.hpp"

namespace test_resident_variables {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
namespace pretend = replicator::test::pretend;

namespace {

using Devices = test::PretendGpus<>;

Deployment on(DeviceKind kind, int replicas, int devices, int logical_devices = 1) {
  auto result = test::on(kind, replicas, devices, 5);
  result.logical_devices = logical_devices;
  return result;
}

// Bytes that were copied since.
struct Copied {
  std::int64_t from_host = pretend::counts.from_host, to_host = pretend::counts.to_host;
  friend Copied operator-(Copied a, const Copied& b) {
    a.from_host -= b.from_host, a.to_host -= b.to_host;
    return a;
  }
};
template <class F>
Copied copied_by(F f) {
  const Copied before;
  f();
  return Copied{} - before;
}

constexpr std::int64_t large = 1 << 14;  // elements
constexpr std::int64_t large_bytes = large * 4;
constexpr std::int64_t small = 512;  // bytes: what a step exchanges of one replica, and more

auto numbers(const InputContext& ctx) {
  return data::from_generator([replica = ctx.replica()](std::int64_t i) { return Array<float>{{}, {static_cast<float>(i + replica + 1)}}; });
}
// A large mirrored variable with a slot, a large one of each replica's own, and a collective of one number.
auto decay(ReplicaContext& replica, Tensor<float> x) {
  auto w = replica.variable<float>("w", {large}, Initializer::uniform(-1, 1));
  auto slot = replica.variable<float>("w/slot", {large}, Initializer::zeros(), {.trainable = false});
  auto own = replica.variable<float>("own", {large}, Initializer::zeros(), {VariableKind::replica_local});
  const auto mean_x = all_reduce(x, Reduction::mean);
  const auto next = 0.5f * slot.read() + w.read() * mean_x;
  slot.assign(next);
  w.assign(w.read() - 0.125f * next);
  own.assign(0.5f * own.read() + x);
  return sum(w.read());
}
auto double_w(ReplicaContext& replica, Tensor<float> x) {
  auto w = replica.variable<float>("w", {large}, Initializer::uniform(-1, 1));
  w.assign(2.0f * w.read() + all_reduce(x, Reduction::max));
  return mean(w.read());
}

std::vector<float> floats(const AnyArray& array) {
  const auto values = array.as<float>();
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("after the first step none copies a variable; digests and values copy them once after a step") {
  const Devices devices;
  for (const auto& [replicas, count] : std::vector<std::pair<int, int>>{{1, 1}, {3, 1}, {3, 2}}) {
    Replicator repl{on(DeviceKind::cuda, replicas, count)};
    auto train = repl.replicate(numbers, decay);
    const std::int64_t variables = large_bytes * (2 * count + replicas);
    const auto step = [&] { train.step(); };
    const auto first = copied_by(step);
    CHECK(first.from_host >= variables);
    CHECK(first.from_host < variables + small * replicas);
    CHECK(first.to_host < small * replicas);
    for (int i = 0; i < 4; ++i) {
      const auto later = copied_by(step);
      CHECK(later.from_host < small * replicas);
      CHECK(later.to_host < small * replicas);
    }
    const auto digest = [&] { (void)repl.digest(); };
    CHECK(copied_by(digest).to_host == large_bytes * (2 + replicas));  // of mirrored ones the first copy
    CHECK(copied_by(digest).to_host == 0);
    CHECK(copied_by([&] { (void)repl.value("w"); }).to_host == 0);
    CHECK(copied_by(step).from_host < small * replicas);
    CHECK(copied_by([&] { (void)repl.value("w"); }).to_host == large_bytes);
  }
  CHECK(devices.in_use() == 0);
}

TEST_CASE("explain() says what a step copies, no variable being among it, and what the host's memory holds for the device") {
  const Devices devices;
  Replicator repl{on(DeviceKind::cuda, 1, 1)};
  auto train = repl.replicate(numbers, decay);
  train.step();
  CHECK_THAT(train.explain(), Catch::Contains("each step copies ") && Catch::Contains(" B from the host's memory and ") &&
                                  Catch::Contains(" are for this device, pinned where that can be done: variables 192.0 KiB, input and results "));
  Replicator cpu{on(DeviceKind::cpu, 1, 1)};
  auto there = cpu.replicate(numbers, decay);
  there.step();
  CHECK_THAT(there.explain(), !Catch::Contains("each step copies"));
}

TEST_CASE("what the host sets between steps is what the next step reads, and what it asks for is what the last one left") {
  const Devices devices;
  const auto history = [](DeviceKind kind, int count) {
    std::vector<std::vector<float>> seen;
    Replicator repl{on(kind, 3, count)};
    auto train = repl.replicate(numbers, decay);
    for (int i = 0; i < 6; ++i) {
      train.step();
      if (i == 1) continue;
      auto w = repl.value("w");
      seen.push_back(floats(w));
      seen.push_back(floats(repl.value("own", 2)));
      if (i % 2) continue;
      for (auto& value : w.as<float>()) value = 0.25f * value + 1;
      repl.set("w", w);
      seen.push_back(floats(repl.value("w", count - 1)));
    }
    return std::pair{seen, repl.digest()};
  };
  const auto expected = history(DeviceKind::cpu, 1);
  for (const int count : {1, 2, 3}) CHECK(history(DeviceKind::cuda, count) == expected);
}

TEST_CASE("several replicated steps share the variables of a device, and copy none when they take turns") {
  const Devices devices;
  const auto turns = [](DeviceKind kind, int count) {
    Replicator repl{on(kind, 2, count)};
    auto train = repl.replicate(numbers, decay);
    auto twice = repl.replicate(numbers, double_w);
    for (int i = 0; i < 3; ++i) {
      train.step();
      const auto other = copied_by([&] { twice.step(), twice.step(); });
      if (i > 0) CHECK(other.from_host + other.to_host < 8 * small);
      const auto own = copied_by([&] { train.step(); });
      CHECK(own.from_host + own.to_host < 8 * small);
    }
    return repl.digest();
  };
  const auto expected = turns(DeviceKind::cpu, 1);
  for (const int count : {1, 2}) CHECK(turns(DeviceKind::cuda, count) == expected);
  CHECK(devices.in_use() == 0);
}

TEST_CASE("a device reads another one's variable as it is, also where two steps place it on different devices") {
  const Devices devices;
  const auto digest = [](const Deployment& where) {
    Replicator repl{where};
    const auto on_device = [](int place) {
      return [place](ReplicaContext& replica, Tensor<float> x) {
        const auto w = [&] {
          const auto here = replica.logical_device(place);
          return replica.variable<float>("w", {large}, Initializer::uniform(-1, 1));
        }();
        const auto there = replica.logical_device(1 - place);
        auto seen = replica.variable<float>("seen" + std::to_string(place), {large}, Initializer::zeros(), {VariableKind::replica_local});
        seen.assign(0.5f * seen.read() + w.read() * x);
        w.assign(0.75f * w.read() + all_reduce(x, Reduction::mean));
        return sum(w.read() * x);
      };
    };
    auto first = repl.replicate(numbers, on_device(0));
    auto second = repl.replicate(numbers, on_device(1));
    for (int i = 0; i < 4; ++i) {
      first.step(), first.step();
      second.step();
    }
    return repl.digest();
  };
  const auto expected = digest(on(DeviceKind::cpu, 2, 1, 2));
  for (const int count : {2, 4}) CHECK(digest(on(DeviceKind::cuda, 2, count, 2)) == expected);
  auto parts = on(DeviceKind::cuda, 2, 2, 2);
  parts.devices = {{DeviceKind::cuda, 3, 0}, {DeviceKind::cuda, 3, 1}};
  CHECK(digest(parts) == expected);
  CHECK(devices.in_use() == 0);
}

TEST_CASE("a step that fails before its updates leaves all variables on all devices as they were") {
  const Devices devices;
  const auto values_after = [](DeviceKind kind, int count, bool fails) {
    Replicator repl{on(kind, 2, count)};
    auto train = repl.replicate(numbers, [&](ReplicaContext& replica, Tensor<float> x) {
      return decay(replica, select(check(x < (fails ? 5.0f : 1e9f), "it is small"), x, 0.0f * x));
    });
    for (int i = 0; i < 3; ++i) train.step();
    if (fails) CHECK_THROWS_WITH(train.step(), Catch::Contains("replica 1, ") && Catch::Contains("it is small"));
    std::vector<std::vector<float>> values;
    for (int device = 0; device < count; ++device) values.push_back(floats(repl.value("w", device)));
    for (int replica = 0; replica < 2; ++replica) values.push_back(floats(repl.value("own", replica)));
    return values;
  };
  for (const int count : {1, 2}) CHECK(values_after(DeviceKind::cuda, count, true) == values_after(DeviceKind::cpu, count, false));
  CHECK(devices.in_use() == 0);
}

namespace {

// Fails in step 2.
class Failing final : public test::Wrapped {
 public:
  explicit Failing(std::unique_ptr<Executable> inner) : Wrapped{std::move(inner)} { reads_step = needs_host = true; }
  void run(const Launch& launch) const override {
    if (launch.context.step == 2) throw DeviceError{"the device has fallen off the bus"};
    inner().run(launch);
  }
};
std::unique_ptr<Executable> make_failing(const KernelRequest& request) { return std::make_unique<Failing>(pretend::make(request)); }
constexpr Kernel failing{"failing", &make_failing};

}  // namespace

TEST_CASE("a device that fails among the updates takes with it what the step assigns, and nothing else") {
  const Devices devices;
  register_kernel<ArgMax>(DeviceKind::cuda, KernelTier::library, &failing);
  {
    Replicator repl{on(DeviceKind::cuda, 1, 1)};
    auto train = repl.replicate(numbers, [](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {4}, Initializer::ones());
      auto still = replica.variable<float>("still", {4}, Initializer::constant(7));
      const auto next = w.read() * all_reduce(x, Reduction::mean) + still.read();
      w.assign(next + cast<float>(argmax(reshape(next, {1, 4}), 1)));
      return x;
    });
    train.step(), train.step();
    const auto before = floats(repl.value("w"));
    CHECK(before.size() == 4);
    CHECK_THROWS_WITH(train.step(), "the device has fallen off the bus");
    const std::string sentence = "the value of the variable \"w\" was asked for, but it is lost: a step failed on cuda:0 while it changed it";
    CHECK_THROWS_WITH(repl.value("w"), Catch::StartsWith(sentence));
    CHECK(floats(repl.value("still")) == std::vector<float>(4, 7));
    CHECK_THROWS_WITH(repl.digest(), "the device has fallen off the bus");
  }
  register_kernel<ArgMax>(DeviceKind::cuda, KernelTier::library, nullptr);
  CHECK(devices.in_use() == 0);
}

TEST_CASE("checkpoints are of the newest values, and a run that is resumed from one has the bits of the CPU's") {
  const Devices devices;
  const auto whole = test::run({}, on(DeviceKind::cpu, 4, 1), 6);
  for (const auto& [writer, reader] : std::vector<std::pair<int, int>>{{1, 2}, {3, 1}}) {
    const TemporaryFolder folder;
    const auto half = test::run({}, test::kept(on(DeviceKind::cuda, 4, writer), folder.path()), 3);
    CHECK(half == test::run({}, on(DeviceKind::cpu, 4, 1), 3));
    CHECK(test::run({}, test::kept(on(DeviceKind::cuda, 4, reader), folder.path(), true), 6) == whole);
  }
}

TEST_CASE("weights that are loaded are those of the next step, and those that are saved are those of the last one") {
  const Devices devices;
  const TemporaryFolder folder;
  const auto trained = [&](DeviceKind kind, const std::string& load, const std::string& save) {
    Replicator repl{on(kind, 2, kind == DeviceKind::cpu ? 1 : 2)};
    return test::with_input({}, [&](auto input_fn) {
      auto train = repl.replicate(input_fn, test::step_of({}));
      train.step();
      if (!load.empty()) load_weights(repl, folder.path() + "/" + load);
      train.step();
      save_weights(repl, folder.path() + "/" + save);
      return repl.digest();
    });
  };
  const auto first = trained(DeviceKind::cpu, "", "cpu"), second = trained(DeviceKind::cpu, "cpu", "again");
  CHECK(trained(DeviceKind::cuda, "", "cuda") == first);
  CHECK(trained(DeviceKind::cuda, "cuda", "again") == second);
}

TEST_CASE("a replica is recorded and replayed on devices with memory of their own, bit for bit") {
  const Devices devices;
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r.safetensors";
  const auto whole = test::run({}, test::recording(on(DeviceKind::cuda, 4, 2), 3, 1, 4, file), 5);
  CHECK(whole == test::run({}, on(DeviceKind::cpu, 4, 1), 5));
  auto where = on(DeviceKind::cuda, 1, 1);
  where.see.replay = file;
  const auto text = test::told(folder, [&] { (void)test::run({}, where, 3); });
  for (const std::string step : {"1", "2", "3"}) CHECK_THAT(text, Catch::Contains("step " + step + ": has the recorded bits"));
}

TEST_CASE("the check for drift looks at the devices' own values, in the steps that it is asked for") {
  const Devices devices;
  auto where = on(DeviceKind::cuda, 2, 2);
  where.see.check_drift = 3;
  Replicator repl{where};
  auto train = repl.replicate(numbers, decay);
  for (int i = 0; i < 6; ++i) CHECK((copied_by([&] { train.step(); }).to_host >= 4 * large_bytes) == (i % 3 == 2));
}

TEST_CASE("a job on such devices that loses a process goes on with the bits of the undisturbed run") {
  const Devices devices;
  auto where = on(DeviceKind::cuda, 5, 1);
  where.elastic = true;
  const auto results = test::run_as_job(3, [&](int rank) {
    Replicator repl{where};
    return test::with_input({}, [&](auto input_fn) {
      auto train = repl.replicate(input_fn, test::step_of({}));
      for (int step = 0; step < 5; ++step) {
        if (rank == 1 && step == 3) ::raise(SIGKILL);
        train.step();
      }
      return repl.digest();
    });
  });
  INFO(test::describe(results));
  const auto expected = test::run({}, on(DeviceKind::cpu, 5, 1), 5);
  for (const std::size_t survivor : {0, 2}) CHECK(results[survivor].text.ends_with(expected));
}

TEST_CASE("variables that the device has no room for are refused before it is asked for memory") {
  const Devices devices;
  auto where = on(DeviceKind::cuda, 1, 1);
  where.memory_limit = 2 * large_bytes;
  Replicator repl{where};
  const auto error = error_of([&] {
    auto train = repl.replicate(numbers, decay);
    train.step();
  });
  CHECK_THAT(error, Catch::StartsWith("the step needs 192.0 KiB of memory on cuda:0, but --memory-limit allows 128.0 KiB. It is for variables 192.0 KiB"));
  CHECK_THAT(error, Catch::Contains("w/slot declared at test_resident_variables.cpp:"));
  for (const auto& device : pretend::all()) CHECK(device.memory.empty());
}

}  // namespace test_resident_variables
