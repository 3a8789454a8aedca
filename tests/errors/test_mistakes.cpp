// SPDX-License-Identifier: Apache-2.0
// Mistakes in a step function are reported at the user's line, while the graph is built. (Mistakes between replicas:
// tests/resolve; of inputs and deployments: tests/replicate and tests/input; of types: tests/compile_fail.)
#include <catch2/catch.hpp>

#include <source_location>
#include <string>

#include <replicator/graph/gradients.hpp>
#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/stop_gradient.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace test_mistakes {

using namespace replicator;
using namespace replicator::detail;
using Where = std::source_location;
using T = Tensor<float>;

namespace {

struct Mistake {
  std::string line;     // "test_mistakes.cpp:31"
  std::string message;  // what was thrown, or nothing
};

// step(x [4, 2], y [3], at) on replica 1 of 2, where `at` is set to the line of the mistake.
template <class Step>
Mistake mistake(Step step) {
  Graph graph{1, 2};
  const T x{graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{4, 2}}}, {}, {}}))};
  const T y{graph.tensor(graph.add({Input{Input::Source::element, 1}, {}, {{DType::float32, Shape{3}}}, {}, {}}))};
  Where at;
  std::string message;
  try {
    step(x, y, at);
  } catch (const BuildError& error) {
    message = error.what();
  }
  return {Location{at}.text(), message};
}

}  // namespace

TEST_CASE("operators on shapes that do not broadcast name both and the line") {
  const auto found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)(x + y); });
  CHECK(found.message == "replica 1: operator+ at " + found.line +
                             ": found float32[4, 2] and float32[3], whose shapes cannot be broadcast together: make the extents equal or 1");
}

TEST_CASE("an array that was moved away is refused as a constant, and as a first value") {
  Array<float> given{{2}, {1, 2}};
  const AnyArray taken = given.any();
  AnyArray gone = taken;
  const AnyArray kept = std::move(gone);
  const std::string why = ": the array has no memory: it was made without a shape, or moved from";
  const auto found = mistake([&](T x, T, Where& at) { at = Where::current(), (void)constant_node(x.graph(), gone, at); });
  CHECK(found.message == "constant at " + found.line + ", which every replica makes from a copy of its own" + why);
  CHECK_THROWS_WITH(Initializer::value(gone), "Initializer::value" + why);
}

TEST_CASE("extents whose product overflows are refused as too large, and do not wrap to zero") {
  constexpr std::int64_t large = std::int64_t{1} << 32;
  CHECK_THAT(mistake([&](T x, T, Where&) { (void)reshape(x, {large, large, -1}); }).message, Catch::Contains("the extent -1 cannot be found") && Catch::Contains("9223372036854775807"));
  Graph of_many{0, 64};
  const auto huge = of_many.tensor(of_many.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{std::int64_t{1} << 58}}}, {}, {}}));
  CHECK_THROWS_AS(placeholder_node(huge, {CollectiveKind::all_gather, Reduction::sum, 0, false, {}}, {}), BuildError);
}

TEST_CASE("map tells the line of its call") {
  const auto found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)map([](auto a, auto b) { return a * b; }, x, y); });
  CHECK(found.message == "replica 1: map at " + found.line +
                             ": found float32[4, 2] and float32[3], whose shapes cannot be broadcast together: make the extents equal or 1");
}

TEST_CASE("elementwise operations on shapes that do not broadcast name themselves") {
  const std::string found_both = ": found float32[4, 2] and float32[3], whose shapes cannot be broadcast together: make the extents equal or 1";
  auto found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)select(x < x, x, y); });
  CHECK(found.message == "replica 1: select at " + found.line +
                             ": found bool[4, 2] and float32[4, 2] and float32[3], whose shapes cannot be broadcast together: make the extents equal or 1");
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)select(x < x, 0, y); });
  CHECK_THAT(found.message, Catch::StartsWith("replica 1: select at " + found.line + ": found bool[4, 2] and float32[3]"));
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)select(x < x, y, 0); });
  CHECK_THAT(found.message, Catch::StartsWith("replica 1: select at " + found.line + ": found bool[4, 2] and float32[3]"));
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)minimum(x, y); });
  CHECK(found.message == "replica 1: minimum at " + found.line + found_both);
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)maximum(x, y); });
  CHECK(found.message == "replica 1: maximum at " + found.line + found_both);
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)pow(x, y); });
  CHECK(found.message == "replica 1: pow at " + found.line + found_both);
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)(x <= y); });
  CHECK(found.message == "replica 1: operator<= at " + found.line + found_both);
  found = mistake([](T x, T y, Where& at) { at = Where::current(), x *= y; });
  CHECK(found.message == "replica 1: operator*= at " + found.line + found_both);
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)(cast<std::int32_t>(x) % cast<std::int32_t>(y)); });
  CHECK_THAT(found.message, Catch::StartsWith("replica 1: operator% at " + found.line));
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)(x > 0 && y > 0); });
  CHECK_THAT(found.message, Catch::StartsWith("replica 1: operator&& at " + found.line));
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)normalise(x, {x, x}, y, y); });
  CHECK(found.message == "replica 1: normalise at " + found.line + ": found float32[3] and float32[4, 2], whose shapes cannot be broadcast together: make the extents equal or 1");
}

