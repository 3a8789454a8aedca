// SPDX-License-Identifier: Apache-2.0
// Numbers that a program sets and reads between steps.
#include <catch2/catch.hpp>

#include <source_location>
#include <string>
#include <vector>

#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

#include "deployments.hpp"

namespace test_host_values {

using namespace replicator;
using test::error_of;
using test::on_devices;

namespace {

// A step whose gradient of "w" is 1.
template <class Optimizer>
auto descent(Optimizer optimizer) {
  return [optimizer](ReplicaContext& replica) {
    const auto w = replica.variable<float>("w", {}, Initializer::ones());
    optimizer.minimize(replica, w.read() * 1.0f);
  };
}

}  // namespace

TEST_CASE("a learning rate that the program sets counts from the next step on") {
  Replicator repl{on_devices(3, 2)};
  auto train = repl.replicate(descent(nn::sgd({.learning_rate = nn::Rate::variable("learning_rate", 0.5)})));
  CHECK(repl.get<double>("learning_rate") == 0.5);
  train.step();
  CHECK(repl.get<float>("w") == 0.5f);
  repl.set("learning_rate", 0.125f);
  train.step();
  CHECK(repl.get<float>("w") == 0.375f);
  CHECK(repl.declaration("learning_rate").kind == VariableKind::mirrored);
  CHECK_FALSE(repl.declaration("learning_rate").trainable);
}

TEST_CASE("a rate that nobody sets gives the bits of a constant, in Adam too") {
  const auto after = [](nn::Rate rate) {
    Replicator repl{on_devices(1, 1)};
    auto train = repl.replicate(descent(nn::adamw({.learning_rate = rate, .weight_decay = 0.1})));
    for (int i = 0; i < 5; ++i) train.step();
    return repl.get<float>("w");
  };
  CHECK(after(nn::Rate::variable("rate", 0.3)) == after(0.3));
  CHECK(after(nn::linear_warmup(nn::Rate::variable("rate", 0.3), 4)) == after(nn::linear_warmup(0.3, 4)));
  CHECK(after(nn::linear_warmup(nn::Rate::variable("rate", 0.3), 4)) != after(0.3));
}

TEST_CASE("the name of a rate is whole, and two rates of one name need one first value") {
  Replicator repl{on_devices(1, 1)};
  repl.replicate([](ReplicaContext& replica) {
    const auto inside = replica.scope("net");
    const auto w = replica.variable<float>("w", {}, Initializer::ones());
    nn::sgd({.learning_rate = nn::Rate::variable("rate", 0.5)}).minimize(replica, w.read() * 1.0f);
  });
  CHECK(repl.variables() == std::vector<std::string>{"net.w", "rate"});
  CHECK_THAT(error_of([&] { repl.replicate(descent(nn::sgd({.learning_rate = nn::Rate::variable("rate", 0.25)}))); }),
             Catch::Contains("the variable \"rate\" was asked for as constant 0.25 at test_host_values.cpp:") &&
                 Catch::Contains("but it was declared as constant 0.5 at test_host_values.cpp:"));
}

TEST_CASE("numbers are converted to the variable's type and back") {
  Replicator repl{on_devices(2, 1)};
  auto train = repl.replicate([](ReplicaContext& replica) {
    const auto count = replica.variable<std::int64_t>("count", {1}, Initializer::constant(7));
    const auto on = replica.variable<bool>("on", {}, Initializer::zeros());
    return std::tuple{count.read(), on.read()};
  });
  repl.set("count", (std::int64_t{1} << 60) + 1);
  repl.set("on", true);
  CHECK(repl.get<std::int64_t>("count") == (std::int64_t{1} << 60) + 1);
  CHECK(repl.get<int>("on") == 1);
  const auto [count, on] = train.step();
  CHECK(count[1][0] == (std::int64_t{1} << 60) + 1);
  CHECK(on[1][0]);
}

TEST_CASE("a number that does not fit the variable's type is refused, and the value stays") {
  Replicator repl{on_devices(1, 1)};
  repl.replicate([](ReplicaContext& replica) {
    (void)replica.variable<std::uint8_t>("byte", {}, Initializer::constant(7));
    (void)replica.variable<std::int32_t>("int", {}, Initializer::constant(7));
    (void)replica.variable<std::int64_t>("long", {}, Initializer::constant(7));
    (void)replica.variable<bool>("flag", {}, Initializer::zeros());
    (void)replica.variable<float>("float", {}, Initializer::constant(7));
    (void)replica.variable<bfloat16>("short float", {}, Initializer::constant(7));
  });
  std::source_location where = std::source_location::current();
  const auto text = error_of([&] { where = std::source_location::current(), repl.set("byte", 300); });
  CHECK_THAT(text, Catch::StartsWith("set at " + Location{where}.text() +
                                     ": the number 300 does not fit into the variable \"byte\", which is uint8[] (declared at test_host_values.cpp:") &&
                       Catch::EndsWith("): give a whole number from 0 to 255"));
  CHECK_THAT(error_of([&] { repl.set("byte", -1); }), Catch::Contains("the number -1 does not fit"));
  CHECK_THAT(error_of([&] { repl.set("int", 0.5); }), Catch::Contains("the number 0.5 does not fit") && Catch::EndsWith("from -2147483648 to 2147483647"));
  CHECK_THAT(error_of([&] { repl.set("int", std::int64_t{1} << 40); }), Catch::Contains("the number 1099511627776 does not fit"));
  CHECK_THAT(error_of([&] { repl.set("long", 1e30); }), Catch::Contains("the number 1e+30 does not fit"));
  CHECK_THAT(error_of([&] { repl.set("long", std::uint64_t{1} << 63); }), Catch::Contains("does not fit"));
  CHECK_THAT(error_of([&] { repl.set("flag", 2); }), Catch::EndsWith("give 0 or 1"));
  CHECK_THAT(error_of([&] { repl.set("float", 1e300); }), Catch::EndsWith("give a number that float32 can hold"));
  CHECK_THAT(error_of([&] { repl.set("short float", 1e300); }), Catch::EndsWith("give a number that bfloat16 can hold"));
  for (const auto* name : {"byte", "int", "long", "float", "short float"}) CHECK(repl.get<int>(name) == 7);
  repl.set("byte", 255.0), repl.set("int", -2147483648.0), repl.set("flag", true), repl.set("float", 0.1);
  repl.set("short float", std::numeric_limits<double>::infinity());
  CHECK(repl.get<int>("byte") == 255);
  CHECK(repl.get<std::int64_t>("int") == -2147483648);
  CHECK(repl.get<float>("float") == 0.1f);
}

TEST_CASE("errors of value, get and set name the variable and the line") {
  Replicator repl{on_devices(1, 1)};
  std::source_location where = std::source_location::current();
  const auto here = [&] { return Location{where}.text(); };
  const auto early = error_of([&] { where = std::source_location::current(), repl.set("w", 1); });
  CHECK(early == "set at " + here() + ": there is no variable \"w\": replicate() declares the variables of its step function, so call it first");
  std::source_location declared;
  repl.replicate([&](ReplicaContext& replica) { declared = std::source_location::current(), replica.variable<float>("weight", {2}, Initializer::ones()); });
  const auto unknown = error_of([&] { where = std::source_location::current(), (void)repl.value("weigth"); });
  CHECK(unknown == "value at " + here() + ": there is no variable \"weigth\": was \"weight\" meant?");
  const auto whole = "the variable \"weight\" is float32[2] (declared at " + Location{declared}.text() +
                     "), and not one number: give or take an rp::AnyArray of that type, by set and value";
  const auto got = error_of([&] { where = std::source_location::current(), (void)repl.get<float>("weight"); });
  CHECK(got == "get at " + here() + ": " + whole);
  const auto set = error_of([&] { where = std::source_location::current(), repl.set("weight", 1); });
  CHECK(set == "set at " + here() + ": " + whole);
  const auto other = error_of([&] { where = std::source_location::current(), repl.set("weight", Array<double>{{2}}.any()); });
  CHECK(other == "set at " + here() + ": \"weight\" is float32[2] (declared at " + Location{declared}.text() +
                     "), but the value given is float64[2]: give one of the variable's type");
}

TEST_CASE("errors of optimizer options name the line") {
  std::source_location where = std::source_location::current();
  const auto error = error_of([&] { where = std::source_location::current(), (void)nn::adam({.learning_rate = -1}); });
  CHECK(error == "optimizer at " + Location{where}.text() + ": adam: learning_rate is -1: it must be a finite number and must not be negative");
  CHECK_THAT(error_of([] { (void)nn::sgd({.learning_rate = nn::Rate::variable("rate", -1)}); }), Catch::Contains("sgd: learning_rate is -1"));
}

}  // namespace test_host_values
