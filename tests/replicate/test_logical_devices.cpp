// SPDX-License-Identifier: Apache-2.0
// Model parallelism: a replica split over several devices has the bits of an unsplit one.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../support/cases.hpp"
#include "deployments.hpp"
#include "random_rows.hpp"
#include "run_random.hpp"

namespace test_logical_devices {

using namespace replicator;
using namespace replicator::detail;
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
const auto rows = test::random_rows({2, 4});

// The identity, that takes its time, notes who ran it, and may fail.
struct Watched {
  static constexpr std::string_view name = "watched";
  std::int64_t milliseconds = 0;
  std::int64_t failing_step = -1;
  std::int64_t slow_step = -1;  // -1: every one
  std::int64_t mark = 0;

  template <class V>
  void describe(V& v) const {
    v("milliseconds", milliseconds);
    v("failing_step", failing_step);
    v("slow_step", slow_step);
    v("mark", mark);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
};

struct Watch {
  std::mutex mutex;
  std::set<std::pair<std::int64_t, std::thread::id>> threads;  // who ran which mark
  int inside = 0, most = 0;
};
Watch watch;

class WatchedKernel final : public Executable {
 public:
  WatchedKernel(const Watched& op, std::size_t bytes) : op_{op}, bytes_{bytes} {
    input_layouts.resize(1);
    output_layouts.resize(1);
  }
  void run(const Launch& launch) const override {
    const auto step = static_cast<std::int64_t>(launch.context.step);
    {
      const std::lock_guard lock{watch.mutex};
      watch.threads.emplace(op_.mark, std::this_thread::get_id());
      watch.most = std::max(watch.most, ++watch.inside);
    }
    if (op_.slow_step < 0 || step == op_.slow_step) std::this_thread::sleep_for(std::chrono::milliseconds{op_.milliseconds});
    if (step == op_.failing_step) throw DeviceError{"the kernel broke"};
    std::memcpy(launch.outputs[0], launch.inputs[0], bytes_);
    const std::lock_guard lock{watch.mutex};
    --watch.inside;
  }