TEST_CASE("a product of matrices that do not fit names both shapes and the line") {
  const auto found = mistake([](T x, T, Where& at) { at = Where::current(), (void)matmul(x, x); });
  CHECK_THAT(found.message, Catch::StartsWith("replica 1: matmul at " + found.line + ": "));
  CHECK_THAT(found.message, Catch::Contains("[4, 2]"));
}

TEST_CASE("an axis that does not exist, or is named twice") {
  auto found = mistake([](T x, T, Where& at) { at = Where::current(), (void)sum(x, {2}); });
  CHECK(found.message == "sum at " + found.line + ": the axis 2 does not exist in the shape [4, 2]");
  found = mistake([](T x, T, Where& at) { at = Where::current(), (void)mean(x, {-3}); });
  CHECK(found.message == "mean at " + found.line + ": the axis -3 does not exist in the shape [4, 2]");
  found = mistake([](T x, T, Where& at) { at = Where::current(), (void)max(x, {1, -1}); });
  CHECK(found.message == "max at " + found.line + ": an axis is named twice for the shape [4, 2]");
}

TEST_CASE("the extremum of no elements") {
  auto found = mistake([](T x, T, Where& at) { at = Where::current(), (void)max(slice(x, {0, 0}, {4, 0}), {1}); });
  CHECK(found.message == "replica 1: reduce at " + found.line +
                             ": asked for the max over no elements, of the shape [4, 0]: give the reduced axes an extent of at least 1");
  found = mistake([](T x, T, Where& at) { at = Where::current(), (void)min(slice(x, {0, 0}, {0, 2}), {1}); });
  CHECK(found.message.empty());  // no minimum is asked for
}

TEST_CASE("an expression of more instructions than can be numbered") {
  const auto found = mistake([](T x, T, Where& at) {
    const auto sum_of_many = [](auto v) {
      auto sum = v;
      for (int i = 0; i < 20000; ++i) sum = sum + (v + i);
      return sum;
    };
    at = Where::current(), (void)map(sum_of_many, x);
  });
  CHECK(found.message == "map at " + found.line + ": an elementwise expression can have 32768 instructions: share the work among several rp::map");
}

TEST_CASE("a shape of another number of elements") {
  const auto found = mistake([](T x, T, Where& at) { at = Where::current(), (void)reshape(x, {3, 3}); });
  CHECK_THAT(found.message, Catch::Contains(found.line) && Catch::Contains("[3, 3]") && Catch::Contains("[4, 2]"));
}

TEST_CASE("a tensor of which no memory could hold the elements, broadcast or declared") {
  constexpr std::int64_t many = std::int64_t{1} << 40;
  const auto column = [](T x) { return T{x.graph().tensor(x.graph().add({Input{}, {}, {{DType::float32, Shape{many, 1}}}, {}, {}}))}; };
  const auto row = [](T x) { return T{x.graph().tensor(x.graph().add({Input{}, {}, {{DType::float32, Shape{1, many}}}, {}, {}}))}; };
  const std::string absurd = " a tensor of shape [1099511627776, 1099511627776] has more than 2^59 - 1 elements: one of these extents must be wrong";
  auto found = mistake([&](T x, T, Where& at) { at = Where::current(), (void)(column(x) + row(x)); });
  CHECK_THAT(found.message, Catch::Contains(" at " + found.line + ":") && Catch::Contains(absurd));
  found = mistake([&](T x, T, Where& at) { at = Where::current(), (void)matmul(column(x), row(x)); });
  CHECK_THAT(found.message, Catch::Contains(" at " + found.line + ":") && Catch::Contains(absurd));
  found = mistake([](T x, T, Where& at) {
    ReplicaContext replica{x.graph()};
    at = Where::current(), (void)replica.variable<float>("w", {many, many}, Initializer::zeros());
  });
  CHECK_THAT(found.message, Catch::Contains("\"w\"") && Catch::Contains(found.line) && Catch::Contains(absurd));
}

