// SPDX-License-Identifier: Apache-2.0
// --audit: every N-th step is computed twice, on different devices, and a device that computes or remembers wrongly is
// named before a variable changes.
#include <catch2/catch.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>

#include "../support/cases.hpp"
#include "../support/programs.hpp"
#include "deployments.hpp"
#include "flipped_bits.hpp"
#include "pretend_device.hpp"
#include "run_random.hpp"

namespace test_audit {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::error_of;
using replicator::test::flipped;

namespace {

// The identity. Its kernel on CPUs first calls `meanwhile` with the number of calls so far.
struct Carried {
  static constexpr std::string_view name = "carried";
  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext& at) const { return {at.upstream[0]}; }
};
std::function<void(int call, const StepContext& context, std::byte* output)> meanwhile;
std::atomic<int> calls{0};

class CarriedKernel final : public Executable {
 public:
  explicit CarriedKernel(std::size_t bytes) : bytes_{bytes} {
    input_layouts.resize(1);
    output_layouts.resize(1);
  }
  void run(const Launch& launch) const override {
    std::memcpy(launch.outputs[0], launch.inputs[0], bytes_);
    const int call = calls++;
    if (meanwhile) meanwhile(call, launch.context, launch.outputs[0]);
  }

 private:
  std::size_t bytes_;
};
const Kernel carried_kernel{"carried", [](const KernelRequest& request) -> std::unique_ptr<Executable> {
                              return std::make_unique<CarriedKernel>(request.outputs[0].bytes());
                            }};
const bool registered = register_kernel<Carried>(DeviceKind::cpu, KernelTier::reference, &carried_kernel);

template <class T>
Tensor<T> carried(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(x.graph(), Carried{}, {x}, where)};
}

Deployment audited(Deployment where, std::uint64_t every) {
  where.see.audit = every;
  return where;
}

auto rows(const InputContext& context) {
  return data::from_generator([replica = context.replica()](std::int64_t n) {
    Array<float> x{{3, 4}};
    for (int i = 0; i < 12; ++i) x[i] = static_cast<float>(replica + 1) * 0.1f + static_cast<float>(n % 7) * 0.01f + static_cast<float>(i);
    return x;
  });
}

// A small network with a variable of each kind, random numbers, and an optimizer.
template <class Between>
auto train_step(ReplicaContext& replica, Tensor<float> x, Between between) {
  auto own = replica.variable<float>("own", {}, Initializer::constant(0), {VariableKind::replica_local});
  const auto noise = uniform<float>(x.graph(), x.shape());
  const auto y = tanh(between(nn::linear(replica, x * 0.1f + noise * 0.01f, "layer", {.features = 5})));
  const auto error = nn::linear(replica, y, "last", {.features = 2}) - 1.0f;
  const auto loss = mean(error * error);
  nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
  own.assign(own.read() + loss);
  return loss;
}
auto on_gpus(ReplicaContext& replica, Tensor<float> x) {
  return train_step(replica, x, [](auto y) { return y; });
}
auto on_cpus(ReplicaContext& replica, Tensor<float> x) {
  return train_step(replica, x, [](auto y) { return carried(y); });
}

