// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <limits>

#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/stop_gradient.hpp>

#include "../support/evaluate.hpp"

namespace test_optimizer {

namespace rp = replicator;
namespace nn = rp::nn;
using namespace rp::test;
using Catch::Matchers::Contains;

namespace {

using Matrix = rp::Tensor<float>;

// loss = sum(c * w), so that the gradient of w is c.
struct Problem {
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  rp::Variable<float> w;

  explicit Problem(rp::Shape shape) : w{replica.variable<float>("w", shape, rp::Initializer::ones())} {}
  rp::Tensor<float> loss() { return rp::sum(w.read() * Matrix{input(graph, {rp::DType::float32, w.shape()}, 0)}); }
  // w, and where there is a second variable its momentum, after a step.
  std::vector<double> after(double value, double momentum, double gradient) {
    EvaluateOptions options;
    std::vector<rp::Value> wanted;
    for (std::uint32_t v = 0; v < graph.variables().size(); ++v) {
      options.variables.emplace(graph.variables()[v].name, filled(v == 0 ? value : momentum));
      wanted.push_back(graph.read(v, {}).value());
    }
    std::vector<double> result;
    for (const auto& array : evaluate(graph, wanted, std::vector{filled(gradient)}, options))
      result.push_back(doubles(array)[0]);
    return result;
  }
  rp::AnyArray filled(double value) const {
    return array_of({rp::DType::float32, w.shape()},
                    std::vector<double>(static_cast<std::size_t>(w.shape().elements()), value));
  }
};

std::vector<std::string> placeholders(const rp::Graph& graph) {
  std::vector<std::string> labels;
  for (const auto& node : graph.nodes())
    if (node.get<rp::detail::Placeholder>()) labels.push_back(node.label);
  return labels;
}

// Moves every variable by the gradient's sign; knows nothing of replicas.
struct SignDescent {
  float rate;

  template <rp::FloatingElement T>
  void apply_gradients(rp::ReplicaContext&, const std::vector<rp::Variable<T>>& variables,
                       const std::vector<rp::Tensor<T>>& gradients,
                       std::source_location = std::source_location::current()) const {
    for (std::size_t i = 0; i < variables.size(); ++i)
      variables[i].assign(variables[i].read() - rate * rp::sign(gradients[i]));
  }
};

}  // namespace

TEST_CASE("SGD follows PyTorch's formulas") {
  const double p = 2, m = 3, gradient = 4;
  struct Case {
    nn::SgdOptions options;
    std::vector<double> expected;
  };
  const double decayed = 4 + 0.5 * 2;
  const Case cases[] = {
      {{.learning_rate = 0.25}, {2 - 0.25 * 4}},
      {{.learning_rate = 0.25, .weight_decay = 0.5}, {2 - 0.25 * decayed}},
      {{.learning_rate = 0.25, .momentum = 0.5}, {2 - 0.25 * 5.5, 5.5}},
      {{.learning_rate = 0.25, .momentum = 0.5, .weight_decay = 0.5}, {2 - 0.25 * 6.5, 6.5}},
      {{.learning_rate = 0.25, .momentum = 0.5, .nesterov = true, .weight_decay = 0.5},
       {2 - 0.25 * (decayed + 0.5 * 6.5), 6.5}},
      {{.learning_rate = nn::Rate{[](rp::Symbol step) { return step.number(0.25); }}, .momentum = 0.5},
       {2 - 0.25 * 5.5, 5.5}},
  };
  for (const auto& [options, expected] : cases) {
    Problem problem{{2, 1}};
    nn::sgd(options).minimize(problem.replica, problem.loss());
    const auto found = problem.after(p, m, gradient);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]));
  }
}

TEST_CASE("vectors are left undecayed where asked") {
  const nn::SgdOptions options{.learning_rate = 0.25, .weight_decay = 0.5, .decay_vectors = false};
  Problem vector{{2}}, matrix{{2, 1}};
  nn::sgd(options).minimize(vector.replica, vector.loss());
  nn::sgd(options).minimize(matrix.replica, matrix.loss());
  CHECK(vector.after(2, 0, 4)[0] == Approx(1));
  CHECK(matrix.after(2, 0, 4)[0] == Approx(0.75));
}

