// SPDX-License-Identifier: Apache-2.0
// Weights that each replica trains for itself, and their mean.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/local.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

#include "deployments.hpp"

namespace test_local_weights {

using namespace replicator;
using test::error_of;
using test::on_devices;

namespace {

// The gradient of "w" is the replica's id + 1.
const auto local_step = [](ReplicaContext& replica) {
  const auto own = replica.local_variables();
  const auto w = replica.variable<float>("w", {2}, Initializer::zeros());
  nn::local(nn::sgd({.learning_rate = 1, .momentum = 0.5})).minimize(replica, sum(w.read() * static_cast<float>(replica.id() + 1)));
};
float item(const Replicator& repl, const std::string& name, int replica) { return repl.value(name, replica).as<float>()[1]; }

}  // namespace

TEST_CASE("each replica trains its own weights, with no collective") {
  Replicator repl{on_devices(3, 2)};
  auto train = repl.replicate(local_step);
  train.step();
  train.step();  // momentum m = 1.5 g, w = -g - 1.5 g
  for (int replica = 0; replica < 3; ++replica) {
    CHECK(item(repl, "w", replica) == -2.5f * static_cast<float>(replica + 1));
    CHECK(item(repl, "w/momentum", replica) == 1.5f * static_cast<float>(replica + 1));
  }
  CHECK(repl.declaration("w/momentum").kind == VariableKind::replica_local);
  CHECK_THAT(train.explain(), !Catch::Contains("all_reduce"));
}

TEST_CASE("the mean takes weights and what the optimizer remembers, in the same step or in one of its own") {
  Replicator repl{on_devices(3, 2)};
  auto train = repl.replicate(local_step);
  auto both = repl.replicate([](ReplicaContext& replica) {
    local_step(replica);
    nn::average_over_replicas(replica);
  });
  auto mean = repl.replicate([](ReplicaContext& replica) {
    const auto own = replica.local_variables();
    replica.variable<float>("w", {2}, Initializer::zeros());
    nn::average_over_replicas(replica);
  });
  train.step();
  mean.step();  // of -1, -2, -3; the momentum is not declared there
  for (int replica = 0; replica < 3; ++replica) CHECK(item(repl, "w", replica) == -2);
  CHECK(item(repl, "w/momentum", 2) == 3);
  both.step();  // m = 1.5 g: of -2 - 1.5, -2 - 3, -2 - 4.5
  for (int replica = 0; replica < 3; ++replica) {
    CHECK(item(repl, "w", replica) == -5);
    CHECK(item(repl, "w/momentum", replica) == 3);
  }
}

TEST_CASE("one word makes the variables of layers local, and Adam's count too") {
  Replicator repl{on_devices(2, 1)};
  auto train = repl.replicate([](ReplicaContext& replica) {
    const auto own = replica.local_variables();
    const auto x = full<float>(replica, {4, 3}, static_cast<float>(replica.id()));
    const auto y = nn::batch_norm(replica, nn::linear(replica, x, "fc", {.features = 2}), "norm");
    nn::local(nn::adam({.learning_rate = 0.1})).minimize(replica, mean(y));
    nn::average_over_replicas(replica, "norm");
  });
  train.step();
  for (const auto& name : repl.variables()) CHECK(repl.declaration(name).kind == VariableKind::replica_local);
  CHECK(repl.get<int>("fc.weight/updates", 1) == 1);
  CHECK(item(repl, "norm.running_mean", 0) == item(repl, "norm.running_mean", 1));
}

TEST_CASE("mirrored variables and steps without local ones are refused with names and lines") {
  Replicator repl{on_devices(2, 1)};
  const auto mirrored = error_of([&] {
    repl.replicate([](ReplicaContext& replica) {
      const auto w = replica.variable<float>("w", {}, Initializer::zeros());
      nn::local(nn::sgd({})).minimize(replica, w.read() * 1.0f);
    });
  });
  CHECK_THAT(mirrored, Catch::Contains("minimize of nn::local at test_local_weights.cpp:") && Catch::Contains("was given \"w\", declared at test_local_weights.cpp:") &&
                           Catch::Contains("which is mirrored: each replica would give it another value; declare it while replica.local_variables() lives"));
  const auto averaging = error_of([&] {
    repl.replicate([](ReplicaContext& replica) {
      const auto own = replica.local_variables();
      const auto w = replica.variable<float>("v", {}, Initializer::zeros());
      nn::sgd({}).minimize(replica, w.read() * 1.0f);
    });
  });
  CHECK_THAT(averaging, Catch::Contains("which is replica_local because replica.local_variables() was alive there: only mirrored variables can be trained on all "
                                        "replicas; declare it outside that scope, or train it by nn::local(optimizer) on each replica alone, and give each minimize a list"));
  CHECK_THAT(error_of([&] { repl.replicate([](ReplicaContext& replica) { nn::average_over_replicas(replica, "net"); }); }),
             Catch::Contains("average_over_replicas at test_local_weights.cpp:") && Catch::Contains("found no replica-local floating variable below \"net\""));
}

TEST_CASE("a step that forgets local_variables() for a variable of another step is told of it") {
  Replicator repl{on_devices(2, 1)};
  auto train = repl.replicate(local_step);
  const auto other = error_of([&] { repl.replicate([](ReplicaContext& replica) { return sum(replica.variable<float>("w", {2}, Initializer::zeros()).read()); }); });
  CHECK_THAT(other, Catch::Contains("was asked for as mirrored float32[2] at test_local_weights.cpp:") && Catch::Contains("declared as replica_local float32[2] at") &&
                        Catch::EndsWith("the same kind: let replica.local_variables() live at both lines or at neither"));
}

TEST_CASE("local weights of layers begin equal, or each replica draws its own; zeros stay zeros, and placement changes nothing") {
  const auto experts = [](ReplicaContext& replica) {
    const auto x = full<float>(replica, {4, 3}, 1.0f);
    const auto equal = [&] {
      const auto own = replica.local_variables();
      return nn::linear(replica, x, "equal", {.features = 2});
    }();
    const auto own = replica.local_variables(LocalVariables::begin_apart);
    const auto zeros = replica.variable<float>("zeros", {2}, Initializer::zeros());
    return sum(equal + nn::linear(replica, x, "expert", {.features = 2}) + zeros.read());
  };
  Replicator repl{on_devices(3, 1)}, spread{on_devices(3, 2)};
  repl.replicate(experts);
  spread.replicate(experts);
  CHECK(item(repl, "equal.weight", 0) == item(repl, "equal.weight", 2));
  CHECK(item(repl, "expert.weight", 0) != item(repl, "expert.weight", 1));
  CHECK(item(repl, "expert.weight", 1) != item(repl, "expert.weight", 2));
  CHECK(item(repl, "zeros", 2) == 0);
  CHECK(repl.digest() == spread.digest());
}

TEST_CASE("a variable cannot begin equal in one step and apart in another") {
  Replicator repl{on_devices(2, 1)};
  const auto declare = [](LocalVariables begin) {
    return [begin](ReplicaContext& replica) {
      const auto own = replica.local_variables(begin);
      return sum(replica.variable<float>("w", {2}, Initializer::normal(0, 1)).read());
    };
  };
  auto equal = repl.replicate(declare(LocalVariables::begin_equal));
  CHECK_THAT(error_of([&] { repl.replicate(declare(LocalVariables::begin_apart)); }),
             Catch::Contains("was asked for as one that begins apart on each replica at test_local_weights.cpp:") &&
                 Catch::Contains("declared as one that begins equal on all replicas at test_local_weights.cpp:") &&
                 Catch::EndsWith("or the same argument of replica.local_variables() at both lines"));
  const auto mixed = [](ReplicaContext& replica) {
    const auto own = replica.local_variables(replica.id() == 0 ? LocalVariables::begin_equal : LocalVariables::begin_apart);
    return sum(replica.variable<float>("v", {2}, Initializer::normal(0, 1)).read());
  };
  CHECK_THAT(error_of([&] { repl.replicate(mixed); }),
             Catch::Contains("the variable \"v\" at test_local_weights.cpp:") && Catch::Contains(" begins apart on each replica, but not in replica 0 at ") &&
                 Catch::EndsWith("every replica must give replica.local_variables() the same argument"));
  VariableDeclaration mirrored{"w", {DType::float32, {2}}, VariableKind::mirrored, true, Initializer::normal(0, 1), Location{"net.cpp", 7}};
  mirrored.apart = true;
  Graph graph;
  CHECK_THROWS_WITH(graph.declare(mirrored), "the variable \"w\" at net.cpp:7 is mirrored, so it cannot begin apart on each replica: declare it replica_local");
}

}  // namespace test_local_weights
