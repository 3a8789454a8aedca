// SPDX-License-Identifier: Apache-2.0
// Updates of variables by the same expression are one launch, on devices that can merge kernels.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>
#include <replicator/runtime/plan/update_launches.hpp>

#include "deployments.hpp"
#include "pretend_device.hpp"

namespace test_merged_updates {

using namespace replicator;
using namespace replicator::detail;
using nlohmann::json;
using test::on;
namespace pretend = replicator::test::pretend;

namespace {

using Devices = test::PretendGpus<>;

auto elements(std::int64_t batch) {
  return [batch](const InputContext& ctx) {
    return data::from_generator([n = ctx.replica_batch(batch), ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> x{{n, 4}};
      for (auto& value : x) value = 2 * random.uniform() - 1;
      return x;
    });
  };
}

// Three layers and two normalisations: 10 variables of different sizes, two of them with a single element.
template <class Optimizer>
auto step_of(const Optimizer& optimizer) {
  return [&optimizer](ReplicaContext& replica, Tensor<float> x) {
    const auto layer = [&](Tensor<float> in, const char* name, std::int64_t features) {
      return nn::linear(replica, in, name, {.features = features});
    };
    auto hidden = nn::layer_norm(replica, tanh(layer(x, "first", 24)), "norm1");
    hidden = nn::layer_norm(replica, tanh(layer(hidden, "second", 7)), "norm2");
    const auto loss = mean(map([](auto a) { return (a - 1) * (a - 1); }, layer(hidden, "third", 1)));
    optimizer.minimize(replica, loss);
    return loss;
  };
}

// How many launches do the nodes of a device's program, and how many nodes these are.
struct Launches {
  int runs = 0, nodes = 0, merged = 0;
};
Launches launches_of(const json& plan) {
  Launches result;
  for (const auto& instruction : plan["processes"][0]["devices"][0]["instructions"]) {
    if (instruction["do"] != "run") continue;
    ++result.runs;
    result.merged += instruction.contains("parts");
    result.nodes += instruction.contains("parts") ? static_cast<int>(instruction["parts"].size()) : 1;
  }
  return result;
}

struct Outcome {
  std::string digest;
  Launches launches;
};
template <class Optimizer>
Outcome train(const Optimizer& optimizer, const Deployment& where) {
  Replicator repl{where};
  auto step = repl.replicate(elements(12), step_of(optimizer));
  for (int i = 0; i < 4; ++i) step.step();
  return {repl.digest(), launches_of(json::parse(step.plan_json()))};
}

// Merged or not, captured or not, on one device or two: the CPU's bits. At most `most` launches are left of the updates of 10 variables.
template <class Optimizer>
void check_merged(const char* name, const Optimizer& optimizer, int most) {
  INFO(name);
  const auto cpu = train(optimizer, on(DeviceKind::cpu, 2, 1));
  CHECK(cpu.launches.merged == 0);
  for (const int devices : {1, 2}) {
    auto where = on(DeviceKind::cuda, 2, devices);
    const auto merged = train(optimizer, where);
    CHECK(merged.digest == cpu.digest);
    CHECK(merged.launches.merged > 0);
    CHECK(merged.launches.nodes - merged.launches.runs >= 10 - most);
    where.capture = false;
    CHECK(train(optimizer, where).digest == cpu.digest);
  }
}

// Kernels of which nothing but the family matters.
struct Idle final : Executable {
  explicit Idle(std::optional<Digest> own = {}) { family = own; }
  void run(const Launch&) const override {}
};
const Idle none, red{Digest{1, 1}}, blue{Digest{2, 2}};

LoweredNode node(const Executable& kernel, std::vector<std::uint32_t> inputs, std::vector<std::uint32_t> outputs) {
  LoweredNode result;
  result.executable = {std::shared_ptr<void>{}, &kernel};  // owned by nobody
  result.inputs = std::move(inputs);
  result.outputs = std::move(outputs);
  return result;
}
// Numbers of the nodes, a row for each launch.
std::vector<std::vector<int>> grouped(const std::vector<LoweredNode>& nodes) {
  std::vector<detail::Update> updates;
  for (const auto& each : nodes) updates.push_back({0, &each});
  std::vector<std::vector<int>> result;
  for (const auto& launch : detail::launches_of(updates)) {
    auto& row = result.emplace_back();
    for (const auto& update : launch) row.push_back(static_cast<int>(update.node - nodes.data()));
  }
  return result;
}
using Rows = std::vector<std::vector<int>>;

}  // namespace

TEST_CASE("updates of one family are one launch; those of another family, and of none, are not in it") {
  CHECK(grouped({node(red, {0}, {10}), node(blue, {1}, {11}), node(red, {2}, {12}), node(none, {3}, {13}), node(none, {4}, {14}), node(blue, {5}, {15})}) ==
        Rows{{0, 2}, {1, 5}, {3}, {4}});
}

TEST_CASE("who needs what another update makes is in a later launch, and what comes before an update does not keep it from the others") {
  CHECK(grouped({node(red, {0}, {10}), node(red, {10}, {11})}) == Rows{{0}, {1}});
  // 0 is copied to another layout first, 2 needs two updates before it.
  CHECK(grouped({node(none, {0}, {10}), node(red, {10}, {11}), node(red, {1}, {12}), node(blue, {2}, {20}), node(blue, {20}, {21}), node(red, {21}, {22})}) ==
        Rows{{3}, {0}, {4}, {1, 2, 5}});
}

TEST_CASE("where nothing can be merged the updates stay in their order") {
  CHECK(grouped({node(none, {0}, {10}), node(none, {10}, {11}), node(none, {1}, {12}), node(none, {12}, {13})}) == Rows{{0}, {1}, {2}, {3}});
  LoweredNode copy = node(red, {0}, {10}), other = node(red, {1}, {11});
  copy.relayout = other.relayout = true;  // a copy between layouts is told as one
  CHECK(grouped({copy, other}) == Rows{{0}, {1}});
  CHECK(grouped({}).empty());
}

TEST_CASE("merged updates of every optimizer have the bits of those that are not") {
  const Devices devices;
  check_merged("sgd", nn::sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-3}), 1);
  check_merged("sgd, vectors undecayed", nn::sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-3, .decay_vectors = false}), 2);
  check_merged("adam", nn::adam({.learning_rate = 0.01}), 1);
  check_merged("adamw", nn::adamw({.learning_rate = nn::warmup_cosine(0.01, 2, 10), .weight_decay = 0.1, .decay_vectors = false}), 2);
  check_merged("rmsprop", nn::rmsprop({.learning_rate = 0.01}), 1);
  check_merged("lars", nn::lars({.learning_rate = 0.1, .weight_decay = 1e-3}), 2);
  check_merged("lamb", nn::lamb({.learning_rate = 0.01}), 2);
  check_merged("averaged", nn::averaged(nn::sgd({.learning_rate = 0.1, .momentum = 0.9}), 0.9), 1);
  CHECK(devices.in_use() == 0);
}

