// SPDX-License-Identifier: Apache-2.0
// Gradients of expressions, broadcasts and collectives.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/ops/stop_gradient.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../support/differences.hpp"
#include "../support/together.hpp"
#include "../support/told.hpp"

namespace test_gradients {

using namespace replicator;
using namespace replicator::detail;
using test::collective_error;
using test::run_together;

namespace {

// Smooth operations of an expression, drawn; x and y stay in (-1, 1).
AnyTensor smooth_function(const std::vector<unsigned>& code, std::span<const AnyTensor> inputs) {
  Expression e;
  e.compute = DType::float64;
  e.inputs = static_cast<std::uint16_t>(inputs.size());
  std::vector<std::uint16_t> pool;
  for (std::uint16_t i = 0; i < e.inputs; ++i) pool.push_back(e.input(i));
  const auto pick = [&](unsigned index) { return pool[index % pool.size()]; };
  for (const auto word : code) {
    const auto a = pick(word / 16), b = pick(word / 256), c = pick(word / 4096);
    switch (word % 13) {
      case 0:
        pool.push_back(e.apply(ScalarOp::add, a, b));
        break;
      case 1:
        pool.push_back(e.apply(ScalarOp::subtract, a, b));
        break;
      case 2:
        pool.push_back(e.apply(ScalarOp::multiply, a, b));
        break;
      case 3:
        pool.push_back(
            e.apply(ScalarOp::divide, a, e.apply(ScalarOp::add, e.apply(ScalarOp::multiply, b, b), e.constant(2))));
        break;
      case 4:
        pool.push_back(e.apply(ScalarOp::hyperbolic_tangent, a));
        break;
      case 5:
        pool.push_back(e.apply(ScalarOp::sine, a));
        break;
      case 6:
        pool.push_back(e.apply(ScalarOp::cosine, a));
        break;
      case 7:
        pool.push_back(e.apply(ScalarOp::exponential, e.apply(ScalarOp::hyperbolic_tangent, a)));
        break;
      case 8:
        pool.push_back(
            e.apply(ScalarOp::logarithm, e.apply(ScalarOp::add, e.apply(ScalarOp::multiply, a, a), e.constant(1))));
        break;
      case 9:
        pool.push_back(
            e.apply(ScalarOp::square_root, e.apply(ScalarOp::add, e.apply(ScalarOp::multiply, a, a), e.constant(1))));
        break;
      case 10:
        pool.push_back(e.apply(ScalarOp::negate, a));
        break;
      case 11:
        pool.push_back(e.apply(ScalarOp::multiply_add, a, b, c));
        break;
      default:
        pool.push_back(e.apply(ScalarOp::power,
                               e.apply(ScalarOp::add, e.apply(ScalarOp::multiply, a, a), e.constant(1)),
                               e.apply(ScalarOp::hyperbolic_tangent, b)));
    }
    pool.back() = e.apply(ScalarOp::hyperbolic_tangent, pool.back());  // keeps chains of products small
  }
  e.outputs = {pool.back()};
  return map_node(inputs[0].graph(), std::move(e), inputs, DType::float64, {});
}

// Shapes that broadcast together.
std::vector<AnyArray> draw_inputs(std::size_t count) {
  const auto rank = *rc::gen::inRange<std::size_t>(0, 4);
  Shape whole;
  for (std::size_t axis = 0; axis < rank; ++axis) whole.push_back(*rc::gen::inRange<std::int64_t>(1, 4));
  std::vector<AnyArray> inputs;
  for (std::size_t i = 0; i < count; ++i) {
    Shape shape;
    for (std::size_t axis = *rc::gen::inRange<std::size_t>(0, rank + 1); axis < rank; ++axis)
      shape.push_back(*rc::gen::arbitrary<bool>() ? 1 : whole[axis]);
    inputs.push_back(test::random_array<double>(shape, 50 + i).any());
  }
  return inputs;
}

// Its gradient gives one to each input that is wanted, however many they are.
struct SumOfMany {
  static constexpr std::string_view name = "sum_of_many";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext& at) const {
    std::vector<AnyTensor> result;
    for (std::size_t i = 0; i < at.inputs.size(); ++i) result.push_back(at.wanted[i] ? at.upstream[0] : AnyTensor{});
    return result;
  }
};

// Its gradient rule gives the gradients of the first inputs only.
struct TooFew {
  static constexpr std::string_view name = "too_few";
  std::int64_t given = 0;
  template <class V>
  void describe(V& v) const {
    v("given", given);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext& at) const { return std::vector<AnyTensor>(static_cast<std::size_t>(given), at.upstream[0]); }
};

// Its gradient rule gives one gradient too many.
struct OneTooMany {
  static constexpr std::string_view name = "one_too_many";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext& at) const { return {at.upstream[0], at.upstream[0]}; }
};

