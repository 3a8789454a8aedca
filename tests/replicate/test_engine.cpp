// SPDX-License-Identifier: Apache-2.0
// Invalid deployments, and failing steps. This is also the only file of its program that compiles the engine and the
// kernels.
#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include <replicator/devices/device_support.hpp>
#include <replicator/replicator.hpp>

#include "deployments.hpp"

namespace test_engine {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;

namespace {

// The identity, which throws in step `step` on replica `replica`; -1: on any.
struct Fragile {
  static constexpr std::string_view name = "fragile";
  std::int64_t step = 0;
  std::int64_t replica = 0;

  template <class V>
  void describe(V& v) const {
    v("step", step);
    v("replica", replica);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
};

class FragileKernel final : public Executable {
 public:
  FragileKernel(const Fragile& op, std::size_t bytes) : op_{op}, bytes_{bytes} {
    input_layouts.resize(1);
    output_layouts.resize(1);
  }
  void run(const Launch& launch) const override {
    if (static_cast<std::int64_t>(launch.context.step) == op_.step && (op_.replica < 0 || launch.context.replica == op_.replica))
      throw std::runtime_error{"the kernel broke"};
    std::memcpy(launch.outputs[0], launch.inputs[0], bytes_);
  }

 private:
  Fragile op_;
  std::size_t bytes_;
};

const Kernel fragile_kernel{"fragile", [](const KernelRequest& request) -> std::unique_ptr<Executable> {
                              return std::make_unique<FragileKernel>(*request.operation.get<Fragile>(), request.outputs[0].bytes());
                            }};
const bool registered = register_kernel<Fragile>(DeviceKind::cpu, KernelTier::user, &fragile_kernel);

// An operation that nobody has a kernel for.
struct Unknown {
  static constexpr std::string_view name = "unknown";
  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
};

// Its only kernel declines whatever it is asked for.
struct Picky : Unknown {
  static constexpr std::string_view name = "picky";
};
constexpr Kernel declines{"declines", [](const KernelRequest&) -> std::unique_ptr<Executable> { return nullptr; }};
const bool picky_registered = register_kernel<Picky>(DeviceKind::cpu, KernelTier::user, &declines);

template <class Op>
Tensor<float> apply_op(Op op, Tensor<float> x, std::source_location where = std::source_location::current()) {
  return Tensor<float>{compute(x.graph(), op, {x}, where)};
}

const auto endless = [](const InputContext&) {
  return data::from_generator([](std::int64_t i) { return Array<float>{{}, {static_cast<float>(i)}}; });
};

}  // namespace

TEST_CASE("a deployment that no command line could ask for is refused") {
  auto where = on_devices(2, 2);
  where.threads_per_device = 0;
  CHECK(error_of([&] { Replicator{where}; }) == "--threads-per-device is \"0\": it must be a whole number, at least 1");
  where = on_devices(2, 2);
  where.devices[1] = where.devices[0];
  CHECK(error_of([&] { Replicator{where}; }) == "--devices names cpu:0 twice");
}

TEST_CASE("more devices than replicas are refused") {
  CHECK(error_of([] { Replicator{on_devices(2, 3)}; }) ==
        "asked for --replicas 2 on 3 devices of 1 process(es): every device needs at least one replica; raise --replicas or name fewer --devices");
}

TEST_CASE("devices of a kind that is not part of the program are refused") {
  auto deployment = on_devices(2, 1);
  deployment.devices = {{DeviceKind::cuda, 0}};
  CHECK_THAT(error_of([&] { Replicator{deployment}; }),
             Catch::StartsWith("the device cuda:0 was asked for, but this program was built without cuda"));
}

TEST_CASE("a program whose CPU kernels the linker has left out is told how to link") {
  auto& slot = device_support[static_cast<std::size_t>(DeviceKind::cpu)];
  const auto* kept = slot.exchange(nullptr);
  const auto told = error_of([] { Replicator{on_devices(1, 1)}; });
  slot.store(kept);
  CHECK(told ==
        "the device cpu:0 was asked for, but this program was built without cpu: include <replicator/replicator.hpp>; with replicator::compiled link its objects "
        "themselves, since an archive leaves out those that only register kernels");
}

TEST_CASE("an operation without a kernel is refused where it was used, with the header to include") {
  Replicator repl{on_devices(1, 1)};
  std::source_location where;
  const auto found = error_of([&] {
    repl.replicate(endless, [&](ReplicaContext&, Tensor<float> x) { return where = std::source_location::current(), apply_op(Unknown{}, x); });
  });
  CHECK(found == "unknown at " + Location{where}.text() +
                     " has no cpu kernel: include <replicator/cpu/kernels.hpp>, or register one for your operation");
}

TEST_CASE("an operation whose kernels decline its tensors is refused with their types") {
  Replicator repl{on_devices(1, 1)};
  std::source_location where;
  const auto found = error_of([&] {
    repl.replicate(endless, [&](ReplicaContext&, Tensor<float> x) { return where = std::source_location::current(), apply_op(Picky{}, x); });
  });
  CHECK(found == "picky at " + Location{where}.text() + ": no cpu kernel of this program takes float32[]: cast the tensors, or register a kernel that does");
}

TEST_CASE("a step that fails changes no variable, and afterwards there is one answer") {
  for (const int devices : {1, 2})  // every device, once another has failed
    for (const bool with_collective : {true, false}) {
      Replicator repl{on_devices(2, devices)};
      auto train = repl.replicate(endless, [with_collective](ReplicaContext& replica, Tensor<float> x) {
        auto w = replica.variable<float>("w", {}, Initializer::zeros()), v = replica.variable<float>("v", {}, Initializer::zeros());
        auto s = replica.variable<float>("s", {}, Initializer::zeros(), {VariableKind::replica_local});
        const auto next = w.read() + 1.0f;
        w.assign(next);
        s.assign(s.read() + 1.0f);
        v.assign(with_collective ? v.read() + all_reduce(x * 0.0f + 1.0f, Reduction::mean) : v.read() + 1.0f);
        return std::tuple{apply_op(Fragile{2, 1}, x), next};
      });
      train.step();
      train.step();
      const auto message = error_of([&] {
        try {
          train.step();
        } catch (const std::runtime_error& error) {
          throw Error{error.what()};
        }
      });
      CHECK_THAT(message, Catch::Contains("the kernel broke"));
      for (const char* name : {"w", "v", "s"})
        for (int copy = 0; copy < (*name == 's' ? 2 : 1); ++copy) CHECK(repl.value(name, copy).as<float>()[0] == 2);
      CHECK_THROWS_WITH(train.step(), Catch::Contains("the kernel broke"));
      CHECK_THROWS_WITH(repl.digest(), Catch::Contains("the kernel broke"));
    }
}

TEST_CASE("a kernel that throws on the way to an update alone leaves all variables as they were") {
  const bool refuses_an_index = GENERATE(true, false);
  for (const int devices : {1, 2}) {
    Replicator repl{on_devices(2, devices)};
    auto train = repl.replicate(endless, [&](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {}, Initializer::zeros());
      auto m = replica.variable<float>("m", {}, Initializer::zeros());
      auto rates = replica.variable<float>("rates", {2}, Initializer::ones());
      const auto next = m.read() + all_reduce(x * 0.0f + 1.0f, Reduction::mean);
      m.assign(next);
      const auto rate = refuses_an_index ? gather(rates.read(), replica.step()) : apply_op(Fragile{2, -1}, next * 0.0f + 1.0f);
      w.assign(w.read() + rate);
    });
    train.step(), train.step();
    CHECK_THROWS_WITH(train.step(), Catch::Contains(refuses_an_index ? "the index 2" : "the kernel broke"));
    for (const char* name : {"w", "m"})
      for (int copy = 0; copy < devices; ++copy) CHECK(repl.value(name, copy).as<float>()[0] == 2);
  }
}

TEST_CASE("whatever a device throws, the others are released and the user receives it") {
  for (const int culprit : {0, 1}) {
    Replicator repl{on_devices(2, 2)};
    auto train = repl.replicate(endless, [&](ReplicaContext& replica, Tensor<float> x) {
      if (replica.id() == culprit) x = host_callback(x, [](const Observation&) { throw 7; });
      return all_reduce(x, Reduction::sum);
    });
    CHECK_THROWS_AS(train.step(), int);
    CHECK_THROWS_AS(train.step(), int);
  }
}

TEST_CASE("a variable asked for with two shapes names both lines, within a step and between steps") {
  Replicator repl{on_devices(1, 1)};
  std::source_location first, second;
  const auto declare = [](ReplicaContext& replica, Shape shape, VariableKind kind, std::source_location& where) {
    where = std::source_location::current(), replica.variable<float>("w", shape, Initializer::zeros(), {kind});
  };
  const auto within = error_of([&] {
    repl.replicate(endless, [&](ReplicaContext& replica, Tensor<float>) {
      declare(replica, {2}, VariableKind::mirrored, first);
      declare(replica, {3}, VariableKind::mirrored, second);
    });
  });
  CHECK(within == "replica 0: the variable \"w\" was asked for as mirrored float32[3] at " + Location{second}.text() +
                      ", but it was declared as mirrored float32[2] at " + Location{first}.text() +
                      ": give the two different names or the same type");
  repl.replicate(endless, [&](ReplicaContext& replica, Tensor<float>) { declare(replica, {2}, VariableKind::mirrored, first); });
  const auto between = error_of([&] {
    repl.replicate(endless, [&](ReplicaContext& replica, Tensor<float>) { declare(replica, {2}, VariableKind::replica_local, second); });
  });
  CHECK(between == "the variable \"w\" was asked for as replica_local float32[2] at " + Location{second}.text() +
                       ", but it was declared as mirrored float32[2] at " + Location{first}.text() +
                       ": give the two different names or the same kind");
}

TEST_CASE("a forgotten all_reduce is refused by replicate") {
  Replicator repl{on_devices(2, 2)};
  std::source_location where;
  const auto found = error_of([&] {
    repl.replicate(endless, [&](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("fc.weight", {}, Initializer::zeros());
      where = std::source_location::current(), w.assign(w.read() - x);
    });
  });
  CHECK(found == "\"fc.weight\" is mirrored, but the value assigned at " + Location{where}.text() +
                     " differs between replicas: an all_reduce is missing, or make it replica_local");
}

}  // namespace test_engine
