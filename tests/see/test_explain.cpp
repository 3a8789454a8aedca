// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/core/layout_text.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/convolution.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/runtime/see/explain.hpp>

#include "../replicate/deployments.hpp"

namespace test_explain {

using namespace replicator;
using namespace replicator::detail;
using test::on_devices;

namespace {

const auto rows = [](const InputContext&) { return data::from_generator([] { return Array<float>{{32, 64}}; }); };

Tensor<float> train_step(ReplicaContext& replica, Tensor<float> x) {
  auto w = replica.variable<float>("w", {64, 128}, Initializer::normal(0, 0.1));
  const auto y = tanh(matmul(x, w.read()));
  const auto loss = mean(y * y);
  nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
  return loss;
}

}  // namespace

TEST_CASE("explain says how each collective is done, what it is predicted to take, and which nodes cost most") {
  Replicator repl{on_devices(3, 3)};
  auto train = repl.replicate(rows, train_step);
  const auto text = train.explain({.nodes = 1});
  CHECK_THAT(text, Catch::Contains("\"w/gradient\" at test_explain.cpp:") && Catch::Contains("32768 B; owner_computes: "));
  CHECK_THAT(text, Catch::Contains("bucket 0 of 1 member(s)") && Catch::Contains("1.00 times a ring's bytes; predicted "));
  CHECK_THAT(text, !Catch::Contains("measured 0") && !Catch::Contains(", measured "));
  CHECK_THAT(text, Catch::Contains("by operations") && Catch::Contains("matmul#") && Catch::Contains(": 1 run(s), 524 kFLOP, 57.3 kB"));
  const bool named = text.find(" by oneDNN matmul: ") != std::string::npos || text.find(" by matmul loops: ") != std::string::npos;
  CHECK(named);
}

TEST_CASE("explain predicts what the cost model of collectives says, of the busiest rank") {
  Replicator repl{on_devices(8, 3)};
  auto train = repl.replicate(rows, train_step);
  const collectives::Link link{5e6, 2e-3};  // 5 s until the first byte, then 2000 bytes a second
  const auto schedule = collectives::choose(collectives::Kind::all_reduce, 32768, {8, 3}).schedule;
  const double microseconds = collectives::predicted_microseconds(schedule, 32768, link);
  CHECK_THAT(train.explain({.machine = {.wire_bytes = 2e3, .latency = 5}}), Catch::Contains("; predicted " + detail::seconds_text(microseconds * 1e-6) + "\n"));
  const double mean = static_cast<double>(collectives::moved_chunks(schedule)) * 32768 / schedule.chunks / 3;
  REQUIRE(microseconds > collectives::steps(schedule) * link.microseconds + 1.05 * mean / link.bytes_per_microsecond);  // and not of all alike
}

TEST_CASE("explain has measured times once steps were timed, and shares of the roofline where the machine is known") {
  auto deployment = on_devices(2, 2);
  deployment.see.timing = true;
  Replicator repl{deployment};
  auto train = repl.replicate(rows, train_step);
  for (auto loss : train.steps(4)) (void)loss;
  const auto timed = train.explain();
  CHECK_THAT(timed, Catch::Contains(", measured ") && Catch::Contains("by measured time") && !Catch::Contains("roofline"));
  CHECK_THAT(train.explain({.machine = {.flops = 1e12, .memory_bytes = 1e12}}), Catch::Contains("of the roofline (memory)"));
  CHECK_THAT(train.explain({.calibrate = true}), Catch::StartsWith("limits of a cpu device, measured: ") && Catch::Contains("FLOP/s, ") && Catch::Contains("of the roofline ("));
}

TEST_CASE("a node's share of the roofline is the time that arithmetic or memory alone would take, over the time it took") {
  auto deployment = on_devices(2, 2);
  deployment.see.timing = true;
  Replicator repl{deployment};
  auto train = repl.replicate(rows, train_step);
  for (auto loss : train.steps(4)) (void)loss;
  // [32, 64] by [64, 128], or its gradient by the weight: as many operations and bytes.
  constexpr double operations = 2.0 * 32 * 64 * 128, bytes = 4.0 * (32 * 64 + 64 * 128 + 32 * 128);
  // Figures of a machine so slow that no digit is lost.
  const auto check = [&](double flops, double memory_bytes, const std::string& bound) {
    const auto text = train.explain({.nodes = 100, .machine = {.flops = flops, .memory_bytes = memory_bytes}});
    INFO(text);
    const std::string before = ": 1 run(s), 524 kFLOP, 57.3 kB, ";
    const auto at = text.find(before);
    REQUIRE(at != std::string::npos);
    char unit = 0, seconds[8] = {};
    double time = 0, percent = 0;
    REQUIRE(std::sscanf(text.c_str() + at + before.size(), "%lf %c%7[s], %lf %%", &time, &unit, seconds, &percent) == 4);
    const double took = time * (unit == 'u' ? 1e-6 : 1e-3);
    CHECK(percent == Approx(100 * std::max(operations / flops, bytes / memory_bytes) / took).epsilon(0.01));
    CHECK_THAT(text, Catch::Contains("\n  more than 100 % of the roofline: the data came from caches"));
    const std::string line = text.substr(at, text.find('\n', at) - at);
    CHECK_THAT(line, Catch::EndsWith(" % of the roofline (" + bound + ")"));
  };
  check(1e6, 1e12, "arithmetic");
  check(1e12, 1e6, "memory");
  check(1e6, 0.9e6 * bytes / operations, "memory");
  check(1e6, 1.1e6 * bytes / operations, "arithmetic");
  CHECK_THAT(train.explain({.machine = {.flops = 1e18, .memory_bytes = 1e18}}), Catch::Contains("of the roofline") && !Catch::Contains("more than 100 %"));
}

TEST_CASE("explain lists every copy between layouts that a step makes") {
  Replicator repl{on_devices(1, 1)};
  const auto images = [](const InputContext&) { return data::from_generator([] { return Array<float>{{2, 3, 16, 16}}; }); };
  auto train = repl.replicate(images, [](ReplicaContext& replica, Tensor<float> x) {
    auto first = replica.variable<float>("first", {32, 3, 3, 3}, Initializer::normal(0, 0.1));
    auto second = replica.variable<float>("second", {32, 32, 3, 3}, Initializer::normal(0, 0.1));
    const auto loss = mean(convolution(relu(convolution(x, first.read())), second.read()));
    nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
    return loss;
  });
  const auto plan = nlohmann::json::parse(train.plan_json());
  std::size_t copies = 0;
  const auto text = train.explain();
  for (const auto& instruction : plan["processes"][0]["devices"][0]["instructions"]) {
    if (!instruction.value("relayout", false)) continue;
    ++copies;
    CHECK_THAT(text, Catch::Contains("#" + std::to_string(instruction["node"].get<int>())));
  }
  if (copies == 0) CHECK_THAT(text, !Catch::Contains("copies between layouts"));  // plain loops take images as they lie
  else CHECK_THAT(text, Catch::Contains("copies between layouts in a step, " + std::to_string(copies) + ": ") && Catch::Contains("  for convolution, row-major to "));
}

TEST_CASE("a layout is written as its axes from the outermost on, then its blocks") {
  CHECK(layout_text({}) == "row-major");
  CHECK(layout_text(channels_last({2, 3, 4, 5})) == "acdb");
  Layout blocked;  // of weights [64, 32, 3, 3]
  blocked.plain = false;
  blocked.strides = {32 * 9 * 16, 9 * 16 * 16, 3 * 16 * 16, 16 * 16};
  blocked.blocks = 2;
  blocked.axis = {1, 0};
  blocked.size = {16, 16};
  CHECK(layout_text(blocked) == "ABcd16b16a");
}

TEST_CASE("operations are counted from shapes and expressions") {
  Graph graph;
  const auto input = [&](Shape shape) { return Tensor<float>{graph.tensor(graph.add({Input{}, {}, {{DType::float32, shape}}, {}, {}}))}; };
  const auto last = [&] { return operations_of(graph, static_cast<std::uint32_t>(graph.nodes().size() - 1)); };
  const auto a = input({2, 3, 4}), b = input({2, 4, 5});
  matmul(a, b);
  CHECK(last() == 2 * 2 * 3 * 4 * 5);
  const auto x = input({1, 4, 8, 8}), w = input({6, 2, 3, 3});
  convolution(x, w, {.groups = 2});
  CHECK(last() == 2.0 * 6 * 6 * 6 * 2 * 9);
  map([](auto u) { return tanh(u) * u + 1.0f; }, a);
  CHECK(last() == 3 * 24);
  sum(a);
  CHECK(last() == 24);
}

}  // namespace test_explain