// Its gradient rule gives the gradient of one element.
struct OneElement {
  static constexpr std::string_view name = "one_element";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext& at) const { return {sum(Tensor<double>{at.upstream[0]}, {0})}; }
};

// Its gradient rule gives float32 for float64.
struct NarrowGradient {
  static constexpr std::string_view name = "narrow_gradient";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext& at) const { return {cast<float>(Tensor<double>{at.upstream[0]})}; }
};

struct WithoutRule {
  static constexpr std::string_view name = "without_rule";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
};
Tensor<double> without_rule(Tensor<double> x) {
  return Tensor<double>{compute(x.graph(), WithoutRule{}, {x}, Location{"ruleless.cpp", 7})};
}

}  // namespace

TEST_CASE(
    "gradients of any smooth expression over inputs broadcast together agree with differences, to the second order") {
  for (const int order : {1, 2})
    REQUIRE(rc::check([order] {
      const auto code = *rc::gen::resize(order == 1 ? 12 : 6,
                                         rc::gen::container<std::vector<unsigned>>(rc::gen::inRange(0u, 65536u)));
      const auto inputs = draw_inputs(*rc::gen::inRange<std::size_t>(1, 4));
      RC_ASSERT(test::gradient_error([&](Graph&, std::span<const AnyTensor> x) { return smooth_function(code, x); },
                                     inputs, order) < 1e-5);
    }));
}

TEST_CASE("of the gradient of what was repeated, factors that do not vary with the repetition are applied to the sum, once") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{3, 2}}, 0)}, upstream{test::input(graph, {DType::float64, Shape{3, 2}}, 1)},
      shift{test::input(graph, {DType::float64, Shape{2}}, 2)}, scale{test::input(graph, {DType::float64, Shape{2}}, 3)};
  const auto y = map([](auto v, auto m, auto s) { return (v - m) * s / (s * s); }, x, shift, scale);
  const auto first = static_cast<std::uint32_t>(graph.nodes().size());
  const auto slope = gradient(sum(y * upstream), shift);
  for (std::uint32_t i = first; i < graph.nodes().size(); ++i)
    if (const auto* reduce = operation_of<Reduce>(graph.node(i))) CHECK(reduce->expression->code.size() == 1);
  const std::vector<AnyArray> at{Array<double>{{3, 2}, {1, 2, 3, 4, 5, 6}}.any(), Array<double>{{3, 2}, {1, 2, 3, 4, 5, -14}}.any(),
                                 Array<double>{{2}, {7, 8}}.any(), Array<double>{{2}, {2, -4}}.any()};
  CHECK(test::doubles(test::evaluate(slope, at)) == std::vector<double>{-4.5, -2});
}

