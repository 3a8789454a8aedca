// SPDX-License-Identifier: Apache-2.0
// Timelines: what is recorded, and the content of the file.
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <replicator/data/generator.hpp>
#include <replicator/models/resnet.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../replicate/deployments.hpp"
#include "../support/programs.hpp"

namespace test_trace {

using namespace replicator;
using namespace replicator::detail;
using nlohmann::json;
using test::on_devices;

namespace {

struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / ("replicator_trace_" + std::to_string(::getpid()) + ".json")).string();
  ~TemporaryFile() {
    for (const char* end : {"", ".process0", ".process1"}) std::filesystem::remove(path + end);
  }
  json read() const { return json::parse(std::ifstream{path}); }
};

auto rows(std::int64_t n, std::int64_t width, std::int64_t count = -1) {
  return data::from_generator([=](std::int64_t i) -> std::optional<Array<float>> {
    if (i == count) return std::nullopt;
    Array<float> x{{n, width}};
    std::fill(x.begin(), x.end(), 0.01f);
    return x;
  });
}

// Three layers, so that the gradient of the last is there long before that of the first.
Tensor<float> three_layers(ReplicaContext& replica, Tensor<float> x) {
  auto w1 = replica.variable<float>("w1", {64, 64}, Initializer::normal(0, 0.1));
  auto w2 = replica.variable<float>("w2", {64, 64}, Initializer::normal(0, 0.1));
  auto w3 = replica.variable<float>("w3", {64, 64}, Initializer::normal(0, 0.1));
  const auto y = matmul(tanh(matmul(tanh(matmul(x, w1.read())), w2.read())), w3.read());
  const auto loss = mean(y * y);
  nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
  return loss;
}

Deployment traced(int replicas, int devices, const std::string& file) {
  auto deployment = on_devices(replicas, devices);
  deployment.see.trace = file;
  deployment.see.trace_steps = {1, 4};
  deployment.bucket_bytes = 1;
  return deployment;
}

void train(Replicator& repl, int steps) {
  auto step = repl.replicate([](const InputContext&) { return rows(64, 64); }, three_layers);
  for (auto loss : step.steps(steps)) (void)loss;
}

struct Span {
  double begin, end;
};
Span span_of(const json& event) { return {event["ts"].get<double>(), event["ts"].get<double>() + event["dur"].get<double>()}; }

// Spans of the collectives of a device, by id.
std::map<std::string, Span> communications(const json& trace, int process, int device) {
  std::map<std::string, Span> found;
  for (const auto& event : trace["traceEvents"]) {
    if (event["pid"] != process || event["tid"] != device || event["ph"] == "M" || event["cat"] != "collective") continue;
    auto& span = found[event["id"].get<std::string>()];
    (event["ph"] == "b" ? span.begin : span.end) = event["ts"].get<double>();
  }
  return found;
}

std::vector<json> events(const json& trace, const std::string& category, int process = 0, int device = 0) {
  std::vector<json> found;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == category && event["pid"] == process && event["tid"] == device) found.push_back(event);
  return found;
}

}  // namespace

TEST_CASE("a trace names devices, steps, kernels with their lines, input and collectives") {
  const TemporaryFile file;
  {
    Replicator repl{traced(4, 2, file.path)};
    train(repl, 6);
    CHECK_FALSE(std::filesystem::exists(file.path));
  }
  const auto trace = file.read();
  CHECK(events(trace, "step").size() == 3);
  CHECK(events(trace, "step", 0, 1).size() == 3);
  std::vector<int> steps;
  for (const auto& event : events(trace, "step")) steps.push_back(event["args"]["step"]);
  CHECK(steps == std::vector<int>{1, 2, 3});
  const auto kernels = events(trace, "kernel");
  const auto named = [&](const std::string& start) {
    return std::count_if(kernels.begin(), kernels.end(), [&](const json& event) {
      return event["name"].get<std::string>().starts_with(start) && event["args"].value("where", "").starts_with("test_trace.cpp:");
    });
  };
  CHECK(named("matmul#") == 3 * 2 * 8);  // 3 steps, 2 replicas, 3 forward and 5 backward
  CHECK(named("map#") > 0);
  CHECK(events(trace, "input", 0, 2).size() == 3 * 4);
  const auto all = communications(trace, 0, 0);
  CHECK(all.size() == 3 * 4);  // three gradients, and the exchange at the end
  for (const auto& [id, span] : all) CHECK(span.begin <= span.end);
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "b") continue;
    const auto& args = event["args"];
    CHECK(args["asked"] <= args["started"]);
    CHECK(args["started"] <= args["finished"]);
  }
  for (const auto& kernel : kernels) {  // within its step
    const auto inside = span_of(kernel);
    bool found = false;
    for (const auto& step : events(trace, "step"))
      found = found || (span_of(step).begin <= inside.begin && inside.end <= span_of(step).end && step["args"]["step"] == kernel["args"]["step"]);
    CHECK(found);
  }
}

