// SPDX-License-Identifier: Apache-2.0
// A plan as the simulator of whole steps reads it.
#include <catch2/catch.hpp>

#include <string>

#include <nlohmann/json.hpp>

#include <replicator/data/generator.hpp>
#include <replicator/nn/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../../tools/simulated_step.hpp"

namespace test_simulated_step {

using namespace replicator;
using nlohmann::json;
using tools::read_step;
using Kind = collectives::SimulatedAction::Kind;

namespace {

// 40,000 bytes between two kernels, the sum is needed after the second one.
json small_plan() {
  return json::parse(R"({"format": "replicator plan 1", "number": 1, "processes": [{"process": 0,
    "schedules": [{"root": 0, "any_order": false}],
    "devices": [{"replicas": [0, 1],
      "collectives": [{"text": "all_reduce w", "kind": "all_reduce", "dtype": "float32", "elements": 10000, "schedule": 0}],
      "instructions": [{"do": "run", "inputs": [{"bytes": 100}], "outputs": [{"bytes": 200}]}, {"do": "start", "collective": 0},
                       {"do": "run", "outputs": [{"bytes": 100}]}, {"do": "wait", "collective": 0}]}]}]})");
}
json event(int instruction, double duration, int device = 0, int plan = 1) {
  return {{"ph", "X"}, {"pid", 0}, {"tid", device}, {"dur", duration}, {"args", {{"instruction", instruction}, {"plan", plan}, {"step", 1}}}};
}

}  // namespace

TEST_CASE("kernels take the median of their times in a trace, or a part of the step by the bytes they touch") {
  json trace;
  trace["traceEvents"] = {event(0, 10), event(0, 30), event(0, 20), event(2, 5), event(3, 99), event(0, 7, 1), event(0, 7, 0, 0)};
  auto step = read_step(small_plan(), trace, 0);
  CHECK(step.replicas == 2);
  REQUIRE(step.actions.size() == 4);
  CHECK(step.actions[0].microseconds == 20);
  CHECK(step.actions[1].kind == Kind::start);
  CHECK(step.actions[2].microseconds == 5);
  CHECK(step.actions[3].kind == Kind::wait);
  CHECK(step.microseconds == 25);
  CHECK(read_step(small_plan(), trace, 50).actions[2].microseconds == Approx(10));
  step = read_step(small_plan(), nullptr, 100);
  CHECK(step.actions[0].microseconds == Approx(75));
  CHECK(step.actions[2].microseconds == Approx(25));
}

TEST_CASE("figures of a plan or a trace that cannot be are refused by what they are") {
  const auto refused = [](const char* place, const json& value, const std::string& words) {
    auto plan = small_plan();
    plan[json::json_pointer{place}] = value;
    CHECK_THROWS_AS(read_step(plan, nullptr, 1), DataError);
    CHECK_THROWS_WITH(read_step(plan, nullptr, 1), Catch::Contains(words));
  };
  const std::string device = "/processes/0/devices/0";
  refused((device + "/replicas").c_str(), json::array(), "no replica on its first device");
  refused((device + "/collectives/0/schedule").c_str(), -1, "the schedule of a collective of the plan is -1");
  refused((device + "/collectives/0/schedule").c_str(), 1, "from 0 to 0");
  refused((device + "/collectives/0/elements").c_str(), -1, "the size of a collective of the plan is -1");
  refused((device + "/collectives/0/elements").c_str(), 1e300, "it must be a whole number");
  refused("/processes/0/schedules/0/root", std::uint64_t{1} << 63, "the root of a collective of the plan is 9223372036854775808");
  refused((device + "/instructions/1/collective").c_str(), 1, "the collective of an instruction of the plan is 1");
  refused((device + "/instructions/3/do").c_str(), "start", "the plan has \"start\" of collective 0 out of order");
  refused((device + "/instructions/1/do").c_str(), "wait", "the plan has \"wait\" of collective 0 out of order");
  refused((device + "/instructions/0/inputs/0/bytes").c_str(), -5, "the size of an operand of the plan is -5");
  refused((device + "/instructions/0/outputs/0/bytes").c_str(), 1e300, "from 0 to 1e18");
  auto idle = small_plan();
  for (const int i : {0, 2}) idle["processes"][0]["devices"][0]["instructions"][i] = {{"do", "run"}};
  CHECK_THROWS_WITH(read_step(idle, nullptr, 1), Catch::Contains("no instruction that takes time"));
  json trace;
  trace["traceEvents"] = json::array({event(-1, 1)});
  CHECK_THROWS_WITH(read_step(small_plan(), trace, 0), Catch::Contains("an instruction of the trace is -1"));
  trace["traceEvents"] = json::array({event(0, -1)});
  CHECK_THROWS_WITH(read_step(small_plan(), trace, 0), Catch::Contains("a duration of the trace is -1"));
}

