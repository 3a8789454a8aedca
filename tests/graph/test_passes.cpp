// SPDX-License-Identifier: Apache-2.0
// Every pass keeps the values and has its intended effect.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <replicator/cpu/map.hpp>
#include <replicator/cpu/pooling.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/graph/graph_digest.hpp>
#include <replicator/graph/node_text.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/activation.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/mixed_precision.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/pooling.hpp>
#include <replicator/ops/recompute.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../support/run_graph.hpp"

namespace test_passes {

using namespace replicator;
using namespace replicator::detail;

namespace {

bool same_bits(const std::vector<AnyArray>& a, const std::vector<AnyArray>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].type() != b[i].type() ||
        (a[i].size_bytes() && std::memcmp(a[i].data(), b[i].data(), a[i].size_bytes()) != 0))
      return false;
  return true;
}

struct Instruction {
  unsigned op, a, b;
};

using RandomCode = std::vector<Instruction>;

// A random program of elementwise operations, broadcasts, reductions and gradients over x [6, 5], y [5], z [].
Graph random_graph(const RandomCode& code) {
  Graph graph;
  std::vector<Tensor<float>> pool;
  for (const Shape& shape : {Shape{6, 5}, Shape{5}, Shape{}})
    pool.emplace_back(test::input(graph, {DType::float32, shape}, static_cast<std::uint32_t>(pool.size())));
  for (const auto& i : code) {
    const auto a = pool[i.a % pool.size()], b = pool[i.b % pool.size()];
    const bool fits = broadcast(a.shape(), b.shape()).has_value();
    switch (i.op) {
      case 0:
        pool.push_back(fits ? a + b : a);
        break;
      case 1:
        pool.push_back(fits ? a * b : a);
        break;
      case 2:
        pool.push_back(tanh(a));
        break;
      case 3:
        pool.push_back(relu(a) - 0.5f);
        break;
      case 4:
        pool.push_back(a.shape().rank() > 0 ? sum(a, {0}) : a);
        break;
      case 5:
        pool.push_back(a.shape().rank() > 1 ? max(a, {1}) : mean(a));
        break;
      case 6:
        pool.push_back(fits ? select(a < b, a, b) : a);
        break;
      case 7:
        pool.push_back(gradient(mean(a * a), pool[0]));
        break;
      case 8:
        pool.push_back(fits ? recompute([](auto p, auto q) { return relu(tanh(p) * q) - tanh(p * q); })(a, b) : a);
        break;
      case 9:
        pool.push_back(cast<float>(cast<std::int32_t>(a * 3.0f)));
        break;
      case 10:
        pool.push_back(cast<float>(cast<bfloat16>(cast<float>(cast<bfloat16>(a)))));
        break;
      case 11:
        pool.push_back(fits ? Tensor<float>{detail::map_at(
                                  graph, DType::float32, {}, [](Symbol c, Symbol r) { return select(c <= 0, 0, r); }, a, cast<bfloat16>(a + b))}
                            : a);
        break;
      default:
        graph.results().push_back(a.any().value());
        break;
    }
  }
  for (std::size_t i = pool.size(); i-- > 0 && graph.results().size() < 4;)
    graph.results().push_back(pool[i].any().value());
  return graph;
}

RandomCode draw_code() {
  return *rc::gen::container<RandomCode>(
      rc::gen::map(rc::gen::tuple(rc::gen::inRange(0u, 13u), rc::gen::inRange(0u, 32u), rc::gen::inRange(0u, 32u)),
                   [](const std::tuple<unsigned, unsigned, unsigned>& t) {
                     return Instruction{std::get<0>(t), std::get<1>(t), std::get<2>(t)};
                   }));
}

using Pass = std::function<Graph(const Graph&)>;

void require_bits_kept(const Graph& graph, const Graph& changed) {
  std::vector<AnyArray> inputs;
  for (const Shape& shape : {Shape{6, 5}, Shape{5}, Shape{}})
    inputs.push_back(test::random_array<float>(shape, inputs.size()).any());
  RC_ASSERT(same_bits(test::run_graph(changed, inputs), test::run_graph(graph, inputs)));
}

void require_kept_and_idempotent(const Pass& pass) {
  REQUIRE(rc::check([&] {
    const auto graph = random_graph(draw_code()), changed = pass(graph);
    require_bits_kept(graph, changed);
    RC_ASSERT(digest_of(pass(changed)) == digest_of(changed));
  }));
}