TEST_CASE("a gradient is reduced while kernels of the backward pass still run") {
  const TemporaryFile file;
  {
    auto deployment = traced(2, 2, file.path);
    deployment.see.trace_steps = {1, 50};  // devices that come to a collective together need not wait: not every step overlaps
    Replicator repl{deployment};
    train(repl, 50);
  }
  const auto trace = file.read();
  int overlaps = 0;
  for (const int device : {0, 1}) {
    const auto kernels = events(trace, "kernel", 0, device);
    for (const auto& [id, span] : communications(trace, 0, device))
      for (const auto& kernel : kernels) {
        const auto k = span_of(kernel);
        overlaps += kernel["name"].get<std::string>().starts_with("matmul#") && k.begin >= span.begin && k.begin < span.end;
      }
  }
  CHECK(overlaps > 0);
}

TEST_CASE("in a step of ResNet-18 on two devices, gradients are reduced beside the backward pass") {
  const TemporaryFile file;
  {
    auto deployment = traced(2, 2, file.path);
    deployment.bucket_bytes = 1 << 20;
    Replicator repl{deployment};
    const auto pictures = [](const InputContext&) {
      return data::from_generator([](std::int64_t i) {
        Array<float> x{{2, 3, 32, 32}};
        for (std::int64_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>((k * 37 + i) % 101) * 0.01f;
        return std::tuple{std::move(x), Array<std::int32_t>{{2}, {0, 1}}};
      });
    };
    auto step = repl.replicate(pictures, [](ReplicaContext& replica, Tensor<float> x, Tensor<std::int32_t> labels) {
      const auto logits = models::resnet(replica, x, 18, {.classes = 2, .training = true, .cifar_stem = true});
      const auto loss = mean(softmax_cross_entropy(logits, labels));
      nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
      return loss;
    });
    for (auto loss : step.steps(4)) (void)loss;
  }
  const auto trace = file.read();
  // Kernels beside a collective after which convolutions of the same step's backward pass are still to come.
  int beside = 0;
  for (const int device : {0, 1}) {
    const auto kernels = events(trace, "kernel", 0, device);
    std::map<int, double> last_convolution;  // by step
    for (const auto& kernel : kernels)
      if (kernel["name"].get<std::string>().starts_with("convolution_backward")) last_convolution[kernel["args"]["step"]] = span_of(kernel).begin;
    REQUIRE(last_convolution.size() == 3);
    for (const auto& [id, span] : communications(trace, 0, device))
      for (const auto& kernel : kernels) {
        const auto k = span_of(kernel);
        beside += k.begin < span.end && k.end > span.begin && k.begin <= last_convolution[kernel["args"]["step"]];
      }
  }
  CHECK(beside > 0);
}

TEST_CASE("while a device waits for one collective, others that are under way move on") {
  const TemporaryFile file;
  {
    auto deployment = traced(2, 2, file.path);
    Replicator repl{deployment};
    const auto late_by = [](int milliseconds) {
      return [=](const Observation& seen) {
        if (seen.replica == 1) std::this_thread::sleep_for(std::chrono::milliseconds{milliseconds});
      };
    };
    auto step = repl.replicate([](const InputContext&) { return rows(64, 1024); },
                               [&](ReplicaContext&, Tensor<float> x) {
                                 const auto first = all_reduce(host_callback(x, late_by(30)), Reduction::sum, {.label = "first"});
                                 const auto second = all_reduce(host_callback(x + x, late_by(100)), Reduction::max, {.label = "second"});
                                 const auto needed_first = mean(second * second);
                                 return std::tuple{needed_first, mean(first * first)};
                               });
    for (auto result : step.steps(3)) (void)result;
  }
  std::map<std::string, double> finished;
  const auto trace = file.read();
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "b" && event["tid"] == 0 && event["args"]["step"] == 2)
      finished[event["name"].get<std::string>().substr(0, 17)] = event["args"]["finished"].get<double>();
  REQUIRE(finished.count("all_reduce \"first") == 1);
  REQUIRE(finished.count("all_reduce \"secon") == 1);
  // Device 0 has its part of the first to add while it waits for the second.
  CHECK(finished["all_reduce \"secon"] - finished["all_reduce \"first"] > 50'000);
}

TEST_CASE("the same bits with a trace and without, and a step that is recorded twice as long keeps its last records") {
  const TemporaryFile file;
  const auto digest = [](Deployment deployment) {
    Replicator repl{std::move(deployment)};
    train(repl, 3);
    return repl.digest();
  };
  CHECK(digest(traced(3, 2, file.path)) == digest(on_devices(3, 1)));
  TraceRing<int> ring{3};
  for (int i = 0; i < 5; ++i) ring.push(i);
  std::vector<int> kept;
  ring.for_each([&](int i) { kept.push_back(i); });
  CHECK(kept == std::vector<int>{2, 3, 4});
}

TEST_CASE("process 0 writes the traces of all processes with one clock") {
  const TemporaryFile file;
  const auto results = test::run_as_job(2, [&](int) {
    Replicator repl{traced(4, 1, file.path)};
    train(repl, 4);
    return std::string{"done"};
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "done");
  const auto trace = file.read();
  CHECK(trace["otherData"]["clock_uncertainty_ns"].size() == 2);
  const auto uncertainty = trace["otherData"]["clock_uncertainty_ns"][1].get<double>();
  CHECK(uncertainty > 0);
  const auto here = events(trace, "step", 0, 0), there = events(trace, "step", 1, 0);
  REQUIRE(here.size() == 3);
  REQUIRE(there.size() == 3);
  // Every step ends with an exchange between all: neither can begin the next one before the other has begun this one.
  const double slack = uncertainty / 1000;
  for (std::size_t k = 0; k + 1 < 3; ++k) {
    CHECK(span_of(here[k + 1]).begin > span_of(there[k]).begin - slack);
    CHECK(span_of(there[k + 1]).begin > span_of(here[k]).begin - slack);
  }
}

TEST_CASE("a process of a job that fails writes its own trace and says so") {
  const TemporaryFile file;
  const auto results = test::run_as_job(2, [&](int) {
    Replicator repl{traced(2, 1, file.path)};
    auto step = repl.replicate(
        [](const InputContext& ctx) {
          return data::from_generator([replica = ctx.replica()](std::int64_t i) {
            if (i == 3 && replica == 1) throw DataError{"no more"};
            return Array<float>{{}, {1}};
          });
        },
        [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); });
    for (auto result : step.steps(9)) (void)result;
    return std::string{"done"};
  });
  INFO(test::describe(results));
  CHECK_FALSE(std::filesystem::exists(file.path));
  for (const char* end : {".process0", ".process1"}) {
    CHECK_THAT(results[static_cast<std::size_t>(end[8] - '0')].text, Catch::Contains("the trace of this process is in " + file.path + end));
    CHECK_FALSE(json::parse(std::ifstream{file.path + end})["traceEvents"].empty());
  }
}

TEST_CASE("a window of steps that cannot be is refused") {
  for (const char* text : {"3", "3:3", "a:4", "1:", "-1:4", "0:1001"}) {
    const char* argv[] = {"program", "--trace-steps", text};
    CHECK_THROWS_WITH(Deployment::from(3, argv), Catch::Contains("--trace-steps is \"" + std::string{text} + "\""));
  }
  const char* argv[] = {"program", "--trace", "t.json", "--trace-steps=5:7", "--timing", "rest"};
  const auto deployment = Deployment::from(6, argv);
  CHECK(deployment.see.trace == "t.json");
  CHECK(deployment.see.timing);
  CHECK(deployment.see.trace_steps.first == 5);
  CHECK(deployment.see.trace_steps.end == 7);
  CHECK(deployment.remaining == std::vector<std::string>{"rest"});
}

}  // namespace test_trace