// All values of this process, to see that a step has changed none.
std::string all_values(const Replicator& repl, int devices, int replicas) {
  std::string text;
  for (const auto& name : repl.variables()) {
    const int copies = repl.declaration(name).kind == VariableKind::mirrored ? devices : replicas;
    for (int copy = 0; copy < copies; ++copy) {
      const auto bytes = repl.value(name, copy).bytes();
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return text;
}

void flip_bit(AnyArray& array, std::uint64_t bit) {
  bit %= array.size_bytes() * 8;
  array.data()[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
}

using Gpus = replicator::test::PretendGpus<>;
using Cpus = replicator::test::FlippingCpus<Map, Reduce, Matmul, Transpose, Random, LayoutCopy, Carried>;

}  // namespace

TEST_CASE("audited steps leave the bits as they are, and find nothing on sound devices") {
  const auto digest = [](Deployment where) {
    Replicator repl{std::move(where)};
    auto train = repl.replicate(rows, on_cpus);
    for (int i = 0; i < 7; ++i) train.step();
    return repl.digest();
  };
  const auto expected = digest(test::on_devices(6, 1));
  for (const std::uint64_t every : {1, 3})
    for (const int devices : {2, 3, 5}) CHECK(digest(audited(test::on_devices(6, devices), every)) == expected);
}

TEST_CASE("random programs on one or two devices for each replica keep their bits, and nothing is found") {
  CHECK(rc::check([] {
    const auto program = test::draw_program();
    auto where = test::on_devices(*rc::gen::inRange(3, 7), *rc::gen::element(2, 3));
    where.logical_devices = *rc::gen::inRange(1, 3);
    if (where.logical_devices == 2) where.devices = test::on_devices(1, 4).devices;
    const auto plain = test::run(program, where), twice = test::run(program, audited(where, 1));
    RC_ASSERT(twice.digest == plain.digest);
    RC_ASSERT(twice.outputs == plain.outputs);
  }));
}

TEST_CASE("a thousand audited steps in a row find nothing on sound devices") {
  Replicator repl{audited(test::on_devices(5, 3), 1)};
  auto train = repl.replicate(rows, on_cpus);
  const int steps = test::few_cases() ? 50 : 1000;
  for (int i = 0; i < steps; ++i) train.step();
  CHECK(train.steps_done() == static_cast<std::uint64_t>(steps));
}

namespace {

// Flips random bits of what random kernels write, one in each of so many audited steps. `learn`: in which step threads learn
// which device they are.
template <class Step, class Learn>
void flip_results(int flips, DeviceKind kind, Step step_fn, Learn learn) {
  constexpr int replicas = 5;
  std::mt19937_64 random{24};
  int named = 0, unchanged = 0;
  std::string missed;
  std::int64_t kernels[4][4] = {};  // of an audited step, by the number of devices and the device
  for (int i = 0; i < flips; ++i) {
    const int devices = i % 2 ? 3 : 2;
    flipped = {};
    Replicator repl{audited(test::on(kind, replicas, devices), 2)};
    auto train = repl.replicate(rows, step_fn);
    learn(replicas, devices, true);
    train.step();
    learn(replicas, devices, false);
    test::count_from_here();
    if (kernels[devices][0] == 0) {
      train.step();
      for (int device = 0; device < devices; ++device) REQUIRE((kernels[devices][device] = test::kernels_run[device]) > 20);
      train.step();
    }
    const auto before = all_values(repl, devices, replicas);
    const int device = static_cast<int>(random() % static_cast<std::uint64_t>(devices));
    test::count_from_here();
    flipped = {device, static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kernels[devices][device])), random()};
    const auto error = error_of([&] { train.step(); });
    REQUIRE(test::flips == 1);
    const auto name = DeviceName{kind, device}.text();
    const bool right = error.starts_with("step ") && error.find(", which was computed twice: ") != std::string::npos &&
                       error.find("Leave " + name + " out of --devices") != std::string::npos;
    named += right;
    unchanged += all_values(repl, devices, replicas) == before;
    if (!right && missed.empty()) missed = name + " of " + std::to_string(devices) + ", kernel " + std::to_string(flipped.kernel) + ": " + error;
  }
  INFO(missed);
  CHECK(named == flips);
  CHECK(unchanged == flips);
}

}  // namespace

TEST_CASE("any bit that a kernel of an audited step writes wrongly is found, its device is named, and no variable changes") {
  const Cpus cpus;
  flip_results(test::few_cases() ? 50 : 1000, DeviceKind::cpu, on_cpus, [](int replicas, int devices, bool now) {
    if (now) Cpus::learn(replicas, devices);
    else Cpus::learnt();
  });
}

TEST_CASE("the same is true of devices with their own memory") {
  const Gpus gpus;
  flip_results(test::few_cases() ? 6 : 40, DeviceKind::cuda, on_gpus, [](int, int, bool) {});
}

TEST_CASE("any bit that flips in a device's copy of a variable is found before the next audited step uses it") {
  const int flips = test::few_cases() ? 20 : 1000;
  std::mt19937_64 random{25};
  int named = 0;
  std::string missed;
  for (int i = 0; i < flips; ++i) {
    Replicator repl{audited(test::on_devices(3, 3), 2)};
    auto train = repl.replicate(rows, on_cpus);
    train.step();
    std::vector<std::string> mirrored;
    for (const auto& name : repl.variables())
      if (repl.declaration(name).kind == VariableKind::mirrored) mirrored.push_back(name);
    const auto& name = mirrored[random() % mirrored.size()];
    const int device = static_cast<int>(random() % 3);
    flip_bit(const_cast<AnyArray&>(repl.value(name, device)), random());
    const auto error = error_of([&] { train.step(); });
    const bool right = error.starts_with("before step 1 the mirrored variable \"" + name + "\" differs between devices: on cpu:" + std::to_string(device)) &&
                       error.ends_with("Most devices have other bits than cpu:" + std::to_string(device));
    named += right;
    if (!right && missed.empty()) missed = error;
  }
  INFO(missed);
  CHECK(named == flips);
}