TEST_CASE("what reads a variable and what writes it may be one launch: the old value is read") {
  const Devices devices;
  const auto values_on = [](DeviceKind kind) {
    Replicator repl{on(kind, 2, 1)};
    auto step = repl.replicate(elements(4), [](ReplicaContext& replica, Tensor<float> x) {
      auto a = replica.variable<float>("a", {3}, Initializer::ones());
      auto b = replica.variable<float>("b", {3}, Initializer::zeros());
      auto c = replica.variable<float>("c", {3}, Initializer::ones());
      const auto old_a = a.read(), old_b = b.read(), g = all_reduce(sum(x), Reduction::mean);
      const auto mixed = [](auto p, auto q, auto by) { return 0.5f * p + q * by; };
      a.assign(map(mixed, old_b, old_a, g));  // the two change places
      b.assign(map(mixed, old_a, old_b, g));
      c.assign(map(mixed, old_a, c.read(), g));
      return sum(x);
    });
    for (int i = 0; i < 5; ++i) step.step();
    return std::pair{repl.digest(), launches_of(json::parse(step.plan_json()))};
  };
  const auto cpu = values_on(DeviceKind::cpu), merged = values_on(DeviceKind::cuda);
  CHECK(merged.first == cpu.first);
  CHECK(merged.second.nodes - merged.second.runs == 2);
}

