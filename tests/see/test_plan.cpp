// SPDX-License-Identifier: Apache-2.0
// Graphs and plans in the form for other programs.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <replicator/collectives/algorithms/owner_computes.hpp>
#include <replicator/collectives/schedule_json.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/io/json/json_writer.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/convolution.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/parse_devices.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/resolve/resolution_dot.hpp>

#include "../replicate/pretend_device.hpp"
#include "../resolve/graphs.hpp"
#include "../support/folders.hpp"
#include "../support/programs.hpp"

namespace test_plan {

using namespace replicator;
using namespace replicator::detail;
using nlohmann::json;

namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

void sum_and_add(ReplicaContext& replica, Tensor<float> x) {
  replica.graph().results().push_back((x + all_reduce(sum(x), Reduction::sum, {.label = "a \"sum\""})).any().value());
}

Deployment on_devices(int replicas, int devices) {
  Deployment result;
  result.replicas = replicas;
  result.devices = parse_devices("cpu:0-" + std::to_string(devices - 1));
  result.input_threads = 1;
  return result;
}

const auto ones = [](const InputContext&) { return data::from_generator([] { return Array<float>{{2}, {1, 1}}; }); };

Tensor<float> train_step(ReplicaContext& replica, Tensor<float> x) {
  auto w = replica.variable<float>("w", {2}, Initializer::ones());
  const auto loss = mean(tanh(x * w.read()));
  nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
  return loss;
}

// The keys of each object, by the keys of the two objects around it: "graphs.nodes".
void collect_keys(const json& value, const std::string& name, const std::string& around, std::map<std::string, std::set<std::string>>& found) {
  if (value.is_array())
    for (const auto& each : value) collect_keys(each, name, around, found);
  if (!value.is_object()) return;
  auto& keys = found[around.empty() ? name : around + "." + name];
  for (const auto& [key, member] : value.items()) {
    keys.insert(key);
    collect_keys(member, key, name, found);
  }
}

// From the tables of docs/plan.md: a heading names objects, the first cell of a row keys that they have.
struct Documented {
  std::vector<std::string> objects;
  std::set<std::string> keys;
};
std::vector<Documented> documented_keys() {
  std::ifstream page{test::script("../docs/plan.md")};
  const auto quoted = [](const std::string& text) {
    std::vector<std::string> words;
    for (auto begin = text.find('`'); begin != std::string::npos; begin = text.find('`', begin)) {
      const auto end = text.find('`', begin + 1);
      words.push_back(text.substr(begin + 1, end - begin - 1));
      begin = end + 1;
    }
    return words;
  };
  std::vector<Documented> result;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) result.push_back({quoted(line), {}});
    if (!line.starts_with("| `")) continue;
    for (const auto& key : quoted(line.substr(0, line.find('|', 1)))) result.back().keys.insert(key);
  }
  return result;
}

}  // namespace

TEST_CASE("a schedule inside groups says which replicas are together, one of all says nothing") {
  const auto schedule_of = [](const Groups& groups) {
    JsonWriter writer;
    collectives::add_json(writer, collectives::owner_computes(collectives::ReplicaBlocks{4, 2}, groups));
    return json::parse(writer.text());
  };
  CHECK(schedule_of(group_columns(4, 2))["groups"] == json::parse("[[0, 2], [1, 3]]"));
  CHECK_FALSE(schedule_of({}).contains("groups"));
}

TEST_CASE("equal graphs are drawn once, different ones apart, and placeholders stand out") {
  const auto equal = dot(test::traced(4, sum_and_add));
  CHECK(count(equal, "subgraph") == 1);
  CHECK(count(equal, "label=\"replicas 0-3\"") == 1);
  CHECK(count(equal, "doubleoctagon") == 1);
  CHECK_THAT(equal, Catch::Contains("all_reduce#2 a \\\"sum\\\"") && Catch::Contains("float32[4, 2]") && Catch::Contains("test_plan.cpp:"));
  CHECK_THAT(equal, Catch::StartsWith("digraph step {") && Catch::EndsWith("}\n"));
  CHECK(equal == dot(test::traced(4, sum_and_add)));
  const auto apart = dot(test::traced(4, [](ReplicaContext& replica, Tensor<float> x) {
    sum_and_add(replica, replica.id() == 1 ? x * 2.0f : x);
  }));
  CHECK(count(apart, "subgraph") == 2);
  CHECK_THAT(apart, Catch::Contains("label=\"replicas 0, 2-3\"") && Catch::Contains("label=\"replica 1\""));
}