TEST_CASE("the line is told once, whoever finds the mistake") {
  auto found = mistake([](T x, T, Where& at) { at = Where::current(), (void)reshape(x, {3, 3}); });
  CHECK(found.message == "replica 1: reshape at " + found.line + ": asked for the shape [3, 3] of 9 elements, found float32[4, 2] of 8");
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)concat({x, y}, 0); });
  CHECK(found.message == "replica 1: concat at " + found.line + ": found float32[4, 2] and float32[3]: all but the extent of axis 0 must be equal");
}

TEST_CASE("a loss that no variable has a part in") {
  const auto found = mistake([](T x, T, Where& at) {
    ReplicaContext replica{x.graph()};
    const auto w = replica.variable<float>("fc.weight", {2}, Initializer::zeros());
    const auto y = x * w.read();
    at = Where::current(), (void)nn::variable_gradients(mean(x) + mean(stop_gradient(y)), {w}, at);
  });
  CHECK(found.message == "replica 1: the loss minimised at " + found.line +
                             " does not depend on any of the 1 variables that are to be trained "
                             "(\"fc.weight\" is one): compute it from the outputs of the layers, without a rp::stop_gradient between; "
                             "if a replica has nothing to add, use 0 times such a loss");
}

TEST_CASE("a loss behind an argmax or a comparison, which hand no gradient on") {
  auto found = mistake([](T x, T, Where& at) {
    ReplicaContext replica{x.graph()};
    const auto w = replica.variable<float>("fc.weight", {2}, Initializer::zeros());
    const auto scores = x * w.read();
    at = Where::current(), (void)nn::variable_gradients(mean(cast<float>(argmax(scores))), {w}, at);
  });
  CHECK_THAT(found.message, Catch::StartsWith("replica 1: the loss minimised at " + found.line +
                                              " has no gradient for any of the 1 variables that are to be trained (\"fc.weight\" is one): it ends at ") &&
                                Catch::Contains(" at " + found.line + ", where the derivative is 0 or does not exist") &&
                                Catch::EndsWith("minimise the input of that operation"));
  found = mistake([](T x, T, Where& at) {
    ReplicaContext replica{x.graph()};
    const auto w = replica.variable<float>("fc.weight", {2}, Initializer::zeros());
    const auto y = x * w.read();
    at = Where::current(), (void)nn::variable_gradients(mean(map([](auto a) { return select(a > 0, 1.0f, 0.0f); }, y)), {w}, at);
  });
  CHECK_THAT(found.message, Catch::Contains("has no gradient for any of the 1 variables") && Catch::Contains("map#"));
}

TEST_CASE("one variable that the gradient comes to is enough: the others' are zeros") {
  Graph graph{1, 2};
  ReplicaContext replica{graph};
  const auto w = replica.variable<float>("w", {2}, Initializer::zeros()), v = replica.variable<float>("v", {3}, Initializer::zeros());
  const auto loss = sum(w.read()) + mean(cast<float>(argmax(v.read())));
  const auto found = nn::variable_gradients(loss, {w, v});
  CHECK(found[0].shape() == Shape{2});
  CHECK(found[1].shape() == Shape{3});
}

TEST_CASE("a variable of another replica's graph has no gradient here") {
  Graph other{0, 2};
  ReplicaContext there{other};
  const auto theirs = there.variable<float>("w", {2}, Initializer::zeros());
  const auto found = mistake([&](T x, T, Where& at) {
    ReplicaContext replica{x.graph()};
    const auto w = replica.variable<float>("w", {2}, Initializer::zeros());
    at = Where::current(), (void)nn::variable_gradients(mean(x * w.read()), {theirs}, at);
  });
  CHECK_THAT(found.message, Catch::Contains("the gradient at " + found.line));
}