template <class Op>
std::size_t count(const Graph& graph) {
  std::size_t n = 0;
  for (const auto& node : graph.nodes()) n += operation_of<Op>(node) != nullptr;
  return n;
}

}  // namespace

TEST_CASE("common subexpressions, dead code and merging keep every bit; again, they change nothing") {
  SECTION("common subexpressions") { require_kept_and_idempotent(passes::merge_common); }
  SECTION("dead code") { require_kept_and_idempotent(passes::remove_dead_code); }
  SECTION("merged reductions") {
    require_kept_and_idempotent([](const Graph& graph) { return passes::merge_reduces(graph); });
  }
  SECTION("simplify") {
    require_kept_and_idempotent([](const Graph& graph) { return simplify(graph); });
  }
}

TEST_CASE("fusion keeps every bit and only removes elementwise operations") {
  REQUIRE(rc::check([] {
    const auto graph = passes::remove_dead_code(random_graph(draw_code())),
               fused = passes::remove_dead_code(passes::fuse(graph));
    require_bits_kept(graph, fused);
    RC_ASSERT(count<Map>(fused) <= count<Map>(graph));
    RC_ASSERT(count<Reduce>(fused) == count<Reduce>(graph));
  }));
}

TEST_CASE("computing again keeps every bit, from one large value or from many") {
  for (const std::size_t most : {std::size_t{0}, std::size_t{1}, std::size_t{4}})
    REQUIRE(rc::check([&] {
      const auto graph = simplify(random_graph(draw_code()));
      const auto again = passes::recompute(graph, {.smallest = 0, .most_large_inputs = most});
      require_bits_kept(graph, again);
      require_bits_kept(graph, passes::fuse(again));
    }));
}

TEST_CASE("all passes together keep every bit, also when they have been there before") {
  REQUIRE(rc::check([] {
    const auto graph = random_graph(draw_code()), once = optimise(graph);
    require_bits_kept(graph, once);
    require_bits_kept(graph, optimise(once));
  }));
}

TEST_CASE("the reductions of a batch normalisation's backward pass become one") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{8, 4, 6, 6}}, 0)},
      upstream{test::input(graph, {DType::float32, Shape{8, 4, 6, 6}}, 1)};
  const auto m = mean(x, Axes{0, 2, 3}.kept()), centred = x - m, g = relu(centred) * upstream;
  graph.results().push_back(sum(g, {0, 2, 3}).any().value());
  graph.results().push_back(sum(g * centred, {0, 2, 3}).any().value());
  CHECK(count<Reduce>(passes::fuse(graph)) == 3);
  CHECK(count<Reduce>(optimise(graph)) == 2);  // the mean, then both sums in one pass
}

TEST_CASE("equal nodes become one, collectives and assignments do not") {
  Graph graph{0, 2};
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{4}}, 0)};
  const auto a = x * 2.0f, b = x * 2.0f, c = x * 3.0f;
  const auto p = all_reduce(a, Reduction::sum), q = all_reduce(b, Reduction::sum);
  for (const auto& value : {a, b, c, p, q}) graph.results().push_back(value.any().value());
  const auto merged = passes::merge_common(graph);
  CHECK(merged.results()[0] == merged.results()[1]);
  CHECK(merged.results()[0] != merged.results()[2]);
  CHECK(merged.results()[3] != merged.results()[4]);
  CHECK(count<Map>(merged) == 2);
}

TEST_CASE("dropping conversions there and back keeps every bit; again, it changes nothing") { require_kept_and_idempotent(passes::drop_round_trips); }

TEST_CASE("what nothing needs is dropped; collectives and last assignments stay") {
  Graph graph{0, 2};
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{4}}, 0)};
  const auto w =
      graph.declare({"w", {DType::float32, Shape{4}}, VariableKind::replica_local, true, Initializer::zeros(), {}});
  (void)(x * 2.0f);
  (void)all_reduce(x * 3.0f, Reduction::sum);
  graph.assign(w, (x * 4.0f).any().value(), {});
  graph.assign(w, (x * 5.0f).any().value(), {});
  const auto left = passes::remove_dead_code(graph);
  CHECK(count<Map>(left) == 2);  // of the collective and of the last assignment
  CHECK(left.nodes().size() == 5);
  CHECK(left.variables().size() == 1);
}