TEST_CASE("the third derivative of x^4 is 24 x, the fifth nothing") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{3}}, 0)};
  auto y = map([](auto a) { return a * a * a * a; }, x);
  std::vector<Tensor<double>> derivatives;
  Tensor<double> current = y;
  for (int order = 1; order <= 5; ++order) derivatives.push_back(current = gradient(current, x));
  const std::vector<AnyArray> at{Array<double>{{3}, {1, -2, 0.5}}.any()};
  const auto third = test::doubles(test::evaluate(derivatives[2], at)),
             fifth = test::doubles(test::evaluate(derivatives[4], at));
  CHECK(third == std::vector<double>{24, -48, 12});
  CHECK(fifth == std::vector<double>{0, 0, 0});
}

TEST_CASE("where a function has a corner the gradient is the one that is written down") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{3}}, 0)},
      y{test::input(graph, {DType::float64, Shape{3}}, 1)};
  const std::vector<AnyArray> at{Array<double>{{3}, {-1, 0, 2}}.any(), Array<double>{{3}, {-1, 1, 1}}.any()};
  const auto slope = [&](Tensor<double> value, Tensor<double> by) {
    return test::doubles(test::evaluate(gradient(value, by), at));
  };
  using V = std::vector<double>;
  CHECK(slope(relu(x), x) == V{0, 0, 1});
  CHECK(slope(abs(x), x) == V{-1, 0, 1});
  CHECK(slope(maximum(x, y), x) == V{1, 0, 1});  // ties go to the left
  CHECK(slope(maximum(x, y), y) == V{0, 1, 0});
  CHECK(slope(minimum(x, y), x) == V{1, 1, 0});
  CHECK(slope(select(x < y, x * 2.0, y * 3.0), x) == V{0, 2, 0});
  CHECK(slope(floor(x), x) == V{0, 0, 0});
  CHECK(slope(sign(x), x) == V{0, 0, 0});
  CHECK(slope(max(maximum(x, -x), {0}), x) == V{0, 0, 1});
}

TEST_CASE("a power has a derivative at 0, to any order") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{3}}, 0)}, y{test::input(graph, {DType::float64, Shape{3}}, 1)};
  const std::vector<AnyArray> at{Array<double>{{3}, {0, 2, -1}}.any(), Array<double>{{3}, {0, 1, 2}}.any()};
  const auto values = [&](Tensor<double> value) { return test::doubles(test::evaluate(value, at)); };
  using V = std::vector<double>;
  CHECK(values(gradient(pow(x, 0), x)) == V{0, 0, 0});
  CHECK(values(gradient(pow(x, 1), x)) == V{1, 1, 1});
  const auto twice = [&](double exponent) { return gradient(gradient(pow(x, exponent), x), x); };
  CHECK(values(twice(1)) == V{0, 0, 0});
  CHECK(values(twice(2)) == V{2, 2, 2});
  CHECK(values(gradient(twice(2), x)) == V{0, 0, 0});
  const auto power = [](auto a, auto b) { return pow(a, b); };
  CHECK(values(gradient(Tensor<double>{map(power, x, y)}, x)) == V{0, 1, -2});  // x^0 is 1 everywhere
  CHECK(values(gradient(Tensor<double>{map(power, x, y * y)}, y))[0] == 0);     // 0^y for y >= 0, as PyTorch
}

TEST_CASE("a gradient rule that gives more gradients than there are inputs is refused, with the operation and its line") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{2}}, 0)};
  const Tensor<double> y{compute(graph, OneTooMany{}, {x}, Location{"rule.cpp", 3})};
  CHECK_THROWS_WITH(gradient(y, x), Catch::Contains("the gradient rule of one_too_many at rule.cpp:3 gives 2 gradients for 1 inputs"));
}

