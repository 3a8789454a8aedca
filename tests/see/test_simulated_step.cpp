// SPDX-License-Identifier: Apache-2.0
// Reading a plan for the simulation of whole steps.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <replicator/data/generator.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/parse_devices.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../../tools/simulated_step.hpp"
#include "../../tools/traced_run.hpp"
#include "../replicate/deployments.hpp"
#include "../support/programs.hpp"

namespace test_simulated_step {

using namespace replicator;
using namespace replicator::detail;
using nlohmann::json;
using tools::read_step;
using Kind = collectives::SimulatedAction::Kind;

namespace {

// 40,000 bytes between two kernels, the sum is needed after the second one.
json small_plan() {
  return json::parse(R"({"format": "replicator plan 1", "number": 1, "processes": [{"process": 0,
    "schedules": [{"name": "ring", "root": 0, "any_order": false}],
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

TEST_CASE("without overlap collectives begin where one of them is needed, and kernels wait for all of them") {
  const auto kernel = [](double time) { return collectives::SimulatedAction{Kind::compute, 0, time}; };
  const auto of = [](Kind kind, int collective) { return collectives::SimulatedAction{kind, collective, 0}; };
  const auto text = [](const std::vector<collectives::SimulatedAction>& actions) {
    std::string result;
    for (const auto& a : actions)
      result += a.kind == Kind::compute ? "k" + std::to_string(static_cast<int>(a.microseconds)) + " " : (a.kind == Kind::start ? "s" : "w") + std::to_string(a.collective) + " ";
    return result;
  };
  CHECK(text(tools::without_overlap({kernel(1), of(Kind::start, 0), kernel(2), of(Kind::start, 1), kernel(3), of(Kind::wait, 0), kernel(4),
                                     of(Kind::start, 2), kernel(5), of(Kind::wait, 1), kernel(6), of(Kind::wait, 2)})) ==
        "k1 k2 k3 s0 s1 w0 w1 k4 k5 k6 s2 w2 ");
}

TEST_CASE("a run is simulated as it was: each device begins when it did, and its kernels take what they took") {
  auto plan = small_plan();
  plan["processes"].push_back(plan["processes"][0]);
  plan["processes"][1]["process"] = 1;
  plan["processes"][1]["devices"][0]["replicas"] = json::array({2});
  json trace;
  trace["traceEvents"] = json::array();
  const auto add = [&](int process, int step, int instruction, double begin, double duration) {
    json args{{"step", step}};
    if (instruction >= 0) args["instruction"] = instruction, args["plan"] = 1;
    trace["traceEvents"].push_back({{"ph", "X"}, {"pid", process}, {"tid", 0}, {"cat", instruction < 0 ? "step" : "kernel"}, {"ts", begin}, {"dur", duration}, {"args", args}});
  };
  for (const int process : {0, 1}) {
    for (const int i : {0, 1, 2, 3}) add(process, 4, i, 0, i == 0 ? 1000 : i == 2 ? 10
                                                                                  : 7);
    add(process, 4, -1, process == 0 ? 5000 : 5300, 1100);  // the second one is 300 us late
  }
  const auto run = tools::read_run(plan, trace);
  CHECK(run.replicas == 3);
  CHECK(run.hosts == 2);
  REQUIRE(run.steps.size() == 1);
  CHECK(run.steps[0].number == 4);
  CHECK(run.steps[0].microseconds == 1400);
  CHECK(run.steps[0].computed == 1010);
  const tools::ChosenCollectives chosen{run.collectives, {run.replicas, 2}, {}};
  // 20,000 bytes each way, twice.
  const auto simulation = collectives::simulate(chosen.uses, run.steps[0].actions, {{{1, {}}, {2, {2, 1000}}}, 0});
  CHECK(simulation.time() == Approx(300 + 1000 + 2 * (2 + 20)).epsilon(0.01));
  CHECK(tools::done_otherwise(plan, run, chosen) == "all_reduce w by ring, but direct would be simulated");
  trace["traceEvents"].erase(2);
  CHECK_THROWS_WITH(tools::read_run(plan, trace), Catch::StartsWith("the trace has no instruction 2 of rank 0 in step 4"));
  plan["processes"][1]["devices"].push_back(plan["processes"][1]["devices"][0]);
  CHECK_THROWS_WITH(tools::read_run(plan, trace), Catch::StartsWith("the processes of the plan differ in their numbers of devices"));
}

TEST_CASE("the jitter of a step is told apart from that of its kernels") {
  CHECK(measure_jitter({{1, 2}}).device == 0);
  const auto whole = measure_jitter({{90, 180}, {110, 220}});
  CHECK(whole.device == Approx(0.1 * std::sqrt(2)));
  CHECK(whole.kernel == Approx(0).margin(1e-12));
  const auto each = measure_jitter({{90, 110}, {110, 90}});
  CHECK(each.device == Approx(0).margin(1e-12));
  CHECK(each.kernel == Approx(0.1 * std::sqrt(2)));
}

TEST_CASE("where links are known process 0 says how long a step took and should have taken") {
  const auto results = test::run_as_job(2, [&](int) {
    auto deployment = test::on_devices(2, 1);
    deployment.link = "1GB/s,2us";
    Replicator repl{deployment};
    auto train = repl.replicate([](const InputContext&) { return data::from_generator([] { return Array<float>{{}, {1}}; }); },
                                [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); });
    for (auto sum : train.steps(5)) (void)sum;
    return std::string{"done"};
  });
  INFO(test::describe(results));
  const auto line = test::line_of(results[0].text, "replicator: a step took ");
  CHECK_THAT(line, Catch::Contains("(median of 4), ") && Catch::Contains(" were predicted (") && Catch::Contains("all together"));
  CHECK(results[1].text == "done");
}

TEST_CASE("the plan of a real step can be simulated on other hosts") {
  Deployment deployment;
  deployment.replicas = 4;
  deployment.devices = replicator::parse_devices("cpu:0-1");
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
  CHECK_THROWS_WITH(read_step(plan, trace, 0),
                    "the trace is of another run than the plan: its first device has at least 8 instructions, that of the plan has 4: "
                    "give the two files that one run wrote by --plan and --trace");
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
