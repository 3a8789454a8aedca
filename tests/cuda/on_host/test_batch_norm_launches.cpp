// SPDX-License-Identifier: Apache-2.0
// Counts the launches of a batch norm on a GPU.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <replicator/graph/fused_reduce.hpp>
#include <replicator/replicator.hpp>

#include "../without_kernels.hpp"

namespace {

using namespace replicator;
using namespace replicator::detail;
using nlohmann::json;

// The launches of Maps and Reduces in a step through so many layers, without those of the optimizer.
int launches_of_layers(int layers, bool training) {
  const char* const arguments[] = {"--replicas", "1", "--input-threads", "1", "--devices", "cuda:0"};
  Replicator repl{Deployment::from(arguments)};
  const auto input_fn = [](const InputContext&) { return std::vector{Array<float>{{2, 8, 8, 8}}}; };
  auto step = repl.replicate(input_fn, [&](ReplicaContext& replica, Tensor<float> x) {
    for (int i = 0; i < layers; ++i) {
      const std::string name = "layer" + std::to_string(i);
      x = relu(nn::batch_norm(replica, nn::conv2d(replica, x, name, {.features = 8, .kernel = {3, 3}, .padding = {1, 1}, .bias = false}), name + "_norm"));
    }
    const auto loss = mean(nn::linear(replica, global_average_pool(x), "last", {.features = 1}));
    if (training) nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
    return loss;
  });
  const json plan = json::parse(step.plan_json());
  const json& process = plan["processes"][0];
  const json& nodes = process["graphs"][0]["nodes"];
  int launches = 0;
  for (const json& instruction : process["devices"][0]["instructions"]) {
    if (instruction["do"] != "run" || instruction.contains("relayout")) continue;
    const json& node = nodes[instruction["node"].get<std::size_t>()];
    const std::string kind = node["kind"];
    launches += !node["uniform"].get<bool>() && (kind == "map" || kind == "reduce" || kind == "fused_reduce");
  }
  return launches;
}
int launches_of_one(bool training) { return launches_of_layers(4, training) - launches_of_layers(3, training); }

}  // namespace

TEST_CASE("a batch norm and its ReLU are two reductions and one Map, and their gradient is one reduction and one Map") {
  CHECK(launches_of_one(false) == 3);
  CHECK(launches_of_one(true) == 3 + 2);
}

TEST_CASE("without epilogues the arithmetic on channels takes eight more launches") {
  const test::WithoutKernels<FusedReduce> without;
  CHECK(launches_of_one(false) == 3 + 5);
  CHECK(launches_of_one(true) == 3 + 5 + 2 + 3);
}