TEST_CASE("minimize leaves one all-reduce of the mean for each variable, named after it") {
  rp::Graph graph{2, 4};
  rp::ReplicaContext replica{graph};
  const auto scope = replica.scope("net");
  const auto x = nn::linear(replica, Matrix{input(graph, {rp::DType::float32, {4, 3}}, 0)}, "fc", {.features = 2});
  nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, rp::mean(x));
  CHECK(placeholders(graph) == std::vector<std::string>{"net.fc.bias/gradient", "net.fc.weight/gradient"});
  for (const auto& node : graph.nodes())
    if (const auto* placeholder = node.get<rp::detail::Placeholder>()) {
      CHECK(placeholder->kind == rp::detail::CollectiveKind::all_reduce);
      CHECK(placeholder->reduction == rp::Reduction::mean);
      CHECK(node.where.text().starts_with("test_optimizer.cpp:"));
    }
  REQUIRE(graph.variables().size() == 4);
  CHECK(graph.variables()[2].name == "net.fc.weight/momentum");
  CHECK(graph.variables()[2].kind == rp::VariableKind::mirrored);
  CHECK_FALSE(graph.variables()[2].trainable);
}

TEST_CASE("minimize takes only trainable variables that the step has read, or those given") {
  rp::Graph graph{0, 2};
  rp::ReplicaContext replica{graph};
  const auto a = replica.variable<float>("a", {}, rp::Initializer::ones());
  const auto b = replica.variable<float>("b", {}, rp::Initializer::ones());
  replica.variable<float>("never read", {}, rp::Initializer::ones());
  const auto fixed = replica.variable<float>("fixed", {}, rp::Initializer::ones(), {.trainable = false});
  const auto loss = a.read() * b.read() * fixed.read();
  nn::sgd({}).minimize(replica, loss, std::vector{b});
  CHECK(placeholders(graph) == std::vector<std::string>{"b/gradient"});
  nn::sgd({}).minimize(replica, loss);
  CHECK(placeholders(graph) == std::vector<std::string>{"b/gradient", "a/gradient", "b/gradient"});
}

TEST_CASE("a second minimize of a step sees the values that its loss read") {
  Problem problem{{1}};
  const auto early = problem.loss() * 0.5f;  // reads w before the first update
  nn::sgd({.learning_rate = 1}).minimize(problem.replica, problem.loss());
  const auto late = problem.loss() * 2.0f;  // reads w after it
  nn::sgd({.learning_rate = 1}).minimize(problem.replica, early);
  CHECK(problem.after(10, 0, 3)[0] == Approx(10 - 3 - 1.5));
  nn::sgd({.learning_rate = 1}).minimize(problem.replica, late);
  CHECK(problem.after(10, 0, 3)[0] == Approx(10 - 3 - 1.5 - 6));
}

TEST_CASE("a gradient is that of the value which the loss read, whatever was assigned before and after") {
  const nn::Sgd sgd = nn::sgd({.learning_rate = 0.5});
  Problem again{{1}};
  again.w.assign(again.w.read() * 2.0f);
  const auto first = again.loss(), second = again.loss() * 3.0f;
  sgd.minimize(again.replica, first);
  sgd.minimize(again.replica, second);
  CHECK(again.after(1, 0, 1)[0] == 2 - 0.5 - 1.5);

  Problem ahead{{1}};
  const auto halved = ahead.w.read() * 0.5f;
  const auto loss = ahead.loss();
  ahead.w.assign(halved);
  sgd.minimize(ahead.replica, loss);
  CHECK(ahead.after(1, 0, 1)[0] == 0.5 - 0.5);

  Problem copied{{1}};
  const auto target = copied.replica.variable<float>("target", {1}, rp::Initializer::ones());
  const auto both = copied.loss() * 4.0f + rp::sum(target.read());
  target.assign(copied.w.read());  // behind the loss, which did not read it as the target
  sgd.minimize(copied.replica, both, {target});
  CHECK(copied.after(3, 1, 1)[1] == 3 - 0.5);
}

