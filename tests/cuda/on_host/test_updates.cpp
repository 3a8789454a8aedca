// SPDX-License-Identifier: Apache-2.0
// Counts the launches of the optimizer of a ResNet-50 on a GPU: one for each expression, not one for each of 161 variables.
#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <replicator/replicator.hpp>

namespace {

using namespace replicator;
using namespace replicator::detail;
using nlohmann::json;

// Counts of the elementwise nodes that are computed once for all replicas. These are the optimizer's, and the counters of batch norm.
struct Updates {
  std::size_t nodes = 0, launches = 0, largest = 0;
  std::size_t copied = 0;  // variables that are not updated in their own memory
  std::set<std::string> expressions;
};

// Running means and variances do not count. They must be copied: the forward pass makes them, and a step that fails changes nothing.
bool is_copied(const json& instruction) {
  if (instruction["do"] != "copy" || instruction["outputs"][0]["memory"] != "variable") return false;
  return instruction["outputs"][0]["variable"].get<std::string>().find(".running_") == std::string::npos;
}

template <class Optimizer>
Updates updates_of(const Optimizer& optimizer) {
  const char* const arguments[] = {"--replicas", "1", "--input-threads", "1", "--devices", "cuda:0"};
  Replicator repl{Deployment::from(arguments)};
  const auto input_fn = [](const InputContext&) { return std::vector{std::tuple{Array<float>{{1, 3, 64, 64}}, Array<std::int32_t>{{1}}}}; };
  auto train = repl.replicate(input_fn, [&](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto loss = mean(softmax_cross_entropy(models::resnet(replica, images, 50, {.classes = 10, .cifar_stem = false}), labels));
    optimizer.minimize(replica, loss);
    return loss;
  });
  const json plan = json::parse(train.plan_json());
  const json& process = plan["processes"][0];
  const json& nodes = process["graphs"][0]["nodes"];
  Updates result;
  for (const json& instruction : process["devices"][0]["instructions"]) {
    result.copied += is_copied(instruction);
    if (instruction["do"] != "run" || instruction.contains("relayout")) continue;
    const json& node = nodes[instruction["node"].get<std::size_t>()];
    if (!node["uniform"].get<bool>() || node["kind"] != "map") continue;
    const auto parts = instruction.contains("parts") ? instruction["parts"].size() : 1;
    result.nodes += parts;
    ++result.launches;
    result.largest = std::max(result.largest, parts);
    result.expressions.insert(node["formula"].get<std::string>());
  }
  return result;
}

// `largest` is the largest number of variables with one expression. An expression takes two launches where it is needed twice,
// one after the other.
template <class Optimizer>
void check_updates(const char* name, const Optimizer& optimizer, std::size_t nodes, std::size_t largest) {
  INFO(name);
  const auto updates = updates_of(optimizer);
  CHECK(updates.nodes == nodes);
  CHECK(updates.largest == largest);
  CHECK(updates.copied == 0);
  CHECK(updates.launches <= updates.expressions.size() + 1);
  CHECK(updates.expressions.size() < 8);
}

}  // namespace

TEST_CASE("161 variables of a ResNet-50 are updated by one launch for each expression of the optimizer") {
  check_updates("sgd", nn::sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-4}), 214, 161);
  // 107 gains, biases and offsets
  check_updates("sgd, vectors undecayed", nn::sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-4, .decay_vectors = false}), 214, 107);
  check_updates("adamw", nn::adamw({.learning_rate = 1e-3}), 216, 161);
  check_updates("lars", nn::lars({.learning_rate = 0.1, .weight_decay = 1e-4}), 269, 107);
}