TEST_CASE("a variable without a name") {
  const auto found = mistake([](T x, T, Where& at) {
    ReplicaContext replica{x.graph()};
    at = Where::current(), (void)replica.variable<float>("", {2}, Initializer::zeros());
  });
  CHECK(found.message == "the variable at " + found.line + " was given \"\" as its name: checkpoints and messages need one");
}

TEST_CASE("a variable whose name is not UTF-8") {
  const auto found = mistake([](T x, T, Where& at) {
    ReplicaContext replica{x.graph()};
    at = Where::current(), (void)replica.variable<float>(
                               "Gr\xf6\xdf"
                               "e",
                               {2}, Initializer::zeros());  // Latin-1
  });
  CHECK(found.message == "the variable \"Gr\\xf6\\xdfe\" at " + found.line + " has a name that is not UTF-8, so no file could keep it: write the name in UTF-8");
}

TEST_CASE("a slice, a transposition, a concatenation that cannot be") {
  auto found = mistake([](T x, T, Where& at) { at = Where::current(), (void)slice(x, {0, 1}, {5, 2}); });
  CHECK_THAT(found.message, Catch::Contains("slice at " + found.line));
  found = mistake([](T x, T, Where& at) { at = Where::current(), (void)transpose(x, {0, 0}); });
  CHECK_THAT(found.message, Catch::Contains("transpose at " + found.line));
  found = mistake([](T x, T y, Where& at) { at = Where::current(), (void)concat({x, y}, 0); });
  CHECK_THAT(found.message, Catch::Contains("concat at " + found.line));
}

TEST_CASE("a dropout rate that is none") {
  const auto found = mistake([](T x, T, Where& at) { at = Where::current(), (void)dropout(x, 1); });
  CHECK_THAT(found.message, Catch::StartsWith("dropout at " + found.line + ": asked for the rate 1, which must be at least 0 and less than 1"));
}

TEST_CASE("a value of another shape is not assigned: the declaration's line and the assignment's") {
  Where declared;
  const auto found = mistake([&](T x, T y, Where& at) {
    ReplicaContext replica{x.graph()};
    declared = Where::current();  // the line before
    auto w = replica.variable<float>("fc.weight", {4, 2}, Initializer::zeros());
    at = Where::current(), w.assign(y);
  });
  CHECK(found.message == "replica 1: \"fc.weight\" is float32[4, 2] (declared at test_mistakes.cpp:" + std::to_string(declared.line() + 1) +
                             "), but the value assigned at " + found.line +
                             " is float32[3]: assign a value of the variable's type");
}

TEST_CASE("a variable asked for with two shapes names both lines") {
  Where first;
  const auto found = mistake([&](T x, T, Where& at) {
    ReplicaContext replica{x.graph()};
    const auto layer = replica.scope("fc");
    first = Where::current(), replica.variable<float>("bias", {2}, Initializer::zeros());
    at = Where::current(), replica.variable<float>("bias", {3}, Initializer::zeros());
  });
  CHECK(found.message == "the variable \"fc.bias\" was asked for as mirrored float32[3] at " + found.line +
                             ", but it was declared as mirrored float32[2] at " + Location{first}.text() +
                             ": give the two different names or the same type");
}

TEST_CASE("a variable asked for with two initialisers names both lines") {
  Where first;
  const auto asked = [&](Initializer one, Initializer other) {
    return mistake([&](T x, T, Where& at) {
      ReplicaContext replica{x.graph()};
      first = Where::current(), replica.variable<float>("w", {2}, one);
      at = Where::current(), replica.variable<float>("w", {2}, other);
    });
  };
  const auto values = [](float a, float b) { return Initializer::value(Array<float>{{2}, {a, b}}); };
  const auto found = asked(Initializer::normal(0, 0.02), Initializer::uniform(-0.5, 0.5));
  CHECK(found.message == "the variable \"w\" was asked for as uniform from -0.5 to 0.5 at " + found.line +
                             ", but it was declared as normal with mean 0 and standard deviation 0.02 at " + Location{first}.text() +
                             ": give the two different names or the same initialiser");
  CHECK_THAT(asked(values(1, 2), values(1, 3)).message, Catch::Contains("asked for as the values of another array at "));
  CHECK_THAT(asked(values(1, 2), Initializer::ones()).message, Catch::Contains("was declared as the values of an array at "));
  CHECK(asked(values(1, 2), values(1, 2)).message.empty());
  CHECK(asked(Initializer::constant(1), Initializer::ones()).message.empty());
}

