// SPDX-License-Identifier: Apache-2.0
// What minimize says on stderr: a second update of a variable in one step, and replica-local variables that it leaves out, and
// shapes that broadcast by mistake.
#include <catch2/catch.hpp>

#include <source_location>
#include <string>

#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/optimizers/local.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/nn/optimizers/sharded.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/broadcast_to.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/stop_gradient.hpp>

#include "../support/evaluate.hpp"
#include "../support/told.hpp"

namespace test_minimize_warnings {

namespace rp = replicator;
namespace nn = rp::nn;
using Tensor = rp::Tensor<float>;

namespace {

// What a step of this replica says.
template <class Step>
std::string said(Step step, int id = 0) {
  const TemporaryFolder folder;
  return rp::test::told(folder, [&] {
    rp::Graph graph{id, 2};
    rp::ReplicaContext replica{graph};
    step(replica);
  });
}
rp::Variable<float> weight(rp::ReplicaContext& replica, const char* name, rp::VariableOptions options = {}) {
  return replica.variable<float>(name, {2}, rp::Initializer::ones(), options);
}
const auto descent = nn::sgd({.learning_rate = 0.1});

}  // namespace

TEST_CASE("a second minimize of one variable is told with both lines and the number of variables") {
  std::source_location first, second;
  const auto step = [&](rp::ReplicaContext& replica) {
    const auto a = weight(replica, "a"), b = weight(replica, "b");
    const Tensor y = rp::sum(a.read() * b.read());
    first = std::source_location::current(), descent.minimize(replica, y);
    const Tensor z = rp::sum(a.read() * b.read());
    second = std::source_location::current(), descent.minimize(replica, z);
  };
  const auto text = said(step);
  CHECK(text == "replicator: minimize at " + rp::Location{second}.text() + " updates \"a\" and 1 other variable(s), which minimize at " + rp::Location{first}.text() +
                    " has updated in the same step. Add the losses, or give each minimize the variables of its loss, for example "
                    "replica.trainable_variables<float>(\"generator\")\n");
  CHECK(said(step, 1).empty());
}

// Steps stand outside of the macros: all lines of a macro's argument have one number.
TEST_CASE("sharded and local optimizers tell a second update too") {
  const auto sharded = said([](rp::ReplicaContext& replica) {
    const auto a = weight(replica, "a");
    descent.minimize(replica, rp::sum(a.read()));
    nn::sharded(nn::sgd({})).minimize(replica, rp::sum(a.read()));
  });
  CHECK_THAT(sharded, Catch::Contains("updates \"a\", which minimize at test_minimize_warnings.cpp:"));
  const auto local = said([](rp::ReplicaContext& replica) {
    const auto own = replica.local_variables();
    const auto a = weight(replica, "a");
    nn::local(descent).minimize(replica, rp::sum(a.read()));
    nn::local(descent).minimize(replica, rp::sum(a.read()));
  });
  CHECK_THAT(local, Catch::Contains("updates \"a\", which minimize at "));
}

TEST_CASE("two networks with a minimize each, and a loop of updates at one line, are no mistake") {
  const auto networks = said([](rp::ReplicaContext& replica) {
    const auto a = weight(replica, "a"), b = weight(replica, "b");
    const Tensor y = rp::sum(a.read() * b.read());
    descent.minimize(replica, y, {a});
    descent.minimize(replica, -y, {b});
  });
  CHECK(networks == "");
  const auto loop = said([](rp::ReplicaContext& replica) {
    for (int turn = 0; turn < 3; ++turn) descent.minimize(replica, rp::sum(weight(replica, "a").read()));
  });
  CHECK(loop == "");
}

TEST_CASE("a replica-local variable that the loss is computed from is told to stay as it is") {
  std::source_location declared, minimised;
  const auto text = said([&](rp::ReplicaContext& replica) {
    const auto w = weight(replica, "w");
    declared = std::source_location::current();
    const auto own = replica.variable<float>("own", {2}, rp::Initializer::ones(), {.kind = rp::VariableKind::replica_local});
    const Tensor y = rp::sum(w.read() * own.read());
    minimised = std::source_location::current(), descent.minimize(replica, y);
  });
  CHECK(text == "replicator: the loss minimised at " + rp::Location{minimised}.text() + " is computed from \"own\", which is replica-local (declared at " +
                    "test_minimize_warnings.cpp:" + std::to_string(declared.line() + 1) +
                    "), so minimize leaves it as it is. Train it by nn::local(optimizer), declared while replica.local_variables() lives; or declare it "
                    "with {.trainable = false} if this is meant\n");
}

TEST_CASE("replica-local variables without a gradient, marked as untrained or kept by batch norm are left out in silence") {
  const auto own = said([](rp::ReplicaContext& replica) {
    const auto w = weight(replica, "w");
    const auto count = weight(replica, "count", {.kind = rp::VariableKind::replica_local});
    count.assign(count.read() + 1.0f);
    const auto scale = weight(replica, "scale", {.kind = rp::VariableKind::replica_local, .trainable = false});
    descent.minimize(replica, rp::sum(w.read() * scale.read()));
  });
  CHECK(own == "");
  const auto norm = said([](rp::ReplicaContext& replica) {
    const Tensor x{rp::test::input(replica, {rp::DType::float32, {6, 2}}, 0)};
    const auto trained = nn::batch_norm(replica, x * weight(replica, "w").read(), "norm", {});
    descent.minimize(replica, rp::mean(nn::batch_norm(replica, trained, "fixed", {.training = false})));
  });
  CHECK(norm == "");
}

namespace {
// x [8, 1] of the input through a weight, and noise [8].
Tensor predicted(rp::ReplicaContext& replica) {
  const auto w = replica.variable<float>("w", {1, 1}, rp::Initializer::ones());
  return rp::matmul(Tensor{rp::test::input(replica, {rp::DType::float32, {8, 1}}, 0)}, w.read());
}
}  // namespace

TEST_CASE("a loss that subtracts [n, 1] and [n] is told with both lines, the shapes and what to do") {
  std::source_location difference, minimised;
  const auto step = [&](rp::ReplicaContext& replica) {
    const Tensor x = predicted(replica), noise = rp::normal(replica, {8});
    difference = std::source_location::current();
    const Tensor d = x - noise;
    minimised = std::source_location::current(), descent.minimize(replica, rp::mean(d * d));
  };
  const auto text = said(step);
  CHECK(text == "replicator: the loss minimised at " + rp::Location{minimised}.text() +
                    " has the difference of float32[8, 1] and float32[8] at test_minimize_warnings.cpp:" + std::to_string(difference.line() + 1) +
                    ", which broadcast to [8, 8], all pairs of their elements. Give both the same shape by rp::reshape; "
                    "if all pairs are meant, reshape [8] to [1, 8]\n");
  CHECK(said(step, 1).empty());
  const auto formula = said([](rp::ReplicaContext& replica) {
    const Tensor y{rp::test::input(replica, {rp::DType::float32, {8}}, 1)};
    descent.minimize(replica, rp::mean(rp::map([](auto a, auto b) { return pow(tanh(a) - tanh(b), 2); }, predicted(replica), y)));
  });
  CHECK_THAT(formula, Catch::Contains("the difference of float32[8, 1] and float32[8] at "));
  const auto column = said([](rp::ReplicaContext& replica) {  // labels of a column, and predictions that were squeezed
    const Tensor labels{rp::test::input(replica, {rp::DType::float32, {8, 1}}, 1)};
    descent.minimize(replica, rp::mean(rp::pow(rp::squeeze(predicted(replica), 1) - labels, 2)));
  });
  CHECK_THAT(column, Catch::Contains("the difference of float32[8] and float32[8, 1] at "));
}

TEST_CASE("shapes that broadcast on purpose are not told") {
  const auto quiet = [](auto other) {
    return said([&](rp::ReplicaContext& replica) {
      const Tensor x = predicted(replica), y{rp::test::input(replica, {rp::DType::float32, {8}}, 1)};
      descent.minimize(replica, rp::mean(other(replica, x, y)));
    });
  };
  using Context = rp::ReplicaContext&;
  CHECK(quiet([](Context, Tensor x, Tensor y) { return Tensor{x - rp::reshape(y, {8, 1})}; }) == "");
  CHECK(quiet([](Context, Tensor x, Tensor y) { return Tensor{x - rp::reshape(y, {1, 8})}; }) == "");  // as the warning says
  CHECK(quiet([](Context, Tensor x, Tensor y) { return Tensor{0.5f + rp::expand_dims(y, 1) * 2.0f - rp::sum(x, 1)}; }) == "");
  CHECK(quiet([](Context, Tensor x, Tensor y) { return Tensor{rp::map([](auto a, auto b) { return (1 - a) * b; }, x, y)}; }) == "");
  CHECK(quiet([](Context, Tensor x, Tensor y) { return Tensor{x * y}; }) == "");
  CHECK(quiet([](Context, Tensor x, Tensor y) { return Tensor{x - rp::mean(y)}; }) == "");
  CHECK(quiet([](Context, Tensor x, Tensor y) { return Tensor{rp::broadcast_to(x, {8, 8}) - y}; }) == "");
  CHECK(quiet([](Context, Tensor x, Tensor y) { return Tensor{rp::squeeze(x, 1) - y}; }) == "");
  CHECK(quiet([](Context replica, Tensor x, Tensor) {
          return Tensor{x - replica.variable<float>("centres", {8}, rp::Initializer::ones()).read()};
        }) == "");
  CHECK(quiet([](Context, Tensor x, Tensor y) {
          return Tensor{x * rp::stop_gradient(Tensor{rp::test::input(x.graph(), {rp::DType::float32, {8, 1}}, 2)} - y)};
        }) == "");
}

}  // namespace test_minimize_warnings