TEST_CASE("a gradient rule that gives too few gradients is refused, unless nobody needs the others") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{2}}, 0)}, z{test::input(graph, {DType::float64, Shape{2}}, 1)};
  const auto of = [&](std::int64_t given, const std::vector<AnyTensor>& inputs) { return Tensor<double>{graph.tensor(add_compute(graph, TooFew{given}, inputs, Location{"rule.cpp", 3}), 0)}; };
  CHECK_THROWS_WITH(gradient(of(0, {x}), x),
                    "replica 0: the gradient rule of too_few at rule.cpp:3 gives 0 gradients for 1 inputs: it must return one tensor for "
                    "each input, in order, and an empty rp::AnyTensor{} where the gradient is zero");
  CHECK_THROWS_WITH(gradient(of(1, {x, z}), z), Catch::Contains("the gradient rule of too_few at rule.cpp:3 gives 1 gradients for 2 inputs"));
  CHECK_NOTHROW(gradient(of(1, {x, z}), x));
  CHECK_NOTHROW(gradient(of(1, {x, cast<std::int32_t>(x)}), x));  // integers have no gradient
}

TEST_CASE("a gradient rule that gives another shape or type than its input's is refused, with the operation and its line") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{2}}, 0)};
  const auto of = [&](AnyOperation operation) { return Tensor<double>{compute(graph, std::move(operation), {x}, Location{"rule.cpp", 3})}; };
  CHECK_THROWS_WITH(gradient(of(OneElement{}), x),
                    Catch::Contains("the gradient rule of one_element at rule.cpp:3 gives float64[] for input 0, which is float64[2]"));
  CHECK_THROWS_WITH(gradient(of(NarrowGradient{}), x),
                    Catch::Contains("the gradient rule of narrow_gradient at rule.cpp:3 gives float32[2] for input 0, which is float64[2]"));
}

TEST_CASE("elements that share a maximum share its gradient") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{4}}, 0)};
  const std::vector<AnyArray> at{Array<double>{{4}, {3, 1, 3, 2}}.any()};
  CHECK(test::doubles(test::evaluate(gradient(max(x), x), at)) == std::vector<double>{0.5, 0, 0.5, 0});
}

TEST_CASE("nothing flows through stop_gradient, and what lies before it needs no gradient rule") {
  using T = Tensor<double>;
  Graph graph;
  const T x{test::input(graph, {DType::float64, Shape{2}}, 0)};
  const std::vector<AnyArray> at{Array<double>{{2}, {3, 5}}.any()};
  CHECK(test::doubles(test::evaluate(gradient(x * stop_gradient(x), x), at)) == std::vector<double>{3, 5});
  const auto squared = [&](T y) { return gradient(y * y, x); };
  CHECK_NOTHROW(squared(stop_gradient(without_rule(x))));
  CHECK_THROWS_WITH(squared(without_rule(x)), Catch::Contains("passes through without_rule at ruleless.cpp:7, which has no gradient rule: "
                                                              "give the operation one, or wrap its input in rp::stop_gradient"));
}

TEST_CASE("a gradient ends at its x: what made x needs no gradient rule, and its collective has no second one") {
  using T = Tensor<double>;
  Graph graph;
  const T x{test::input(graph, {DType::float64, Shape{2}}, 0)};
  const T opaque = without_rule(x), gathered = all_gather(x);
  CHECK_NOTHROW(gradient(opaque * opaque, opaque));
  CHECK_THROWS_WITH(gradients(opaque * opaque, std::vector{opaque, x}), Catch::Contains("passes through without_rule"));
  const auto collectives = [&] {
    int count = 0;
    for (std::uint32_t i = 0; i < graph.nodes().size(); ++i) count += graph.node(i).get<Placeholder>() != nullptr;
    return count;
  };
  gradient(gathered * gathered, gathered);
  CHECK(collectives() == 1);
  gradient(gathered * gathered, x);
  CHECK(collectives() == 2);
}

TEST_CASE("the gradient of a sum of no elements is zero, whatever they would be divided by") {
  Graph graph;
  const Tensor<double> w{test::input(graph, {DType::float64, Shape{3}}, 0)}, none{test::input(graph, {DType::float64, Shape{0, 3}}, 1)},
      by{test::input(graph, {DType::float64, Shape{3}}, 2)};
  const auto loss = sum(map([](auto a, auto b, auto c) { return (a + b) / c * b; }, w, none, by));
  const std::vector<AnyArray> at{Array<double>{{3}, {1, 2, 3}}.any(), Array<double>{{0, 3}}.any(), Array<double>{{3}, {0, 0, 1}}.any()};
  CHECK(test::doubles(test::evaluate(gradient(loss, w), at)) == std::vector<double>{0, 0, 0});
}