TEST_CASE("a bfloat16 that became a float32 and becomes a bfloat16 again is used as it was") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{64}}, 0)};
  const auto narrow = cast<bfloat16>(x), again = cast<bfloat16>(cast<float>(narrow));
  graph.results().push_back(cast<bfloat16>(cast<float>(again)).any().value());
  graph.results().push_back(cast<bfloat16>(cast<double>(narrow)).any().value());  // another way: kept
  const auto simple = simplify(graph);
  CHECK(simple.results()[0].node == simple.node(simple.node(simple.results()[1].node).inputs[0].node).inputs[0].node);
  CHECK(count<Map>(simple) == 3);
}

namespace {

const Shape rows{6, 5};

Tensor<float> row_input(Graph& graph, std::uint32_t index) { return Tensor<float>{test::input(graph, {DType::float32, rows}, index)}; }

// Two users of the gradient at a relu of mixed precision, where a sum arrives.
Graph masked_gradient() {
  Graph graph;
  const auto mixed = mixed_precision(graph);
  const auto x = row_input(graph, 0), p = row_input(graph, 1), q = row_input(graph, 2);
  const auto y = relu(x);
  const auto masked = gradient(sum(y * p) + sum(y * q), x);
  graph.results() = {sum(masked, {0}).any().value(), (masked * x).any().value()};
  return graph;
}

// Floats of all kinds; many are no bfloat16, or lie halfway between two.
AnyArray draw_floats() {
  Array<float> result{rows};
  for (auto& value : result) {
    const auto lower = *rc::gen::element(0u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu), upper = *rc::gen::inRange(0u, 0x10000u);
    value = std::bit_cast<float>(upper << 16 | lower);
  }
  return result.any();
}

// Makes all NaN alike: where two meet, a loop keeps one of them, and which one depends on the loop.
std::vector<AnyArray> one_nan(std::vector<AnyArray> results) {
  for (auto& result : results)
    for (auto& value : result.as<float>())
      if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  return results;
}

}  // namespace

TEST_CASE("what is rounded and handed on where a relu was positive is rounded afterwards, with the same bits") {
  REQUIRE(rc::check([] {
    const auto graph = masked_gradient();
    const std::vector<AnyArray> inputs{draw_floats(), draw_floats(), draw_floats()};
    const auto expected = one_nan(test::run_graph(graph, inputs));
    RC_ASSERT(same_bits(one_nan(test::run_graph(passes::round_late(passes::drop_round_trips(graph)), inputs)), expected));
    RC_ASSERT(same_bits(one_nan(test::run_graph(optimise(graph), inputs)), expected));
  }));
}

TEST_CASE("the sum that arrives at a relu, its rounding and its mask are one pass, which stores bfloat16") {
  const auto graph = optimise(masked_gradient());
  std::vector<std::string> stored;
  for (const auto& node : graph.nodes())
    if (const auto* map = operation_of<Map>(node); map && map->dtypes[0] == DType::bfloat16) stored.push_back(map->formula(100));
  CHECK(stored == std::vector<std::string>{"relu(x0)", "select(less_equal(x0, 0), 0, add(x1, x2))"});
}

TEST_CASE("what is looked at once it is rounded stays rounded before") {
  Graph graph;
  const auto x = row_input(graph, 0);
  const auto rounded = cast<bfloat16>(x + x);
  const auto choose = [&](auto formula) { graph.results().push_back(detail::map_at(graph, DType::float32, {}, formula, x, rounded).value()); };
  SECTION("by the condition") {
    choose([](Symbol, Symbol r) { return select(r <= 1, 0, r); });
  }
  SECTION("where what is chosen instead is no bfloat16") {
    choose([](Symbol v, Symbol r) { return select(v <= 1, v, r); });
  }
  SECTION("by somebody else") {
    choose([](Symbol v, Symbol r) { return select(v <= 1, 0, r); });
    graph.results().push_back(rounded.any().value());
  }
  CHECK(digest_of(passes::round_late(graph)) == digest_of(graph));
}

