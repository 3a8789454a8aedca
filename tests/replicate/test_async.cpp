// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/collectives/placeholders.hpp>
#include <replicator/collectives/resolve_async.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/nn/adam.hpp>
#include <replicator/nn/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

#include "deployments.hpp"

using namespace replicator;
using test::error_of;

namespace {

Deployment asynchronous(int replicas, int devices, std::optional<std::int64_t> staleness = {}, int group = 1) {
  auto deployment = test::on_devices(replicas, devices);
  deployment.regime = Regime::asynchronous;
  deployment.staleness = staleness;
  deployment.sync_group = group;
  deployment.late = std::chrono::milliseconds{0};
  return deployment;
}

// The value, `count` times; forever where count is negative.
auto repeated(float value, std::int64_t count = -1) {
  return data::from_generator([value, count](std::int64_t position) -> std::optional<Array<float>> {
    if (position == count) return std::nullopt;
    return Array<float>{{}, {value}};
  });
}
const auto ones = [](const InputContext&) { return repeated(1); };
const auto counting = [](const InputContext&) {
  return data::from_generator([](std::int64_t position) { return Array<float>{{}, {static_cast<float>(position)}}; });
};

// Each update takes the mean of x from every element of both: both are minus the sum of all that arrived.
template <class Optimizer>
void descend(ReplicaContext& replica, const Optimizer& optimizer, Tensor<float> x) {
  const auto a = replica.variable<float>("a", {3000}, Initializer::zeros()), b = replica.variable<float>("b", {7}, Initializer::zeros());
  optimizer.minimize(replica, (sum(a.read()) + sum(b.read())) * x);
}
nn::Sgd plain(double rate = 1) { return nn::sgd({.learning_rate = rate}); }

float item(const Replicator& repl, const std::string& name) { return repl.value(name).as<float>()[0]; }
bool all_are(const AnyArray& array, float value) {
  const auto values = array.as<float>();
  return std::all_of(values.begin(), values.end(), [value](float v) { return v == value; });
}

// Whoever waits at it goes on when it is open.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> waited{0};
  void wait() {
    ++waited;
    for (int i = 0; i < 20000 && !open; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
};
// Replica 1 waits in every step but its first.
auto with_straggler(std::shared_ptr<Gate> gate) {
  return [gate](ReplicaContext& replica, Tensor<float> x) {
    auto seen = x;
    if (replica.id() == 1)
      seen = host_callback(x, [gate](const Observation& at) {
        if (at.step > 0) gate->wait();
      });
    descend(replica, plain(), seen);
    return seen;
  };
}

}  // namespace

TEST_CASE("asynchronous replicas find the minimum of a convex function") {
  for (const auto staleness : {std::optional<std::int64_t>{}, std::optional<std::int64_t>{3}}) {
    Replicator repl{asynchronous(4, 3, staleness)};
    auto train = repl.replicate([](const InputContext& ctx) { return repeated(static_cast<float>(ctx.replica())); },
                                [](ReplicaContext& replica, Tensor<float> x) {
                                  const auto w = replica.variable<float>("w", {}, Initializer::constant(9));
                                  const auto error = w.read() - x * 0.0f - 2.0f;
                                  plain(0.02).minimize(replica, error * error);
                                  return error;
                                });
    for (const auto& results : train.steps(150)) CHECK(std::get<0>(results).replicas() == 4);
    CHECK(train.steps_done() == 150);
    CHECK(std::abs(item(repl, "w") - 2) < 1e-3f);
  }
}

TEST_CASE("every update is made once, and read whole") {
  for (const auto& [group, devices] : {std::pair{1, 2}, {2, 2}, {2, 4}}) {
    Replicator repl{asynchronous(4, devices, {}, group)};
    std::vector<std::int64_t> elements{5, 30, 17, 9};
    auto train = repl.replicate([&](const InputContext& ctx) { return repeated(1, elements[static_cast<std::size_t>(ctx.replica())]); },
                                [](ReplicaContext& replica, Tensor<float> x) {
                                  descend(replica, plain(), x);
                                  const auto a = replica.variable<float>("a", {3000}, Initializer::zeros()).read();
                                  return check(equal(max(a), min(a)), "an update was read in part");
                                });
    while (!train.finished()) train.step();
    const float updates = group == 1 ? 5 + 30 + 17 + 9 : 5 + 9;  // a group ends with the first input of its replicas
    CHECK(all_are(repl.value("a"), -updates));
    CHECK(all_are(repl.value("b"), -updates));
    CHECK_THROWS_WITH(train.step(), Catch::Contains("the input has ended after"));
    const auto text = train.explain();
    CHECK_THAT(text, Catch::Contains("asynchronous: " + std::to_string(4 / group) + " group(s) of " + std::to_string(group)));
    const auto count = std::to_string(static_cast<int>(updates));
    CHECK_THAT(text, Catch::Contains("shard 0 on device 0, 1 variable(s) from \"a\", 12000 B: " + count + " updates"));
    CHECK_THAT(text, Catch::Contains("shard 1 on device 1, 1 variable(s) from \"b\", 28 B: "));
  }
}

TEST_CASE("replicas of a group are synchronous with each other, on one device or several") {
  for (const int devices : {1, 2, 4, 6}) {
    Replicator repl{asynchronous(6, devices, {}, 3)};
    auto train = repl.replicate([](const InputContext& ctx) { return repeated(static_cast<float>(ctx.replica() % 3), 8); },
                                [](ReplicaContext& replica, Tensor<float> x) {
                                  descend(replica, plain(), x);
                                  return x;
                                });
    const auto [x] = train.step();
    for (int replica = 0; replica < 6; ++replica) CHECK(x[replica].item() == static_cast<float>(replica % 3));
    while (!train.finished()) train.step();
    CHECK(all_are(repl.value("a"), -16));  // two groups of eight steps whose mean is 1
  }
}

TEST_CASE("what an optimizer counts are the updates") {
  Replicator repl{asynchronous(3, 3)};
  auto train = repl.replicate([](const InputContext&) { return repeated(1, 10); },
                              [](ReplicaContext& replica, Tensor<float> x) { descend(replica, nn::adam({.learning_rate = 0.01}), x); });
  while (!train.finished()) train.step();
  CHECK(repl.value("a/updates").as<std::int64_t>()[0] == 30);
  CHECK(std::abs(item(repl, "a") + 0.3f) < 1e-3f);
  CHECK_THAT(train.explain(), Catch::Contains("7 variable(s)"));  // all are in one shard: they share the count
}

TEST_CASE("a straggler does not hold up the others") {
  const auto gate = std::make_shared<Gate>();
  Replicator repl{asynchronous(3, 3)};
  auto train = repl.replicate(ones, with_straggler(gate));
  for (int step = 0; step < 40; ++step) train.step();  // ends although replica 1 stands still in its second step
  CHECK(gate->waited <= 1);
  gate->open = true;
  const float updates = -item(repl, "a");  // when all rest
  CHECK(updates >= 120);
  CHECK(updates <= 123);
}

TEST_CASE("a bound of staleness holds up the others, until a deadline that names who is late") {
  const auto gate = std::make_shared<Gate>();
  auto deployment = asynchronous(3, 3, 4);
  deployment.deadline = std::chrono::seconds{1};
  Replicator repl{deployment};
  auto train = repl.replicate(ones, with_straggler(gate));
  const auto error = error_of([&] {
    for (int step = 0; step < 40; ++step) train.step();
  });
  gate->open = true;
  CHECK_THAT(error, Catch::Contains("replica 1"));
  CHECK_THAT(error, Catch::Contains("It is stopped or slow: look there, or allow more time with --deadline") ||
                        Catch::Contains("Who is at work is stopped or slow: look there, or allow more time with --deadline"));
  CHECK(error_of([&] { train.step(); }) == error);
}

TEST_CASE("an error of one replica ends the step for all") {
  Replicator repl{asynchronous(3, 3, 2)};
  auto train = repl.replicate(counting, [](ReplicaContext& replica, Tensor<float> x) {
    descend(replica, plain(), x);
    return check(less(x, full<float>(replica, {}, replica.id() == 2 ? 5.0f : 1e9f)), "five are enough");
  });
  const auto error = error_of([&] {
    for (int step = 0; step < 100; ++step) train.step();
  });
  CHECK_THAT(error, Catch::Contains("replica 2, step 5: check at "));
  CHECK(error_of([&] { repl.replicate(ones, [](ReplicaContext&, Tensor<float> x) { return x; }); }) == error);
}

TEST_CASE("a step without updates is made once by each replica for each call, of the newest values") {
  Replicator repl{asynchronous(4, 2)};
  auto train = repl.replicate(ones, [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
  auto validate = repl.replicate(counting, [](ReplicaContext& replica, Tensor<float> x) {
    return std::tuple{x, replica.variable<float>("b", {7}, Initializer::zeros()).read()};
  });
  for (int call = 0; call < 5; ++call) {
    train.step();
    train.step();
    const auto [x, b] = validate.step();
    for (int replica = 0; replica < 4; ++replica) {
      CHECK(x[replica].item() == static_cast<float>(call));
      CHECK(b[replica][3] == item(repl, "b"));
    }
  }
  repl.set("b", Array<float>{{7}, {1, 1, 1, 5, 1, 1, 1}}.any());
  CHECK(std::get<1>(validate.step())[2][3] == 5);
}

TEST_CASE("a collective that is no gradient's mean for minimize is refused with its line") {
  const auto refused = [](auto step_fn) {
    Replicator repl{asynchronous(2, 2)};
    return error_of([&] { repl.replicate(ones, step_fn); });
  };
  const auto loss = refused([](ReplicaContext& replica, Tensor<float> x) {
    descend(replica, plain(), x);
    return all_reduce(x, Reduction::mean);
  });
  CHECK_THAT(loss, Catch::Contains("all_reduce at ") && Catch::Contains("test_async.cpp:") &&
                       Catch::Contains("cannot be resolved with --regime async: replicas are at different steps there"));
  CHECK_THAT(refused([](ReplicaContext& replica, Tensor<float> x) {
               const auto w = replica.variable<float>("w", {}, Initializer::zeros());
               nn::wrap_optimizer(plain(), nn::Wire::bfloat16).minimize(replica, w.read() * x);
             }),
             Catch::Contains("all_reduce \"w/gradient\" at ") && Catch::Contains("gradients on a bfloat16 wire"));
  CHECK_THAT(refused([](ReplicaContext& replica, Tensor<float> x) {
               const auto w = replica.variable<float>("w", {}, Initializer::zeros());
               w.assign(w.read() + 1.0f);
               return x;
             }),
             Catch::Contains("\"w\" is mirrored, and assigned at ") && Catch::Contains("by a step without minimize"));
}

TEST_CASE("a deployment that the asynchronous regime cannot have is refused with the flag") {
  const auto refused = [](auto change, int replicas = 4, int devices = 2) {
    auto deployment = asynchronous(replicas, devices);
    change(deployment);
    return error_of([&] { Replicator{deployment}; });
  };
  CHECK_THAT(refused([](Deployment& d) { d.staleness = 0; }),
             Catch::Contains("--staleness is 0, but 2 groups of replicas compute at once on 2 devices"));
  CHECK_THAT(refused([](Deployment& d) { d.sync_group = 3; }), Catch::Contains("--sync-group is 3, which does not divide the 4 replicas"));
  CHECK_THAT(refused([](Deployment& d) { d.sync_group = 3; }, 6, 3),
             Catch::Contains("--sync-group 3 makes 2 groups for 3 devices: name a multiple of 2"));
  CHECK_THAT(refused([](Deployment& d) { d.see.skew = true; }), Catch::Contains("--regime async cannot be combined with --skew"));
  CHECK_THAT(refused([](Deployment& d) { d.logical_devices = 2; }), Catch::Contains("--logical-devices"));
  CHECK_THAT(refused([](Deployment& d) {
               d.regime = Regime::synchronous;
               d.staleness = 3;
             }),
             Catch::Contains("--staleness was given, but the regime is synchronous"));
  const char* flags[] = {"--regime", "later"};
  CHECK(error_of([&] { Deployment::from(flags); }) == "--regime is \"later\": it must be sync or async");
}
