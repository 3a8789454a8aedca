// SPDX-License-Identifier: Apache-2.0
// Segments of a device's program that are captured once and replayed in every later step.
#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/collectives/run/run.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>
#include <replicator/runtime/execute.hpp>
#include <replicator/runtime/plan/planner.hpp>
#include <replicator/runtime/staged_collective.hpp>
#include <replicator/transport/in_process.hpp>

#include "deployments.hpp"
#include "pretend_device.hpp"

namespace test_capture {

using namespace replicator;
using namespace replicator::detail;
using test::on;
namespace pretend = replicator::test::pretend;

namespace {

using Devices = test::PretendGpus<>;

// What the devices were given since.
struct Given {
  int tasks = pretend::counts.given, captures = pretend::counts.captures, replays = pretend::counts.replays, abandoned = pretend::counts.abandoned;
  friend Given operator-(Given a, const Given& b) {
    a.tasks -= b.tasks, a.captures -= b.captures, a.replays -= b.replays, a.abandoned -= b.abandoned;
    return a;
  }
};

struct Outcome {
  std::string digest, explanation;
  std::vector<float> losses;
  Given last;  // in the last step
  Given all;
};

// Regression of a network with dropout by a learning rate that changes in every step, on elements that differ in every step. `look(x)`
// stands between two layers. Step `by_another` is made by another thread.
template <class Look>
Outcome train(const Deployment& where, int steps, Look look, int by_another = -1) {
  const Given before;
  Outcome outcome;
  Replicator repl{where};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([n = ctx.replica_batch(24), ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> x{{n, 4}}, y{{n, 1}};
      for (auto& value : x) value = 2 * random.uniform() - 1;
      for (std::int64_t i = 0; i < n; ++i) y[i] = x[4 * i] - x[4 * i + 3];
      return std::tuple{x, y};
    });
  };
  const auto step_fn = [&](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
    auto hidden = look(tanh(nn::linear(replica, x, "first", {.features = 8})));
    hidden = dropout(hidden, 0.25);
    auto loss = mean(map([](auto a, auto b) { return (a - b) * (a - b); }, nn::linear(replica, hidden, "second", {.features = 1}), y));
    nn::sgd({.learning_rate = [](Symbol step) { return 0.1 / (1 + step); }, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (int step = 0; step < steps; ++step) {
    const Given begun;
    const auto make_step = [&] {
      const auto [loss] = train.step();
      outcome.losses.push_back(mean(loss));
    };
    if (step == by_another) std::thread{make_step}.join();
    else make_step();
    outcome.last = Given{} - begun;
  }
  outcome.digest = repl.digest();
  outcome.explanation = train.explain();
  outcome.all = Given{} - before;
  return outcome;
}
Outcome train(const Deployment& where, int steps = 6) {
  return train(where, steps, [](auto x) { return x; });
}

}  // namespace

TEST_CASE("a replayed step has the bits of one that is not, with other inputs, another learning rate and other random numbers in each") {
  const Devices devices;
  const auto expected = train(on(DeviceKind::cpu, 4, 1));
  for (const int count : {1, 2, 3}) {
    auto where = on(DeviceKind::cuda, 4, count);
    const auto replayed = train(where);
    CHECK(replayed.losses == expected.losses);
    CHECK(replayed.digest == expected.digest);
    CHECK(replayed.all.captures >= count);
    CHECK(replayed.all.replays == 5 * replayed.last.replays);
    where.capture = false;
    const auto launched = train(where);
    CHECK(launched.digest == expected.digest);
    CHECK(launched.all.captures == 0);
    CHECK(launched.last.replays == 0);
    CHECK(replayed.last.tasks < launched.last.tasks / 4);
    CHECK_THAT(replayed.explanation, Catch::Contains(" instructions are captured, replayed as ") && !Catch::Contains("in their second run"));
    CHECK_THAT(launched.explanation, Catch::Contains("are captured in their second run, unless --no-capture, "));
  }
  CHECK(devices.in_use() == 0);
  const char* const flags[] = {"--no-capture"};
  CHECK_FALSE(Deployment::from(flags).capture);
}

TEST_CASE("what waits for the host is never captured, and sees the values of every step") {
  const Devices devices;
  const auto seen_on = [](const Deployment& where) {
    std::vector<std::string> lines;
    auto outcome = train(where, 5, [&](auto x) { return print(x, "hidden", {.sink = [&](const std::string& text) { lines.push_back(text); }}); });
    return std::pair{lines, outcome};
  };
  const auto [expected, cpu] = seen_on(on(DeviceKind::cpu, 2, 1));
  const auto [lines, outcome] = seen_on(on(DeviceKind::cuda, 2, 1));
  CHECK(lines == expected);
  CHECK(lines.size() == 10);
  CHECK(outcome.digest == cpu.digest);
  CHECK(outcome.all.abandoned == 0);
  CHECK(outcome.last.replays >= 2);
  CHECK_THAT(outcome.explanation, Catch::Contains("test_capture.cpp:") && Catch::Contains("is not captured: it looks at values on the host (2 times)"));
}

namespace {

// Waits for its queue, and did not say so.
class Careless final : public test::Wrapped {
 public:
  explicit Careless(std::unique_ptr<Executable> inner) : Wrapped{std::move(inner)} { reads_step = true; }
  void run(const Launch& launch) const override {
    inner().run(launch);
    pretend::synchronise(launch.stream);
  }
};
std::unique_ptr<Executable> make_careless(const KernelRequest& request) { return std::make_unique<Careless>(pretend::make(request)); }
constexpr Kernel careless{"careless", &make_careless};

}  // namespace

TEST_CASE("what cannot be captured is told, tried twice, and run as if nobody had tried") {
  const Devices devices;
  const auto with_argmax = [](auto x) { return x + 0.0f * sum(cast<float>(argmax(x, 1))); };
  const auto expected = train(on(DeviceKind::cpu, 2, 1), 5, with_argmax);
  register_kernel<ArgMax>(DeviceKind::cuda, KernelTier::library, &careless);
  const auto outcome = train(on(DeviceKind::cuda, 2, 1), 5, with_argmax);
  register_kernel<ArgMax>(DeviceKind::cuda, KernelTier::library, nullptr);
  CHECK(outcome.digest == expected.digest);
  CHECK(outcome.losses == expected.losses);
  CHECK((outcome.all.abandoned == 2 || outcome.all.abandoned == 4));  // one stretch or two
  CHECK_THAT(outcome.explanation, Catch::Contains(" could not be captured: a queue that captures was waited for"));
  CHECK(devices.in_use() == 0);
}

namespace {

// Makes itself a handle in every thread, which cannot be done while a queue captures, as of the libraries of GPUs.
class WithHandle final : public test::Wrapped {
 public:
  explicit WithHandle(std::unique_ptr<Executable> inner) : Wrapped{std::move(inner)} { reads_step = true; }
  void run(const Launch& launch) const override {
    thread_local bool made = false;
    if (!std::exchange(made, true)) pretend::synchronise(launch.stream);
    inner().run(launch);
  }
};
std::unique_ptr<Executable> make_with_handle(const KernelRequest& request) { return std::make_unique<WithHandle>(pretend::make(request)); }
constexpr Kernel with_handle{"with handle", &make_with_handle};

}  // namespace

TEST_CASE("a step that another thread makes is not captured there before it has run there, and is captured later") {
  const Devices devices;
  const auto with_argmax = [](auto x) { return x + 0.0f * sum(cast<float>(argmax(x, 1))); };
  const auto expected = train(on(DeviceKind::cpu, 2, 1), 6, with_argmax);
  register_kernel<ArgMax>(DeviceKind::cuda, KernelTier::library, &with_handle);
  const auto outcome = train(on(DeviceKind::cuda, 2, 1), 6, with_argmax, 1);
  register_kernel<ArgMax>(DeviceKind::cuda, KernelTier::library, nullptr);
  CHECK(outcome.digest == expected.digest);
  CHECK(outcome.losses == expected.losses);
  CHECK(outcome.all.abandoned == 0);
  CHECK(outcome.last.replays > 0);
}

TEST_CASE("while somebody looks at every instruction nothing is replayed; afterwards it is") {
  const Devices devices;
  auto where = on(DeviceKind::cuda, 2, 1);
  where.see.timing = true;
  where.see.trace_steps = {1, 4};
  CHECK(train(where, 4).all.replays == 0);
  CHECK(train(where, 6).last.replays > 0);
  where.see.find_nan = true;
  const auto looked = train(where, 6);
  CHECK(looked.all.replays == 0);
  CHECK(looked.digest == train(on(DeviceKind::cpu, 2, 1)).digest);
}

namespace {

std::vector<std::string> open_ranges, begun_ranges;  // of a tool that is attached while `listens`
bool listens = false;
constexpr ToolRanges tool{[] { return listens; },
                          [](const char* name) {
                            std::string whole = name;
                            if (!open_ranges.empty()) whole = open_ranges.back() + " > " + whole;
                            open_ranges.push_back(whole);
                            begun_ranges.push_back(whole);
                          },
                          []() noexcept { open_ranges.pop_back(); }};
bool begun(const std::string& begin, const std::string& middle) {
  return std::any_of(begun_ranges.begin(), begun_ranges.end(), [&](const auto& name) { return name.starts_with(begin) && name.find(middle) != name.npos; });
}

}  // namespace

TEST_CASE("an attached tool is told of steps, captured stretches and launches with their nodes, lines and replicas; otherwise nobody is") {
  const Devices devices;
  auto& slot = tool_ranges_slot[static_cast<std::size_t>(DeviceKind::cuda)];
  const auto* const before = slot.exchange(&tool);
  const auto shown = [](auto x) { return print(x, "hidden", {.sink = [](const std::string&) {}}); };
  train(on(DeviceKind::cuda, 2, 1), 4, shown);
  CHECK(begun_ranges.empty());
  listens = true;
  train(on(DeviceKind::cuda, 2, 1), 4, shown);
  slot.store(before);
  CHECK(open_ranges.empty());
  CHECK(begun("step 0 > matmul#", " at test_capture.cpp:"));
  CHECK(begun("step 0 > observe#", " (replica 1)"));
  CHECK(begun("step 3 > observe#", " at test_capture.cpp:"));
  CHECK(begun("step 3 > captured: ", " to "));
  CHECK_FALSE(begun("step 0 > captured: ", ""));
  CHECK_FALSE(begun("step 3 > matmul#", ""));
}

TEST_CASE("another seed is another capture") {
  const Devices devices;
  std::vector<Graph> graphs;
  auto& graph = graphs.emplace_back(0, 1);
  ReplicaContext replica{graph};
  auto w = replica.variable<float>("w", {8}, Initializer::zeros());
  w.assign(0.5f * w.read() + all_reduce(uniform<float>(graph, {8}), Reduction::mean));
  const auto resolution = resolve(graphs, {1 << 20, {}});
  const auto weights = [&](DeviceKind kind, const std::vector<std::uint64_t>& seeds) {
    VariableStore variables{1, 1, 1};
    for (const auto& variable : resolution.classes[0].graph.variables()) variables.declare(variable);
    ExecutableCache cache{1};
    const std::vector<LoweredGraph> lowered{lower(resolution.classes[0], kind, cache)};
    transport::InProcessGroup group{1};
    const auto communicator = collectives::make_communicator(transport::InProcess{group, 0}, {1, 1});
    std::optional<StagedCommunicator> on_device;
    if (kind == DeviceKind::cuda) on_device.emplace(*communicator, support_of(kind), 0);
    auto program = plan({.resolution = resolution,
                         .lowered = lowered,
                         .variables = variables,
                         .communicator = *communicator,
                         .device_communicator = on_device ? &*on_device : nullptr,
                         .kind = kind});
    const std::vector<AnyArray> none;
    for (std::uint64_t step = 0; step < seeds.size(); ++step) execute(program, {&none, 1}, {.seed = seeds[step], .step = step});
    const auto values = variables.value("w", 0).as<float>();
    return std::vector<float>{values.begin(), values.end()};
  };
  const std::vector<std::uint64_t> seeds{1, 1, 1, 7, 7, 1};
  const Given before;
  CHECK(weights(DeviceKind::cuda, seeds) == weights(DeviceKind::cpu, seeds));
  const Given given = Given{} - before;
  CHECK(given.replays > given.captures);
  CHECK(given.captures % 3 == 0);
  CHECK(given.captures > 0);
}

}  // namespace test_capture