TEST_CASE("what picks elements of bfloat16, or rounds what it computes of it, is given it as it is stored, with the same bits") {
  REQUIRE(rc::check([] {
    const auto drawn = [] { return *rc::gen::arbitrary<bool>(); };
    const bool pooled_is_rounded = drawn(), gradient_is_rounded = drawn(), upstream_was_rounded = drawn();
    const std::int64_t window = *rc::gen::inRange(1, 4), stride = *rc::gen::inRange(1, 4);
    Graph graph;
    const Tensor<bfloat16> x{test::input(graph, {DType::bfloat16, Shape{2, 3, 7, 6}}, 0)};
    const auto wide = cast<float>(x), pooled = max_pool(wide, {.window = {window, window}, .stride = {stride, stride}});
    auto upstream = Tensor<float>{test::input(graph, {DType::float32, pooled.shape()}, 1)};
    if (upstream_was_rounded) upstream = cast<float>(cast<bfloat16>(upstream));
    const auto options = operation_of<MaxPool>(graph.node(pooled.any().value()))->options;
    const Tensor<float> spread{compute(graph, MaxPoolSpread{options}, {wide, upstream}, {})};
    graph.results().push_back(pooled_is_rounded ? cast<bfloat16>(pooled).any().value() : pooled.any().value());
    graph.results().push_back(max_pool(pooled, {.window = {1, 2}}).any().value());
    graph.results().push_back(gradient_is_rounded ? cast<bfloat16>(spread).any().value() : spread.any().value());

    const Graph simple = simplify(graph);
    auto values = test::random_array<bfloat16>(x.shape(), 1);
    for (auto& value : values) value = std::floor(value * 3);  // maxima tie
    const std::vector<AnyArray> inputs{values.any(), test::random_array<float>(pooled.shape(), 2).any()};
    RC_ASSERT(same_bits(test::run_graph(simple, inputs), test::run_graph(graph, inputs)));
    RC_ASSERT(digest_of(simplify(simple)) == digest_of(simple));
    for (const auto& node : simple.nodes()) {
      if (operation_of<MaxPool>(node)) RC_ASSERT(node.outputs[0].dtype == DType::bfloat16);
      if (!operation_of<MaxPoolSpread>(node)) continue;
      RC_ASSERT((node.outputs[0].dtype == DType::bfloat16) == gradient_is_rounded);
      RC_ASSERT((simple.type(node.inputs[1]).dtype == DType::bfloat16) == (gradient_is_rounded && upstream_was_rounded));
    }
  }));
}

TEST_CASE("a chain of elementwise operations becomes one") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{64}}, 0)},
      y{test::input(graph, {DType::float32, Shape{64}}, 1)};
  graph.results().push_back(tanh(relu(x * 2.0f + y) - 1.0f).any().value());
  CHECK(count<Map>(graph) == 5);
  const auto fused = optimise(graph);
  CHECK(count<Map>(fused) == 1);
  CHECK(operation_of<Map>(fused.node(fused.results()[0]))->expression->text() ==
        "tanh(sub(relu(add(mul(x0, 2), x1)), 1))");
}

TEST_CASE("the text of an expression ends where it was told to, though it would double with every instruction") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{64}}, 0)};
  const auto squared = [](int times) {
    return [times](Symbol v) {
      for (int i = 0; i < times; ++i) v = v * v;
      return v;
    };
  };
  const auto formula = [&](int times) { return formula_of(graph.node(map(squared(times), x).any().value()), 22); };
  CHECK(formula(1) == "mul(x0, x0)");
  CHECK(formula(2) == "mul(mul(x0, x0), mu...");
  CHECK(formula(1000).size() == 22);
}

TEST_CASE("an elementwise operation disappears into the reduction that uses it") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{8, 64}}, 0)};
  graph.results().push_back(sum(x * x, {1}).any().value());
  const auto fused = optimise(graph);
  CHECK(count<Map>(fused) == 0);
  CHECK(count<Reduce>(fused) == 1);
}

TEST_CASE("a result, and what a collective takes, is stored") {
  Graph graph{0, 2};
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{64}}, 0)};
  const auto kept = x * 2.0f;
  graph.results().push_back(kept.any().value());
  graph.results().push_back((kept + 1.0f).any().value());
  (void)all_reduce(kept - 1.0f, Reduction::sum);
  CHECK(count<Map>(optimise(graph)) == 3);
}

TEST_CASE("an expensive function that two operations use is computed once") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{64}}, 0)},
      y{test::input(graph, {DType::float32, Shape{64}}, 1)};
  const auto e = exp(x);
  graph.results().push_back((e * y).any().value());
  graph.results().push_back((e + y).any().value());
  CHECK(count<Map>(optimise(graph)) == 3);
}

TEST_CASE("reductions over the same memory and axes become one pass, over others they do not") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{8, 64}}, 0)},
      y{test::input(graph, {DType::float32, Shape{8, 64}}, 1)};
  for (const auto& value : {sum(x, {0}), sum(x * y, {0}), sum(y, {0}), sum(x, {1}), max(x, {0})})
    graph.results().push_back(value.any().value());
  const auto merged = optimise(graph);
  CHECK(count<Reduce>(merged) == 3);
}