TEST_CASE("an updated variable is a variable: no gradient passes through the update of one to another") {
  Problem problem{{1}};
  const auto d = problem.replica.variable<float>("d", {1}, rp::Initializer::ones());
  const auto loss = [&] { return rp::sum(d.read() * problem.w.read()); };
  nn::sgd({.learning_rate = 0.5}).minimize(problem.replica, loss(), {d});        // d becomes d - w / 2
  nn::sgd({.learning_rate = 1}).minimize(problem.replica, loss(), {problem.w});  // by d, and not by d - w
  const auto after = problem.after(2, 3, 0);
  CHECK(after == std::vector<double>{2 - (3 - 1), 3 - 1});
}

TEST_CASE("the gradient of a loss is by the value that it reads, whatever newer one it reads behind an end of gradients") {
  const nn::Sgd sgd = nn::sgd({.learning_rate = 1});
  Problem through{{1}};  // d holds the newer w
  const auto d = through.replica.variable<float>("d", {1}, rp::Initializer::ones());
  const auto x = through.w.read();
  through.w.assign(x + 1.0f);
  d.assign(d.read() + through.w.read());
  sgd.minimize(through.replica, rp::sum(x * d.read()), {through.w, d});
  CHECK(through.after(2, 10, 0) == std::vector<double>{3 - 13, 13 - 2});

  Problem stopped{{1}};
  const auto q = stopped.w.read();
  sgd.minimize(stopped.replica, rp::sum(q));
  const auto difference = q - rp::stop_gradient(stopped.w.read());
  sgd.minimize(stopped.replica, rp::sum(difference * difference));
  CHECK(stopped.after(2, 0, 0) == std::vector<double>{1 - 2});
}

TEST_CASE("one value that is assigned to two variables is two: each has the gradient of what reads it") {
  Problem problem{{1}};
  const auto b = problem.replica.variable<float>("b", {1}, rp::Initializer::ones());
  const auto sum = problem.w.read() + b.read();
  problem.w.assign(sum);
  b.assign(sum);
  nn::sgd({.learning_rate = 1}).minimize(problem.replica, rp::sum(problem.w.read() * 2.0f + b.read() * 3.0f));
  CHECK(problem.after(10, 20, 0) == std::vector<double>{30 - 2, 30 - 3});

  Problem copied{{1}};
  const auto copy = copied.replica.variable<float>("copy", {1}, rp::Initializer::ones());
  copy.assign(copied.w.read());
  nn::sgd({.learning_rate = 1}).minimize(copied.replica, rp::sum(copied.w.read() * 2.0f + copy.read() * 3.0f));
  CHECK(copied.after(10, 20, 0) == std::vector<double>{10 - 2, 10 - 3});
}

TEST_CASE("a variable whose first read is of what the step assigned is trained as any other") {
  Problem problem{{1}};
  problem.w.assign(Matrix{rp::full<float>(problem.replica, {1}, 2.0f)});
  nn::sgd({.learning_rate = 1}).minimize(problem.replica, rp::sum(problem.w.read() * problem.w.read() * 3.0f));
  CHECK(problem.after(7, 0, 0) == std::vector<double>{2 - 12});
}

TEST_CASE("wrap_optimizer averages the gradients for an optimizer that knows nothing of replicas") {
  Problem problem{{1}};
  nn::wrap_optimizer(SignDescent{0.5f}).minimize(problem.replica, problem.loss());
  CHECK(placeholders(problem.graph) == std::vector<std::string>{"w/gradient"});
  CHECK(problem.after(2, 0, -7)[0] == Approx(2.5));
}

TEST_CASE("first values that cannot be drawn are refused with the variable and its line") {
  Problem problem{{2}};
  const auto declared = [&](rp::Initializer initializer) { problem.replica.variable<float>("v", {3}, initializer); };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const auto& bad :
       {rp::Initializer::normal(0, -1), rp::Initializer::normal(nan, 1), rp::Initializer::normal(0, nan), rp::Initializer::normal(0, infinity)})
    CHECK_THROWS_WITH(declared(bad), Contains("the variable \"v\" at test_optimizer.cpp:") && Contains(" is to begin normal with mean "));
  for (const auto& bad : {rp::Initializer::uniform(1, -1), rp::Initializer::uniform(nan, 1), rp::Initializer::uniform(0, nan)})
    CHECK_THROWS_WITH(declared(bad), Contains("the variable \"v\" at test_optimizer.cpp:") && Contains("the lower one first"));
  CHECK_NOTHROW(declared(rp::Initializer::normal(1, 0)));
}