TEST_CASE("a simulated step ends when its kernels and what they did not hide have ended") {
  const auto step = read_step(small_plan(), nullptr, 1000);
  const collectives::Topology topology{{{1, {}}, {4, {2, 1000}}}, 0};
  const tools::ChosenCollectives chosen{step, 4, {}};
  REQUIRE(chosen.uses.size() == 1);
  CHECK(chosen.uses[0].schedule->name == "owner_computes");
  CHECK(chosen.bytes_of[0] == 40000);
  CHECK(chosen.uses[0].schedule->blocks.replicas() == 8);
  const auto aside = collectives::simulate(chosen.uses, {step.actions}, topology, {.kernels_aside = true});
  CHECK(aside.time() == Approx(1000));
  // The thread sees the parts when the second kernel has ended: then the sums have to travel still.
  const auto between = collectives::simulate(chosen.uses, {step.actions}, topology);
  CHECK(between.time() > 1030);
  CHECK(between.time() < 1035);
  // On one device nothing travels.
  const tools::ChosenCollectives alone{step, 1, {}};
  CHECK(collectives::simulate(alone.uses, {step.actions}, {{{1, {}}}, 0}).time() == Approx(1000));
}

TEST_CASE("the plan of a real step can be simulated on other hosts") {
  Deployment deployment;
  deployment.replicas = 4;
  deployment.devices = replicator::detail::parse_devices("cpu:0-1");
  Replicator repl{deployment};
  auto train = repl.replicate([](const InputContext&) { return data::from_generator([] { return Array<float>{{2}, {1, 1}}; }); },
                              [](ReplicaContext& replica, Tensor<float> x) {
                                auto w = replica.variable<float>("w", {2}, Initializer::ones());
                                const auto loss = mean(tanh(x * w.read()));
                                nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
                                return loss;
                              });
  const auto step = read_step(json::parse(train.plan_json()), nullptr, 100);
  CHECK(step.replicas == 2);
  CHECK(step.collectives.size() == 2);  // the gradient, the exchange at the end
  CHECK(step.microseconds == 100);
  const tools::ChosenCollectives chosen{step, 12, {}};
  const auto simulation = collectives::simulate(chosen.uses, {step.actions}, {{{4, {1, 20000}}, {3, {2, 12500}}}, 10000});
  CHECK(simulation.time() >= 102);  // a latency between hosts: few bytes go directly
  CHECK(simulation.time() < 120);
}

TEST_CASE("plans that cannot be simulated are refused in a sentence") {
  CHECK_THROWS_WITH(read_step(json::object(), nullptr, 1), "the plan does not begin with \"replicator plan 1\": give what --plan wrote");
  auto plan = small_plan();
  auto& process = plan["processes"][0];
  json trace;
  trace["traceEvents"] = json::array({event(7, 1)});
  CHECK_THROWS_WITH(read_step(plan, trace, 0), Catch::StartsWith("the trace has instruction 7 of the first device, the plan has 4"));
  trace["traceEvents"] = json::array({event(0, 1, 3)});
  CHECK_THROWS_WITH(read_step(plan, trace, 0), Catch::StartsWith("the trace has no instructions of the plan's first device"));
  process["devices"][0]["collectives"][0]["dtype"] = "float4";
  CHECK_THROWS_WITH(read_step(plan, nullptr, 1), Catch::StartsWith("the plan has the word \"float4\""));
  process["schedules"][0]["groups"] = json::array({json::array({0, 1})});
  CHECK_THROWS_WITH(read_step(plan, nullptr, 1), Catch::StartsWith("all_reduce w happens inside groups"));
  plan = small_plan();
  plan["processes"][0]["devices"][0]["instructions"][0]["do"] = "give";
  CHECK_THROWS_WITH(read_step(plan, nullptr, 1), Catch::StartsWith("a replica of the plan is spread over several devices"));
}

}  // namespace test_simulated_step
