// SPDX-License-Identifier: Apache-2.0
// Weights from and to safetensors files.
#include <catch2/catch.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <replicator/replicator.hpp>

#include "../input/temporary_folder.hpp"
#include "../replicate/deployments.hpp"
#include "../support/told.hpp"

namespace test_weights {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;
using Catch::StartsWith;
using test::error_of;
using test::on_devices;

namespace {

// One layer with momentum and a replica-local counter.
auto small_network(Replicator& repl, std::int64_t features = 2) {
  return repl.replicate(
      [](const InputContext& ctx) {
        return std::vector<Array<float>>(
            9, Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6.0f * static_cast<float>(ctx.replica())}});
      },
      [features](ReplicaContext& replica, Tensor<float> x) {
        const auto y = nn::linear(replica, x, "fc", {.features = features});
        auto seen = replica.variable<std::int64_t>("bn.num_batches_tracked", {}, Initializer::zeros(),
                                                   {VariableKind::replica_local});
        seen.assign(seen.read() + full<std::int64_t>(replica, {}, 1));
        const auto loss = mean(y * y);
        nn::sgd({.learning_rate = 0.01, .momentum = 0.9}).minimize(replica, loss);
        return loss;
      });
}

std::map<std::string, AnyArray> tensors() {
  return {{"fc.weight", Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6}}.any()}, {"fc.bias", Array<float>{{2}, {7, 8}}.any()}};
}

}  // namespace

TEST_CASE("saved weights are those that are loaded, without the optimizer's variables") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  Replicator repl{on_devices(2, 2)};
  auto step = small_network(repl);
  for (auto it : step.steps(3)) (void)it;
  save_weights(repl, path);
  const auto file = io::read_safetensors(path);
  CHECK(file.tensors.size() == 3);
  CHECK(file.tensors.at("bn.num_batches_tracked").as<std::int64_t>()[0] == 3);
  CHECK(repl.variables().size() > 3);

  Replicator other{on_devices(3, 1, 99)};
  auto fresh = small_network(other);
  CHECK(other.value("fc.weight").as<float>()[0] != repl.value("fc.weight").as<float>()[0]);
  load_weights(other, path);
  for (const auto& [name, tensor] : file.tensors)
    for (int replica = 0; replica < (name == "bn.num_batches_tracked" ? 3 : 1); ++replica) {
      const auto bytes = other.value(name, replica).bytes();
      CHECK(std::equal(bytes.begin(), bytes.end(), tensor.bytes().begin(), tensor.bytes().end()));
    }
}

TEST_CASE("saving weights that each replica trains for itself says that those of one are saved") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  const auto saved = [&](int replicas, auto step) {
    Replicator repl{on_devices(replicas, 1)};
    repl.replicate(step);
    return test::told(folder, [&] { save_weights(repl, path); });
  };
  const auto experts = [](ReplicaContext& replica) {
    const auto own = replica.local_variables(LocalVariables::begin_apart);
    nn::linear(replica, full<float>(replica, {1, 3}, 1.0f), "expert", {.features = 2});
  };
  CHECK(saved(2, experts) == "replicator: " + path + " holds the values of one replica for 2 replica-local variable(s): expert.bias, expert.weight. A checkpoint keeps those of all replicas\n");
  CHECK(saved(1, experts).empty());
  CHECK(saved(2, [](ReplicaContext& replica) { nn::batch_norm(replica, full<float>(replica, {4, 3}, 1.0f), "bn"); }).empty());
}

TEST_CASE("variables whose names have a slash are saved and loaded as others are, and what an optimizer remembers of them is not") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  const auto network = [](Replicator& repl) {
    return repl.replicate([](const InputContext&) { return std::vector<Array<float>>(9, Array<float>{{2}, {1, 2}}); },
                          [](ReplicaContext& replica, Tensor<float> x) {
                            const auto loss = sum(x * replica.variable<float>("encoder/w", {2}, Initializer::ones()).read());
                            nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
                            return loss;
                          });
  };
  Replicator repl{on_devices(1, 1)}, other{on_devices(1, 1)};
  auto step = network(repl), same = network(other);
  for (auto it : step.steps(3)) (void)it;
  save_weights(repl, path);
  const auto file = io::read_safetensors(path);
  REQUIRE(file.tensors.size() == 1);
  load_weights(other, path);
  CHECK(other.value("encoder/w").as<float>()[1] == repl.value("encoder/w").as<float>()[1]);
  CHECK(other.value("encoder/w").as<float>()[1] < 0.5f);
}

TEST_CASE("a file without counters of batches loads, as those of old versions of PyTorch") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w";
  io::write_safetensors(path, tensors());
  Replicator repl{on_devices(1, 1)};
  auto step = small_network(repl);
  load_weights(repl, path);
  CHECK(repl.value("fc.weight").as<float>()[5] == 6);
  CHECK(repl.value("fc.bias").as<float>()[1] == 8);
}