TEST_CASE("a loss that is no number, no variable, or options that cannot be are refused") {
  Problem problem{{2}};
  const auto vector = problem.w.read() * 2.0f;
  CHECK_THROWS_WITH(nn::sgd({}).minimize(problem.replica, vector),
                    Contains("must be one number, found float32[2]") && Contains("test_optimizer.cpp:"));
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  CHECK_THROWS_WITH(nn::sgd({}).minimize(replica, rp::full<float>(graph, {}, 1)),
                    Contains("found no trainable variable"));
  CHECK_THROWS_WITH(nn::sgd({.momentum = -1}), Contains("must not be negative"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(nn::sgd({.learning_rate = nan}), Contains("learning_rate is nan: it must be a finite number"));
  CHECK_THROWS_WITH(nn::sgd({.weight_decay = std::numeric_limits<double>::infinity()}), Contains("weight_decay is inf"));
  const auto local = problem.replica.variable<float>("local", {}, rp::Initializer::ones(), {rp::VariableKind::replica_local});
  CHECK_THROWS_WITH(nn::sgd({}).minimize(problem.replica, local.read() * 2.0f, {local}),
                    Contains("minimize at test_optimizer.cpp:") && Contains("was given \"local\", declared at test_optimizer.cpp:") &&
                        Contains("only mirrored variables can be trained on all replicas; declare it without VariableKind::replica_local, or"));
  CHECK_THROWS_WITH(nn::sgd({.nesterov = true}), Contains("nesterov needs a momentum"));
}

TEST_CASE("gradients that are not one for each variable, of its shape, are refused") {
  Problem p{{2, 3}};
  const auto loss = p.loss();
  const auto apply = [&](const std::vector<Matrix>& gradients) {
    nn::sgd({.learning_rate = 0.1}).apply_gradients(p.replica, std::vector{p.w, p.w}, gradients);
  };
  const Matrix whole = rp::gradient(loss, p.w.read());
  CHECK_THROWS_WITH(apply({whole}), "found 1 gradients for 2 variables at test_optimizer.cpp:" + std::to_string(__LINE__ - 3) +
                                        ": give one for each, in the same order");
  CHECK_THROWS_WITH(apply({whole, rp::sum(whole)}), Contains("for \"w\" is float32[], but the variable is float32[2, 3] (declared at test_optimizer.cpp:") &&
                                                        Contains("): give a gradient of its shape"));
  CHECK_THROWS_WITH(nn::mean_over_replicas(std::vector{p.w}, std::vector<Matrix>{}), Contains("found 0 gradients for 1 variables"));
}

TEST_CASE("a loss of another type than the variables trains none of them, and is told so") {
  Problem p{{2}};
  const auto narrow = rp::cast<rp::bfloat16>(p.loss());
  CHECK_THROWS_WITH(nn::sgd({.learning_rate = 0.1}).minimize(p.replica, narrow),
                    Contains("found no trainable variable of bfloat16, the loss's type") && Contains("cast the loss to the variables' type"));
}

TEST_CASE("a scope without variables is refused, with the name of a variable that there is") {
  Problem p{{2}};
  const auto loss = p.loss();
  CHECK_THROWS_WITH(nn::sgd({.learning_rate = 0.1}).minimize(p.replica, loss, p.replica.trainable_variables<float>("discriminator")),
                    Contains("replica 0: minimize at test_optimizer.cpp:") && Contains("was given no variables") && Contains("float32, \"w\" first") &&
                        Contains("check its name"));
}

TEST_CASE("a step with two networks trains the one whose scope is named") {
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const auto layer = [&](const char* scope_name) {
    const auto scope = replica.scope(scope_name);
    return replica.variable<float>("w", {1}, rp::Initializer::ones()).read();
  };
  rp::Tensor<float> total = layer("generator") + layer("generator_too");
  total = total + layer("discriminator");
  CHECK(replica.trainable_variables<float>().size() == 3);
  const auto chosen = replica.trainable_variables<float>("generator");
  REQUIRE(chosen.size() == 1);
  CHECK(chosen[0].name() == "generator.w");
  nn::sgd({}).minimize(replica, rp::sum(total), chosen);
  CHECK(placeholders(graph) == std::vector<std::string>{"generator.w/gradient"});
}

}  // namespace test_optimizer