TEST_CASE("a resolved graph shows buckets, what is in them, and what is uniform") {
  const auto text = dot(resolve(test::traced(3, [](ReplicaContext& replica, Tensor<float> x) {
                          const auto a = all_reduce(sum(x), Reduction::sum), b = all_reduce(mean(x), Reduction::sum);
                          replica.graph().results() = {(sqrt(a) + exp(b) + x).any().value()};
                        })),
                        5);
  CHECK(count(text, "label=\"replicas 5-7\"") == 1);
  CHECK(count(text, "  bucket0 [shape") == 1);
  CHECK(count(text, "-> bucket0 ") == 2);
  CHECK_THAT(text, Catch::Contains("bucket 0: all_reduce\\n2 member(s), 32 x float32"));
}

TEST_CASE("a step draws itself before and after resolution") {
  Replicator repl{on_devices(4, 2)};
  auto train = repl.replicate(ones, train_step);
  CHECK_THAT(train.dot(), Catch::Contains("label=\"replicas 0-3\"") && Catch::Contains("read#1 w"));
  CHECK_THAT(train.resolved_dot(), Catch::Contains("bucket0") && Catch::Contains("fillcolor=lightgrey"));
  train.step();
  CHECK(count(train.dot(), "subgraph") == 1);
}

TEST_CASE("a plan says what every device executes, on which memory, and for which line") {
  Replicator repl{on_devices(4, 2)};
  auto train = repl.replicate(ones, train_step);
  const auto plan = json::parse(train.plan_json());
  CHECK(plan["format"] == "replicator plan 1");
  REQUIRE(plan["processes"].size() == 1);
  const auto& process = plan["processes"][0];
  CHECK(process["graphs"][0]["replicas"] == json{0, 1, 2, 3});
  REQUIRE(process["devices"].size() == 2);
  const auto& device = process["devices"][1];
  CHECK(device["device"] == "cpu:1");
  CHECK(device["replicas"] == json{2, 3});
  const auto& gradient = device["collectives"][0];
  CHECK(gradient["kind"] == "all_reduce");
  CHECK(gradient["ranks"] == 2);
  CHECK(gradient["members"] == json{0});
  const auto& schedule = process["schedules"][gradient["schedule"].get<std::size_t>()];
  CHECK(schedule["ranks"] == 2);
  CHECK(schedule["replicas"] == 4);
  CHECK(schedule["programs"].size() == 2);
  std::set<std::string> memories;
  int starts = 0, waits = 0, with_lines = 0;
  for (const auto& instruction : device["instructions"]) {
    starts += instruction["do"] == "start";
    waits += instruction["do"] == "wait";
    with_lines += instruction["do"] == "run" && instruction.value("where", "").starts_with("test_plan.cpp:");
    for (const char* side : {"inputs", "outputs"})
      for (const auto& operand : instruction.value(side, json::array())) {
        memories.insert(operand["memory"]);
        if (operand["memory"] == "arena") CHECK(operand["offset"].get<std::size_t>() + operand["bytes"].get<std::size_t>() <= device["arena_bytes"]);
      }
  }
  CHECK(starts == 2);  // the gradient, the exchange at the end
  CHECK(waits == 2);
  const auto& begun = device["instructions"][device["collectives"][1]["asked"].get<std::size_t>()];
  CHECK(begun["inputs"][0]["memory"] == "upcoming");  // the exchange carries no result to other hosts: there are none
  CHECK(with_lines > 0);
  CHECK_FALSE(memories.contains("other"));
  for (const char* memory :
       {"arena", "input", "variable", "collective input", "collective output", "result", "upcoming"})
    CHECK(memories.contains(memory));
}