TEST_CASE("the gradient with respect to what was not used is zero, of its shape") {
  Graph graph;
  const Tensor<double> x{test::input(graph, {DType::float64, Shape{2}}, 0)},
      y{test::input(graph, {DType::float64, Shape{3}}, 1)};
  const std::vector<AnyArray> at{Array<double>{{2}}.any(), Array<double>{{3}}.any()};
  CHECK(test::doubles(test::evaluate(gradient(x * x, y), at)) == std::vector<double>{0, 0, 0});
  const auto later = x + 1.0;
  CHECK(test::doubles(test::evaluate(gradient(x * x, later), at)) == std::vector<double>{0, 0});
}

TEST_CASE("at every replica the gradient is that of the sum over all replicas with respect to its own x") {
  using T = Tensor<double>;
  for (const std::size_t replicas : {1, 2, 3, 5}) {
    const Shape shape{static_cast<std::int64_t>(replicas < 5 ? 2 * replicas : replicas)};
    const auto error = [&](auto f) { return collective_error(replicas, shape, f); };
    for (const auto reduction : {Reduction::sum, Reduction::mean, Reduction::min, Reduction::max}) {
      INFO(replicas << " replicas, " << name_of(reduction));
      CHECK(error([&](T x) { return all_reduce(x * x, reduction); }) < 1e-7);
      CHECK(error([&](T x) { return all_reduce(x, reduction) * x; }) < 1e-7);
      CHECK(error([&](T x) { return reduce_scatter(x * x, reduction); }) < 1e-7);
    }
    CHECK(error([](T x) { return all_gather(x * x); }) < 1e-7);
    CHECK(error([](T x) { return all_gather(sum(x * x)); }) < 1e-7);
    for (int root = 0; root < static_cast<int>(replicas); ++root)
      CHECK(error([root](T x) { return broadcast(x * x, root) * x; }) < 1e-7);
  }
}

TEST_CASE("of several replicas that attain the maximum the first receives the gradient") {
  std::vector<Graph> graphs;
  std::vector<std::vector<AnyArray>> at;
  const std::vector<std::vector<double>> values{{1, 5, 2}, {3, 5, 2}, {3, 0, 2}};
  for (std::size_t r = 0; r < 3; ++r) {
    auto& graph = graphs.emplace_back(static_cast<int>(r), 3);
    at.push_back({Array<double>{{3}, values[r]}.any()});
    const Tensor<double> x{test::input(graph, {DType::float64, Shape{3}}, 0)};
    const auto part = reduce_scatter(x, Reduction::max);  // element r at replica r, which weighs it by r + 2
    graph.results() = {gradient(all_reduce(x, Reduction::max), x).any().value(),
                       gradient(part * static_cast<double>(r + 2), x).any().value()};
  }
  const auto results = run_together(graphs, at);
  using V = std::vector<double>;
  CHECK(test::doubles(results[0][0]) == V{0, 3, 3});
  CHECK(test::doubles(results[1][0]) == V{3, 0, 0});
  CHECK(test::doubles(results[2][0]) == V{0, 0, 0});
  CHECK(test::doubles(results[0][1]) == V{0, 3, 4});
  CHECK(test::doubles(results[1][1]) == V{2, 0, 0});
  CHECK(test::doubles(results[2][1]) == V{0, 0, 0});
}