 private:
  Watched op_;
  std::size_t bytes_;
};
const Kernel watched_kernel{"watched", [](const KernelRequest& request) -> std::unique_ptr<Executable> {
                              return std::make_unique<WatchedKernel>(*request.operation.get<Watched>(),
                                                                     request.outputs[0].bytes());
                            }};
const bool registered = register_kernel<Watched>(DeviceKind::cpu, KernelTier::user, &watched_kernel);

Tensor<float> watched(Watched op, Tensor<float> x, std::source_location where = std::source_location::current()) {
  return Tensor<float>{compute(x.graph(), op, {x}, where)};
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

TEST_CASE("a model of two halves trains like one") {
  const auto train = [](const Deployment& where) {
    Replicator repl{where};
    auto step = repl.replicate(rows, two_layers);
    for (const auto& result : step.steps(5)) (void)result;
    return repl.digest();
  };
  const auto alone = train(spread(4, 1, 1));
  for (const int devices : {1, 2, 4, 8}) CHECK(train(spread(4, devices, 2)) == alone);
}

TEST_CASE("each half has a thread of its own, and the two work at the same time on different replicas") {
  watch.threads.clear();
  watch.most = 0;
  Replicator repl{spread(4, 2, 2)};
  auto step = repl.replicate(rows, [](ReplicaContext& replica, Tensor<float> x) {
    for (int device = 0; device < 2; ++device) {
      const auto here = replica.logical_device(device);
      x = watched({.milliseconds = 20, .mark = device}, x);
    }
    return mean(x);
  });
  step.step();
  REQUIRE(watch.threads.size() == 2);
  CHECK(watch.threads.begin()->second != std::next(watch.threads.begin())->second);
  CHECK(watch.most == 2);
}

TEST_CASE("only what crosses is handed over, written by the kernel that makes it; updates stay with their variables") {
  Replicator repl{spread(1, 2, 2)};
  auto step = repl.replicate(rows, two_layers);
  const auto plan = step.plan_json();
  const auto count = [&](const std::string& what) {
    int n = 0;
    for (auto at = plan.find(what); at != std::string::npos; at = plan.find(what, at + 1)) ++n;
    return n;
  };
  // The hidden values, their gradient and the loss; and each device's word that it has done its work.
  CHECK(count("\"do\":\"give\"") == 3 + 2);
  CHECK(count("\"do\":\"take\"") == 3 + 2);
  CHECK(count("\"memory\":\"other\"") == 0);
  CHECK(count("\"memory\":\"handoff\"") >= 2 * 3);
  CHECK_THAT(step.explain(), Contains("first/gradient") && Contains("second/gradient") && Contains("device 1 runs"));
}

TEST_CASE("a step that fails on one device changes no variable on any") {
  for (const int devices : {2, 4}) {
    Replicator repl{spread(2, devices, 2)};
    auto step = repl.replicate(rows, [](ReplicaContext& replica, Tensor<float> x) {
      for (int device = 0; device < 2; ++device) {
        const auto here = replica.logical_device(device);
        auto w = replica.variable<float>("w" + std::to_string(device), {}, Initializer::zeros());
        w.assign(w.read() + 1.0f);
      }
      // Nobody waits for this but the end of the step.
      const auto here = replica.logical_device(1);
      auto s = replica.variable<float>("s", x.shape(), Initializer::zeros(), {VariableKind::replica_local});
      s.assign(watched({.milliseconds = 20, .failing_step = 2, .slow_step = 2}, x));
    });
    step.step(), step.step();
    CHECK_THAT(error_of([&] { step.step(); }), Contains("the kernel broke"));
    for (const char* name : {"w0", "w1"})
      for (int copy = 0; copy < devices / 2; ++copy) CHECK(repl.value(name, copy).as<float>()[0] == 2);
    CHECK_THAT(error_of([&] { step.step(); }), Contains("the kernel broke"));
  }
}

TEST_CASE("a device that keeps another of its replica waiting beyond the deadline is named") {
  auto where = spread(1, 2, 2);
  where.deadline = std::chrono::seconds{1};
  Replicator repl{where};
  auto step = repl.replicate(rows, [](ReplicaContext& replica, Tensor<float> x) {
    const auto here = replica.logical_device(1);
    const auto slow = watched({.milliseconds = 1500, .slow_step = 1}, x);
    const auto there = replica.logical_device(0);
    return mean(slow);
  });
  step.step();
  const auto error = error_of([&] { step.step(); });
  CHECK_THAT(error, Contains("a device of replica 0 waited until the deadline for watched#"));
  CHECK_THAT(
      error,
      Contains(" at test_logical_devices.cpp:") &&
          Contains(
              ", which its device 1 gives. It is stopped or slow: look there, or allow more time with --deadline"));
}

TEST_CASE("what is built outside of any scope is where its first input is, a gradient where its node is, a variable stays where it was declared") {
  Graph graph{0, 1, 3};
  ReplicaContext replica{graph};
  const Tensor<float> x{graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{4}}}, {}, {}}))};
  const auto place = [&](Tensor<float> value) { return graph.node(value.any().value()).device; };
  const auto make = [&] {
    const auto here = replica.logical_device(2);
    return replica.variable<float>("w", {4}, Initializer::ones());
  };
  const auto w = make();
  CHECK(place(x * 2.0f) == 0);
  CHECK(place(w.read()) == 2);
  CHECK(place(x * w.read()) == 2);
  const auto inner = [&] {
    const auto here = replica.logical_device(1);
    return w.read() * x;
  }();
  CHECK(place(inner) == 1);
  const auto loss = sum(inner * inner);
  CHECK(place(loss) == 1);
  const auto g = gradient(loss, w.read());
  CHECK(place(g) == 1);
  w.assign(w.read() - g);
  CHECK(graph.nodes().back().device == 2);

  graph.results().push_back(loss.any().value());
  auto optimised = optimise(graph);
  for (const auto& node : optimised.nodes()) {
    if (operation_of<Reduce>(node)) CHECK(node.device == 1);
    if (node.get<Assign>()) CHECK(node.device == 2);
    if (node.get<Assign>()) CHECK(optimised.node(node.inputs[0]).device == 2);
  }
  optimised.share_devices(2);
  for (const auto& node : optimised.nodes())
    if (node.get<Assign>()) CHECK(node.device == 1);
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
  for (const int devices : test::cases({2, 4}, {4})) CHECK(train(spread(2, devices, 2)) == alone);
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
             Contains("asked for --replicas 1 on 4 devices of 1 process(es)") && Contains("2 devices share theirs"));
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

}  // namespace test_logical_devices