TEST_CASE("reductions that depend on each other stay apart") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{8, 64}}, 0)};
  const auto centred = x - mean(x, {0});
  graph.results().push_back(sum(centred * centred * x, {0}).any().value());
  CHECK(count<Reduce>(optimise(graph)) == 2);
}

TEST_CASE("marked and unmarked reductions are never merged") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{8, 64}}, 0)};
  graph.results().push_back(sum(x, {0}).any().value());
  graph.results().push_back(sum(x * x, {0}).any().value());
  const auto fused = passes::fuse(graph);
  std::vector<bool> mark(fused.nodes().size());
  mark[fused.results()[0].node] = true;
  CHECK(count<Reduce>(passes::merge_reduces(fused)) == 1);
  CHECK(count<Reduce>(passes::merge_reduces(fused, mark)) == 2);
}

TEST_CASE("a reduction that shares inputs with two others is merged with both") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{8, 64}}, 0)}, y{test::input(graph, {DType::float32, Shape{8, 64}}, 1)};
  graph.results() = {sum(x, {0}).any().value(), sum(y, {0}).any().value(), sum(x * y, {0}).any().value()};
  CHECK(count<Reduce>(passes::merge_reduces(passes::fuse(graph))) == 1);
}

TEST_CASE("reductions are merged only while their expressions are short together, so many or long ones are not refused") {
  const auto sums = [](int number, int instructions) {
    Graph graph;
    const Tensor<float> x{test::input(graph, {DType::float32, {8}}, 0)};
    const std::vector<AnyTensor> inputs{x.any()};
    for (int k = 0; k < number; ++k) {
      Expression e;
      auto value = e.input(e.inputs++);
      for (int i = 0; i < instructions; ++i) value = e.apply(i % 2 ? ScalarOp::add : ScalarOp::multiply, value, e.constant(2.0 + k));
      e.outputs = {value};
      graph.results().push_back(reduce_node(graph, ReduceKind::sum, e, inputs, x.shape(), {0}, DType::float32, {}).value());
    }
    return count<Reduce>(passes::merge_reduces(graph));
  };
  CHECK(sums(4, 9000) == 4);
  CHECK(sums(100, 2) == 1);
  CHECK(sums(2000, 2) < 20);
}

TEST_CASE("reductions are merged over a chain of any length between them") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, Shape{8, 8}}, 0)};
  Tensor<float> y = x;
  for (int i = 0; i < 200000; ++i) y = transpose(y, {1, 0});
  graph.results() = {sum(x, {0}).any().value(), sum(x * y, {0}).any().value()};
  CHECK(count<Reduce>(passes::merge_reduces(passes::fuse(graph))) == 1);
}

TEST_CASE("fusion takes in numbers that are the same everywhere, and leaves out products with one") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, {6, 5}}, 0)}, u{test::input(graph, {DType::float32, {6, 5}}, 1)};
  const std::vector<AnyTensor> by{x.any()};
  graph.results().push_back(gradients(sum(tanh(x) * u).any(), by)[0].value());  // begins with 1, reshaped and repeated
  const Graph fused = optimise(graph);
  std::size_t maps = 0;
  for (const auto& node : fused.nodes()) {
    CHECK_FALSE(operation_of<Reshape>(node));
    if (const auto* map = operation_of<Map>(node)) {
      ++maps;
      CHECK(map->expression->inputs == 2);
    }
  }
  CHECK(maps == 1);
  const std::vector<AnyArray> inputs{test::random_array<float>({6, 5}, 1).any(), test::random_array<float>({6, 5}, 2).any()};
  CHECK(same_bits(test::run_graph(fused, inputs), test::run_graph(graph, inputs)));
}

TEST_CASE("fusion takes in a value whose users became one") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, {40}}, 0)}, u{test::input(graph, {DType::float32, {40}}, 1)};
  const std::vector<AnyTensor> by{x.any()};
  graph.results().push_back(gradients(sum(silu(x) * u).any(), by)[0].value());  // reads the sigmoid three times
  const Graph single = simplify(graph), fused = optimise(graph);
  CHECK(fused.nodes().size() == 3);
  const std::vector<AnyArray> inputs{test::random_array<float>({40}, 1).any(), test::random_array<float>({40}, 2).any()};
  CHECK(same_bits(test::run_graph(fused, inputs), test::run_graph(single, inputs)));  // a sigmoid is one loop in one of them
}

}  // namespace test_passes