TEST_CASE(
    "transposes: an all_gather becomes a reduce_scatter and back, sums and means stay, a broadcast becomes a sum") {
  const auto kinds = [](auto f) {
    Graph graph{0, 2};
    const Tensor<double> x{test::input(graph, {DType::float64, Shape{4}}, 0)};
    (void)gradient(f(x), x);
    std::string text;
    for (const auto& node : graph.nodes())
      if (const auto* p = node.get<Placeholder>())
        text += (text.empty() ? "" : " ") + std::string{node.kind()} + ":" + std::string{name_of(p->reduction)};
    return text;
  };
  using T = Tensor<double>;
  CHECK(kinds([](T x) { return all_reduce(x, Reduction::sum); }) == "all_reduce:sum all_reduce:sum");
  CHECK(kinds([](T x) { return all_reduce(x, Reduction::mean); }) == "all_reduce:mean all_reduce:mean");
  CHECK(kinds([](T x) { return all_gather(x); }) == "all_gather:sum reduce_scatter:sum");
  CHECK(kinds([](T x) { return reduce_scatter(x, Reduction::sum); }) == "reduce_scatter:sum all_gather:sum");
  CHECK(kinds([](T x) { return broadcast(x, 1); }) == "broadcast:sum all_reduce:sum");
}

TEST_CASE("a gradient rule is told of all its inputs which are wanted, of hundreds, too") {
  Graph graph;
  std::vector<AnyTensor> inputs, wanted;
  for (std::uint32_t i = 0; i < 300; ++i) inputs.push_back(test::input(graph, {DType::float64, Shape{}}, i));
  for (std::size_t i = 0; i < inputs.size(); i += 3) wanted.push_back(inputs[i]);
  const auto y = graph.tensor(add_compute(graph, SumOfMany{}, inputs, Location{"many.cpp", 1}));
  const auto found = gradients(y, wanted);
  const auto one = found[0];
  for (const auto& each : found) CHECK(each.value() == one.value());  // the upstream itself, not the zeros of what is not reached
}

TEST_CASE("gradients by tensors in braces are an array, which can be taken apart") {
  Graph graph;
  const Array<float> values{{2}, {3, 4}};
  const auto a = test::input(graph, values, 0), b = test::input(graph, values, 1);
  const auto [by_a, by_b] = gradients(a * b * b, {a, b});
  const std::vector inputs{values.any(), values.any()};
  CHECK(test::doubles(test::evaluate(by_a, inputs)) == std::vector<double>{9, 16});
  CHECK(test::doubles(test::evaluate(by_b, inputs)) == std::vector<double>{18, 32});
}

TEST_CASE("a gradient by a tensor that was not used, though its input was, is told of with both lines") {
  const auto said = [](const auto& differentiate, int replica = 0) {
    Graph graph{replica, 2};
    const TemporaryFolder folder;
    return test::told(folder, [&] { differentiate(Tensor<float>{test::input(graph, {DType::float32, {2, 2}}, 0)}); });
  };
  const auto slice_apart = [](Tensor<float> x) { (void)gradient(sum(x * x), x * 2.0f); };
  const std::string line = "test_gradients.cpp:" + std::to_string(__LINE__ - 1);
  CHECK(said(slice_apart) == "replicator: the gradient at " + line + " is 0: what is differentiated does not depend on the tensor made at " + line +
                                 ", though both are computed from the same input. Compute the one from the other, unless 0 is what you mean\n");
  CHECK(said(slice_apart, 1) == "");
  CHECK(said([](Tensor<float> x) { (void)gradient(sum(x * 2.0f), x); }) == "");
  CHECK(said([](Tensor<float> x) {
          const auto part = x * 2.0f;
          (void)gradient(gradient(sum(part * 3.0f), part), part);  // the second derivative of a line is 0, as it should be
        }) == "");
  CHECK(said([](Tensor<float> xy) {
          const auto x = xy * 2.0f, y = xy * 3.0f;
          const auto u = sum(x * x + y * y);
          (void)gradient(sum(gradient(u, x)), y);  // the mixed derivative of f(x) + g(y) is 0, as it should be
        }) == "");
}

}  // namespace test_gradients