TEST_CASE("a merged launch names the nodes that it does the work of") {
  const Devices devices;
  const auto optimizer = nn::sgd({.learning_rate = 0.1, .momentum = 0.9});
  Replicator repl{on(DeviceKind::cuda, 2, 1)};
  auto step = repl.replicate(elements(12), step_of(optimizer));
  step.step();
  const auto plan = json::parse(step.plan_json());
  const auto& nodes = plan["processes"][0]["graphs"][0]["nodes"];
  const json* found = nullptr;
  for (const auto& instruction : plan["processes"][0]["devices"][0]["instructions"])
    if (instruction.contains("parts") && instruction["parts"].size() == 10) found = &instruction;
  REQUIRE(found);
  const auto& run = *found;
  CHECK(run["parts"][0] == json{run["graph"], run["node"]});
  std::size_t inputs = 0, outputs = 0;
  for (const auto& part : run["parts"]) {
    const auto& node = nodes[part[1].get<std::size_t>()];
    CHECK(node["kind"] == "map");
    CHECK(node["formula"] == nodes[run["node"].get<std::size_t>()]["formula"]);
    inputs += node["inputs"].size();
    outputs += node["outputs"].size();
  }
  CHECK(run["inputs"].size() == inputs);
  CHECK(run["outputs"].size() == outputs);
  CHECK_THAT(step.explain({.nodes = 1000}), Catch::Contains(" and 9 more in one launch by pretended: 1 run(s), "));
}

TEST_CASE("--find-nan names the node of a merged launch that made it") {
  const Devices devices;
  auto where = on(DeviceKind::cuda, 2, 1);
  where.see.find_nan = true;
  Replicator repl{where};
  int line = 0;
  auto step = repl.replicate(elements(4), [&](ReplicaContext& replica, Tensor<float> x) {
    auto a = replica.variable<float>("a", {3}, Initializer::ones());
    auto b = replica.variable<float>("b", {5}, Initializer::zeros());
    auto c = replica.variable<float>("c", {2}, Initializer::ones());
    const auto g = all_reduce(sum(x), Reduction::mean);
    const auto update = [](auto p, auto by) { return log(p) + 0 * by; };
    a.assign(map(update, a.read(), g));
    line = __LINE__ + 1;
    b.assign(map(update, b.read(), g));
    c.assign(map(update, c.read(), g));
    return sum(x);
  });
  REQUIRE(launches_of(json::parse(step.plan_json())).merged == 1);
  CHECK_THROWS_WITH(step.step(), Catch::Contains("all replicas, step 0: map#") &&
                                     Catch::Contains(" at test_merged_updates.cpp:" + std::to_string(line) + " made the first infinity by "));
}

TEST_CASE("a tool and a trace are told how many nodes a launch does") {
  const Devices devices;
  static std::vector<std::string> begun;
  static constexpr ToolRanges tool{[] { return true; }, [](const char* name) { begun.emplace_back(name); }, []() noexcept {}};
  auto& slot = tool_ranges_slot[static_cast<std::size_t>(DeviceKind::cuda)];
  const auto* const before = slot.exchange(&tool);
  const auto optimizer = nn::sgd({.learning_rate = 0.1});
  train(optimizer, on(DeviceKind::cuda, 2, 1));
  slot.store(before);
  CHECK(std::any_of(begun.begin(), begun.end(), [](const auto& name) {
    return name.starts_with("map#") && name.find(" and 9 more at test_merged_updates.cpp:") != name.npos;
  }));
}

}  // namespace test_merged_updates