TEST_CASE("docs/plan.md names every key of a plan, and no other") {
  std::map<std::string, std::set<std::string>> found;
  const auto planned = [&](Deployment deployment, auto step_fn) {
    Replicator repl{std::move(deployment)};
    auto step = repl.replicate(ones, step_fn);
    collect_keys(json::parse(step.plan_json()), "plan", "", found);
  };
  auto three = on_devices(12, 3);  // four replicas each: sums of their own
  three.schedule = "owner_computes";
  planned(three, train_step);
  auto in_halves = on_devices(2, 2);
  in_halves.logical_devices = 2;
  planned(in_halves, [](ReplicaContext& replica, Tensor<float> x) {
    const auto first = [&] {
      const auto here = replica.logical_device(0);
      return tanh(x);
    }();
    const auto there = replica.logical_device(1);
    return sum(first);
  });
  planned(on_devices(4, 2), [](ReplicaContext& replica, Tensor<float> x) {
    const auto kernel = replica.variable<float>("kernel", {16, 16, 3, 3}, Initializer::ones());
    const auto image = reshape(x, {1, 1, 1, 2}) * replica.variable<float>("image", {1, 16, 8, 2}, Initializer::ones()).read();
    return all_reduce(sum(convolution(image, kernel.read(), {.padding = {1, 1}})), Reduction::sum, {.group = group_columns(4, 2)});
  });
  {
    const test::PretendDevices<Map, Reduce, LayoutCopy> merging;
    auto on_gpu = on_devices(2, 1);
    on_gpu.devices = parse_devices("cuda:0");
    planned(on_gpu, [](ReplicaContext& replica, Tensor<float> x) {
      const auto g = all_reduce(sum(x), Reduction::mean);
      auto a = replica.variable<float>("a", {3}, Initializer::ones()), b = replica.variable<float>("b", {5}, Initializer::ones());
      a.assign(a.read() - g);
      b.assign(b.read() - g);
      return g;
    });
  }
  for (const auto& [objects, keys] : documented_keys()) {
    std::set<std::string> there;
    for (const auto& object : objects) there.merge(std::exchange(found[object], {}));
    if (objects[0] == "schedules.programs") there.insert("peer");  // only where ranks cannot load
    INFO(objects[0]);
    CHECK(there == keys);
  }
  for (const auto& [object, keys] : found)
    if (!keys.empty()) FAIL_CHECK("docs/plan.md does not name the object " << object);
}

TEST_CASE("process 0 writes graphs and the plan of all processes to files") {
  const auto folder = std::filesystem::temp_directory_path() / ("replicator_plan_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto results = test::run_as_job(2, [&](int) {
    auto deployment = on_devices(4, 1);
    deployment.see.plan = (folder / "plan.json").string();
    deployment.see.dot = (folder / "step.dot").string();
    Replicator repl{deployment};
    auto first = repl.replicate(ones, train_step), second = repl.replicate(ones, train_step);
    return std::string{"done"};
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "done");
  const auto plan = json::parse(std::ifstream{folder / "plan.json"});
  REQUIRE(plan["processes"].size() == 2);
  CHECK(plan["processes"][1]["devices"][0]["replicas"] == json{2, 3});
  for (const auto& process : plan["processes"]) {
    const auto& device = process["devices"][0];
    const auto asked = device["collectives"].back()["asked"].get<std::size_t>();
    CHECK(device["instructions"][asked - 1]["outputs"][0]["memory"] == "result");  // the last that the exchange carries
  }
  for (const char* name : {"plan.1.json", "step.dot", "step.resolved.dot", "step.1.dot", "step.1.resolved.dot"})
    CHECK(std::filesystem::exists(folder / name));
  std::filesystem::remove_all(folder);
}

TEST_CASE("JSON is written with its commas, escapes and numbers") {
  JsonWriter writer;
  writer.object([&] {
    writer.member("a \"b\"\n", -3);
    writer.values("list", std::vector<double>{0.5, 1e300 * 1e300});
    writer.key("empty").array([] {});
    writer.member("yes", true);
  });
  CHECK(writer.text() == "{\"a \\\"b\\\"\\u000a\":-3,\"list\":[0.5,null],\"empty\":[],\"yes\":true}");
}

}  // namespace test_plan