TEST_CASE("a file that does not fit is refused with all names, and nothing is set") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w";
  Replicator repl{on_devices(1, 1)};
  auto step = small_network(repl, 4);
  auto wrong = tensors();
  wrong.erase("fc.bias");
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) wrong.emplace(name, Array<float>{Shape{}}.any());
  io::write_safetensors(path, wrong);
  const auto before = repl.digest();
  const std::string expected =
      path +
      " does not hold the weights of this network: 1 missing: fc.bias; 8 unexpected: a, b, c, d, e, f and 2 more; "
      "1 of another type: fc.weight (float32[2, 3] in the file, float32[4, 3] here). Was it saved by another depth, "
      "number of classes or model? Parts of a file are loaded with {.strict = false}";
  CHECK(error_of([&] { load_weights(repl, path); }) == expected);
  CHECK_THROWS_WITH(load_weights(repl, path, {.strict = false}), Contains("network: 1 of another type: fc.weight"));
  CHECK(repl.digest() == before);
  wrong.erase("fc.weight");
  wrong.emplace("fc.bias", Array<float>{{4}, {1, 2, 3, 4}}.any());
  io::write_safetensors(path, wrong);
  load_weights(repl, path, {.strict = false});
  CHECK(repl.value("fc.bias").as<float>()[3] == 4);
}

TEST_CASE("the variables of a scope are saved and loaded without its name, and the others left alone") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  io::write_safetensors(path, tensors());
  Replicator repl{on_devices(2, 1)};
  auto step = repl.replicate(
      [](const InputContext&) { return std::vector<Array<float>>(1, Array<float>{{2, 3}}); },
      [](ReplicaContext& replica, Tensor<float> x) {
        const auto other = nn::linear(replica, x, "fc", {.features = 2});
        const auto scope = replica.scope("teacher");
        return mean(other + nn::linear(replica, x, "fc", {.features = 2}));
      });
  const float before = repl.value("fc.weight").as<float>()[5];
  load_weights(repl, path, {.scope = "teacher"});
  CHECK(repl.value("teacher.fc.weight").as<float>()[5] == 6);
  CHECK(repl.value("fc.weight").as<float>()[5] == before);
  const std::string other = folder.path() + "/again.safetensors";
  save_weights(repl, other, {.scope = "teacher"});
  const auto saved = io::read_safetensors(other).tensors;
  CHECK(saved.size() == 2);
  CHECK(saved.at("fc.bias").as<float>()[1] == 8);
  CHECK_THAT(error_of([&] { load_weights(repl, path, {.scope = "techer"}); }),
             StartsWith("load_weights at test_weights.cpp:") && Contains(" found no variable below the scope \"techer\": was \"teacher\" meant?"));
}

TEST_CASE("weights of a misspelt scope, and before replicate(), are refused in loading and in saving") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  io::write_safetensors(path, tensors());
  Replicator repl{on_devices(1, 1)};
  CHECK_THAT(error_of([&] { load_weights(repl, path); }), Contains("found no variables: replicate() declares those of its step function, so call it first"));
  auto step = small_network(repl);
  CHECK_THROWS_AS(load_weights(repl, path, {.scope = "pupil"}), BuildError);
  const std::string other = folder.path() + "/other.safetensors";
  CHECK(error_of([&] { save_weights(repl, other, {.scope = "pupil"}); }) ==
        "save_weights of " + other + " found no variable below the scope \"pupil\": \"bn.num_batches_tracked\" is one of those that there are");
  CHECK_FALSE(std::filesystem::exists(other));
}

TEST_CASE("a file in which nothing fits is refused even where parts are allowed") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  Replicator repl{on_devices(1, 1)};
  auto step = small_network(repl);
  io::write_safetensors(path, {{"model.fc.weight", Array<float>{{2, 3}}.any()}});
  CHECK_THAT(error_of([&] { load_weights(repl, path, {.strict = false}); }),
             StartsWith(path + " holds no tensor with the name of a variable: 1 in the file: model.fc.weight; 3 in the network: bn.num_batches_tracked, fc.bias, fc.weight. "));
}

TEST_CASE("what was averaged is saved as its average where that is asked for") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  Replicator repl{on_devices(2, 1)};
  auto step = repl.replicate(
      [](const InputContext&) { return std::vector<Array<float>>(4, Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6}}); },
      [](ReplicaContext& replica, Tensor<float> x) {
        const auto loss = mean(nn::linear(replica, x, "fc", {.features = 2}));
        nn::averaged(nn::sgd({.learning_rate = 1}), 0.5).minimize(replica, loss);
        return loss;
      });
  for (auto it : step.steps(2)) (void)it;
  const float average = repl.value("fc.weight/average").as<float>()[0];
  CHECK(average != repl.value("fc.weight").as<float>()[0]);
  save_weights(repl, path, {.averages = true});
  const auto saved = io::read_safetensors(path).tensors;
  CHECK(saved.size() == 2);
  CHECK(saved.at("fc.weight").as<float>()[0] == average);
}

TEST_CASE("variables without an average are saved themselves, and a line says so where there is none") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  Replicator repl{on_devices(2, 1)};
  const auto step = repl.replicate([](ReplicaContext& replica) {
    const auto averages = nn::read_averages(replica);
    return replica.variable<float>("w", {2}, Initializer::constant(3)).read();
  });
  const auto text = test::told(folder, [&] { save_weights(repl, path, {.averages = true}); });
  CHECK(text == "replicator: save_weights was asked for moving averages, but no step has kept any: " + path +
                    " holds the variables themselves. Train with rp::nn::averaged(optimizer, 0.999)\n");
  CHECK(io::read_safetensors(path).tensors.at("w").as<float>()[1] == 3);
}

}  // namespace test_weights