TEST_CASE("a bit that flips in a variable's memory during an audited step is found, and its device is named") {
  // Replica r is on cpu:r. In the audited step its kernel runs twice: first on the next device.
  for (int call = 0; call < 6; ++call)
    for (const char* const name : {"layer/weight", "last/bias"})
      for (const int device : {0, 1, 2}) {
        Replicator repl{audited(test::on_devices(3, 3), 2)};
        auto train = repl.replicate(rows, on_cpus);
        train.step();
        const auto names = repl.variables();
        INFO(name);
        auto& copy = const_cast<AnyArray&>(repl.value(names[static_cast<std::size_t>(std::string{name} == "last/bias")], device));
        calls = 0;
        meanwhile = [&, call](int now, const StepContext&, std::byte*) {
          if (now == call) flip_bit(copy, 5);
        };
        const auto error = error_of([&] { train.step(); });
        meanwhile = nullptr;
        INFO(error);
        CHECK(error.find("is faulty, or a kernel of the program's own keeps something from call to call. No variable has changed. Leave cpu:" + std::to_string(device) + " out of --devices") != std::string::npos);
        CHECK(error.starts_with("step 1, which was computed twice: "));
      }
}

TEST_CASE("the error says step, node, line, replica and both devices, why one of them is faulty, and what to do") {
  Replicator repl{audited(test::on_devices(4, 2), 3)};
  auto train = repl.replicate(rows, on_cpus);
  train.step();
  train.step();
  calls = 0;
  std::atomic<bool> armed{true};
  // The second computation of replica 3 is done by cpu:0.
  meanwhile = [&](int, const StepContext& context, std::byte* output) {
    if (context.replica == 3 && context.repeated && armed.exchange(false)) output[2] ^= std::byte{4};
  };
  const auto error = error_of([&] { train.step(); });
  CHECK_THAT(error, Catch::StartsWith("step 2, which was computed twice: carried#") && Catch::Contains(" at test_audit.cpp:") &&
                        Catch::EndsWith(" of replica 3 has other bits on cpu:0 than on cpu:1, from the same inputs. Asked again, cpu:0 gave other bits than "
                                        "before, and the other the same, so the processor or the memory of cpu:0 is faulty, or a kernel of the program's own keeps something from call to call. No variable has changed. Leave cpu:0 "
                                        "out of --devices, and go on from a checkpoint"));
  CHECK(error_of([&] { train.step(); }) == error);  // there is no other answer from now on
  meanwhile = nullptr;
}

TEST_CASE("a device that always computes wrongly is named if there are three, and with its partner if there are two") {
  for (const int devices : {2, 3, 4})
    for (int faulty = 0; faulty < devices; ++faulty) {
      const Cpus cpus;
      Replicator repl{audited(test::on_devices(8, devices), 2)};
      auto train = repl.replicate(rows, on_cpus);
      Cpus::learn(8, devices);
      train.step();
      Cpus::learnt();
      test::count_from_here();
      flipped = {faulty, 0, 7, true};
      const auto error = error_of([&] { train.step(); });
      INFO(error);
      if (devices == 2) CHECK_THAT(error, Catch::Contains("Nobody can say which of the two is faulty") && Catch::Contains("cpu:0") && Catch::Contains("cpu:1"));
      else CHECK_THAT(error, Catch::Contains("Leave cpu:" + std::to_string(faulty) + " out of --devices"));
      flipped = {};
    }
}

TEST_CASE("an observer sees every value of an audited step once") {
  std::atomic<int> seen{0};
  Replicator repl{audited(test::on_devices(4, 2), 1)};
  auto train = repl.replicate(rows, [&](ReplicaContext&, Tensor<float> x) {
    x = host_callback(x, [&](const Observation&) { ++seen; });
    return all_reduce(mean(x), Reduction::mean);
  });
  for (int i = 0; i < 3; ++i) train.step();
  CHECK(seen == 12);
}

TEST_CASE("--audit is refused where there is nothing to compare with") {
  CHECK(error_of([] { Replicator repl{audited(test::on_devices(4, 1), 10)}; }) ==
        "--audit 10 computes steps again on other devices, but the job has only one, so there is none to compare it with: name at least 2 --devices, as "
        "cpu:0-1 does, or start more processes, or leave --audit out");
  auto spread = audited(test::on_devices(4, 2), 10);
  spread.logical_devices = 2;
  CHECK_THAT(error_of([&] { Replicator repl{spread}; }), Catch::Contains("the job has only one group of devices that share replicas") && Catch::Contains("at least 4 --devices"));
  auto fastest = audited(test::on_devices(4, 2), 10);
  fastest.kernel_choice.fastest = true;
  CHECK_THAT(error_of([&] { Replicator repl{fastest}; }), Catch::Contains("--fastest-kernels lets them differ from run to run"));
  CHECK_THAT(error_of([] { Replicator repl{audited(test::asynchronous(4, 2), 10)}; }), Catch::Contains("--regime async cannot be combined with --audit"));
  const auto parsed = [](const char* text) { return Deployment::from(std::vector<const char*>{"--audit", text}); };
  CHECK(parsed("100").see.audit == 100);
  CHECK(error_of([&] { parsed("0"); }) == "--audit is \"0\": it must be a whole number, at least 1");
}

}  // namespace test_audit