TEST_CASE("a tensor of another replica's graph") {
  Graph other{0, 2};
  const T stranger{other.tensor(other.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{4, 2}}}, {}, {}}))};
  const auto found = mistake([&](T x, T, Where& at) { at = Where::current(), (void)(x + stranger); });
  CHECK_THAT(
      found.message,
      Catch::Contains("operator+ at " + found.line +
                      ": a tensor of another replica's graph was used, or of an earlier trace (replica0/input#0); every step_fn must use only its own arguments, "
                      "and ask for its variables by name"));
}

TEST_CASE("a tensor of a trace that is over, or whose graph is gone, names the operation that uses it") {
  const auto one_input = [](Graph& graph) { return T{graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{4, 2}}}, {}, {}}))}; };
  Graph over{0, 2};
  const T kept = one_input(over);
  over.set_complete();
  auto found = mistake([&](T, T, Where& at) { at = Where::current(), (void)exp(kept); });
  CHECK_THAT(found.message, Catch::StartsWith("exp at " + found.line + ": a tensor of another replica's graph was used, or of an earlier trace (replica0/input#0)"));
  const T gone = [&] {
    Graph graph{0, 2};
    return one_input(graph);
  }();
  found = mistake([&](T x, T, Where& at) { at = Where::current(), (void)(gone * x); });
  CHECK_THAT(found.message, Catch::StartsWith("operator* at " + found.line + ": a tensor or a variable was used that was kept from an earlier trace"));
  found = mistake([&](T x, T, Where& at) { at = Where::current(), (void)(x - gone); });
  CHECK_THAT(found.message, Catch::StartsWith("operator- at " + found.line + ": a tensor or a variable was used that was kept from an earlier trace"));
  found = mistake([&](T x, T, Where& at) { at = Where::current(), (void)(gone < x); });
  CHECK_THAT(found.message, Catch::StartsWith("operator< at " + found.line + ": a tensor or a variable was used that was kept from an earlier trace"));
  found = mistake([&](T, T, Where& at) { at = Where::current(), (void)(gone < 1.0f); });
  CHECK_THAT(found.message, Catch::StartsWith("operator< at " + found.line + ": a tensor or a variable was used that was kept from an earlier trace"));
  found = mistake([&](T, T, Where& at) { at = Where::current(), (void)(1.0f - gone); });
  CHECK_THAT(found.message, Catch::StartsWith("operator- at " + found.line + ": a tensor or a variable was used that was kept from an earlier trace"));
  found = mistake([&](T, T, Where& at) { at = Where::current(), (void)ceil(gone); });
  CHECK_THAT(found.message, Catch::StartsWith("ceil at " + found.line + ": a tensor or a variable was used that was kept from an earlier trace"));
  found = mistake([&](T x, T, Where& at) { at = Where::current(), (void)select(x < x, gone, x); });
  CHECK_THAT(found.message, Catch::StartsWith("select at " + found.line + ": a tensor or a variable was used that was kept from an earlier trace"));
}

TEST_CASE("a tensor taken for one of another type") {
  const auto found = mistake([](T x, T, Where&) { (void)Tensor<double>{x.any()}; });
  CHECK(found.message == "a tensor of float32[4, 2] was used as float64: cast it with rp::cast");
}

namespace {
struct NoRule {
  static constexpr std::string_view name = "no_rule";
  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
};
}  // namespace

TEST_CASE("a gradient through an operation without a rule names both lines and the mend, which works") {
  Where used;
  const auto found = mistake([&](T x, T, Where& at) {
    used = Where::current();
    const T y{compute(x.graph(), NoRule{}, {x}, used)};
    at = Where::current(), (void)gradient(y * 2.0f, x);
  });
  CHECK(found.message == "replica 1: the gradient asked for at " + found.line + " passes through no_rule at " + Location{used}.text() +
                             ", which has no gradient rule: give the operation one, or wrap its input in rp::stop_gradient");
  CHECK(mistake([&](T x, T, Where&) { (void)gradient(T{compute(x.graph(), NoRule{}, {stop_gradient(x)}, {})} * x, x); }).message == "");
}

}  // namespace test_mistakes
