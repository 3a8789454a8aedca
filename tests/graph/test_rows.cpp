// SPDX-License-Identifier: Apache-2.0
// Rows, the pass that makes it and its kernel: it gives the bits of the nodes that it stands for.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <replicator/cpu/map.hpp>
#include <replicator/cpu/movement.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/cpu/rows.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/graph/passes/fuse_rows.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/mixed_precision.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/normalisation.hpp>
#include <replicator/ops/reduce.hpp>

#include "../support/run_graph.hpp"

namespace test_rows {

using namespace replicator;
using namespace replicator::detail;

namespace {

constexpr passes::RowsOptions rows{true, false}, rows_and_columns{true, true};

// The value, and the gradients of its product with another tensor.
template <class T>
using Formula = std::function<Tensor<T>(const std::vector<Tensor<T>>&)>;

// A graph of a formula of x and vectors of the length of its rows. The last input is the upstream gradient.
template <class T>
Graph graph_of(const std::vector<Shape>& shapes, const Formula<T>& formula, bool gradient = true, bool with_value = true) {
  Graph graph;
  std::vector<Tensor<T>> inputs;
  for (const auto& shape : shapes) inputs.emplace_back(test::input(graph, {dtype_of<T>, shape}, static_cast<std::uint32_t>(inputs.size())));
  const Tensor<T> y = formula(inputs);
  if (with_value) graph.results().push_back(y.any().value());
  if (gradient) {
    const Tensor<T> upstream{test::input(graph, y.any().type(), static_cast<std::uint32_t>(inputs.size()))};
    std::vector<AnyTensor> by(inputs.begin(), inputs.end());
    for (const auto& d : gradients(sum(y * upstream).any(), by)) graph.results().push_back(d.value());
  }
  return optimise(graph);
}

template <class T>
std::vector<AnyArray> random_inputs(const Graph& graph) {
  std::vector<AnyArray> inputs;
  for (const auto& node : graph.nodes())
    if (const auto* input = node.get<Input>()) {
      if (inputs.size() <= input->index) inputs.resize(input->index + 1, AnyArray{{DType::float32, {}}});
      inputs[input->index] = test::random_array<T>(node.outputs[0].shape, 11 + input->index).any();
    }
  return inputs;
}

std::size_t count(const Graph& graph, std::string_view kind) {
  return static_cast<std::size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) { return node.kind() == kind; }));
}

// Equal bits, but any NaN equals any other.
template <class T>
bool same_numbers(const AnyArray& a, const AnyArray& b) {
  const auto x = a.as<T>(), y = b.as<T>();
  return a.type() == b.type() && std::equal(x.begin(), x.end(), y.begin(), y.end(), [](T p, T q) { return (p != p && q != q) || std::memcmp(&p, &q, sizeof p) == 0; });
}

template <class T>
void require_same(const Graph& graph, const Graph& fused, const std::vector<AnyArray>& inputs) {
  const auto want = test::run_graph(graph, inputs);
  for (const int threads : {1, 3}) {
    const auto got = test::run_graph(fused, inputs, threads);
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i, threads);
      REQUIRE(same_numbers<T>(got[i], want[i]));
    }
  }
}

template <class T>
Tensor<T> softmax_of(const std::vector<Tensor<T>>& in) { return softmax(in[0]); }
template <class T>
Tensor<T> log_softmax_of(const std::vector<Tensor<T>>& in) { return log_softmax(in[0]); }
template <class T>
Tensor<T> layer_norm_of(const std::vector<Tensor<T>>& in) {
  const auto by = moments(in[0], Axes{-1}.kept());
  const auto scale = map([](auto variance) { return 1 / sqrt(variance + 1e-5); }, by.variance);
  return map([](auto x, auto m, auto s, auto g, auto b) { return (x - m) * s * g + b; }, in[0], by.mean, scale, in[1], in[2]);
}
template <class T>
Tensor<T> rms_norm_of(const std::vector<Tensor<T>>& in) {
  const auto scale = map([](auto squares) { return 1 / sqrt(squares + 1e-5); }, mean(in[0] * in[0], Axes{-1}.kept()));
  return map([](auto x, auto s, auto g) { return x * s * g; }, in[0], scale, in[1]);
}

struct Case {
  const char* name;
  Formula<float> formula;
  Formula<double> exact;
  std::size_t vectors;  // inputs besides x
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all{{"softmax", softmax_of<float>, softmax_of<double>, 0},
                                     {"log_softmax", log_softmax_of<float>, log_softmax_of<double>, 0},
                                     {"layer_norm", layer_norm_of<float>, layer_norm_of<double>, 2},
                                     {"rms_norm", rms_norm_of<float>, rms_norm_of<double>, 1}};
  return all;
}
std::vector<Shape> shapes_of(const Shape& x, std::size_t vectors) {
  std::vector<Shape> shapes(1 + vectors, Shape{x[-1]});
  shapes[0] = x;
  return shapes;
}

}  // namespace

TEST_CASE("softmax and normalisations over rows are one node with the bits of the single nodes") {
  for (const auto& one : cases())
    for (const std::int64_t columns : {2, 7, 31, 96, 257, 4096, 5000})
      for (const std::int64_t lines : {2, 37, 200}) {
        if (lines * columns > 300'000) continue;
        CAPTURE(one.name, columns, lines);
        const auto shapes = shapes_of({lines, columns}, one.vectors);
        for (const auto& options : {rows, rows_and_columns}) {
          const Graph graph = graph_of(shapes, one.formula);
          const auto fused = passes::fuse_rows(graph, options);
          CHECK(count(fused.graph, "rows") == 1);
          CHECK(count(fused.graph, "reduce") <= (options.column_sums ? 0 : one.vectors));
          require_same<float>(graph, fused.graph, random_inputs<float>(graph));
          const Graph exact = graph_of(shapes, one.exact);
          require_same<double>(exact, passes::fuse_rows(exact, options).graph, random_inputs<double>(exact));
        }
      }
}

TEST_CASE("an output of rows may lie where an input does") {
  std::size_t shared = 0;
  for (const auto& one : cases()) {
    CAPTURE(one.name);
    const Graph graph = graph_of(shapes_of({37, 96}, one.vectors), one.formula);
    const Graph fused = passes::fuse_rows(graph, rows_and_columns).graph;
    const auto node = std::find_if(fused.nodes().begin(), fused.nodes().end(), [](const Node& of) { return of.kind() == "rows"; });
    const auto inputs = random_inputs<float>(graph);
    std::vector<test::Held> given;
    std::vector<TensorType> types;
    for (const auto input : node->inputs) {
      given.push_back(test::held(inputs.at(fused.node(input.node).get<Input>()->index)));
      types.push_back(given.back().type);
    }
    const auto want = test::run_kernel(node->get<Compute>()->operation, given, node->outputs, {KernelTier::user});
    const auto executable = test::make_kernel(node->get<Compute>()->operation, {node->get<Compute>()->operation, types, node->outputs, std::vector<Layout>(types.size()), 1}, KernelTier::user);
    std::vector<test::Held> results;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (auto& input : given) from.push_back(input.data());
    for (std::size_t o = 0; o < want.size(); ++o) results.push_back(test::held(node->outputs[o], Layout{}));
    for (std::size_t o = 0; o < want.size(); ++o) {
      const int input = executable->in_place.at(o);
      to.push_back(input < 0 ? results[o].data() : given[static_cast<std::size_t>(input)].data());
      shared += input >= 0;
    }
    std::vector<std::byte> scratch(executable->scratch_bytes + 64);
    auto* const aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
    executable->run({from.data(), to.data(), aligned, {}, nullptr});
    for (std::size_t o = 0; o < want.size(); ++o) CHECK(std::memcmp(to[o], test::array_of(want[o]).data(), node->outputs[o].bytes()) == 0);
  }
  CHECK(shared >= cases().size());
}

TEST_CASE("a value that only the derivative needs, and leading axes, change nothing") {
  for (const auto& one : cases()) {
    CAPTURE(one.name);
    const Graph graph = graph_of(shapes_of({3, 1, 5, 33}, one.vectors), one.formula, true, false);
    require_same<float>(graph, passes::fuse_rows(graph, rows_and_columns).graph, random_inputs<float>(graph));
  }
}

TEST_CASE("the values of rows agree with those computed in double") {
  for (const auto& one : cases()) {
    CAPTURE(one.name);
    const auto shapes = shapes_of({21, 130}, one.vectors);
    const Graph graph = graph_of(shapes, one.formula);
    const auto inputs = random_inputs<float>(graph);
    const auto got = test::run_graph(passes::fuse_rows(graph, rows_and_columns).graph, inputs);
    const auto want = test::evaluate(graph, inputs);  // interprets in double
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(test::largest_difference(got[i], want[i]) < 2e-5);
  }
}

TEST_CASE("each row of softmax adds up to one, and its gradient to zero") {
  const Graph graph = graph_of<float>({{40, 257}}, softmax_of<float>);
  const auto got = test::run_graph(passes::fuse_rows(graph, rows).graph, random_inputs<float>(graph));
  for (int line = 0; line < 40; ++line) {
    double total = 0, derivative = 0;
    for (int i = 0; i < 257; ++i) total += got[0].as<float>()[line * 257 + i], derivative += got[1].as<float>()[line * 257 + i];
    CHECK(std::abs(total - 1) < 1e-5);
    CHECK(std::abs(derivative) < 1e-6);
  }
}

TEST_CASE("NaN and infinities stay in their rows") {
  for (const auto& one : cases()) {
    CAPTURE(one.name);
    const Graph graph = graph_of(shapes_of({8, 40}, one.vectors), one.formula);
    auto inputs = random_inputs<float>(graph);
    auto x = inputs[0].as<float>();
    x[0 * 40 + 3] = std::numeric_limits<float>::quiet_NaN();
    x[2 * 40 + 5] = std::numeric_limits<float>::infinity();
    x[4 * 40 + 39] = -std::numeric_limits<float>::infinity();
    for (int i = 0; i < 40; ++i) x[6 * 40 + i] = -std::numeric_limits<float>::infinity();
    const auto fused = passes::fuse_rows(graph, rows_and_columns).graph;
    require_same<float>(graph, fused, inputs);
    const auto got = test::run_graph(fused, inputs);
    for (const int line : {1, 3, 5, 7})
      for (int i = 0; i < 40; ++i) CHECK(std::isfinite(got[0].as<float>()[line * 40 + i]));
    CHECK(std::isnan(got[0].as<float>()[0]));
  }
}

TEST_CASE("rows of bfloat16 are converted where they are read and written") {
  Graph graph;
  const Tensor<bfloat16> x{test::input(graph, {DType::bfloat16, {50, 96}}, 0)};
  graph.results().push_back(softmax(x).any().value());
  graph.results().push_back(log_softmax(x).any().value());
  const Graph single = optimise(graph);
  const auto fused = passes::fuse_rows(single, rows);
  CHECK(count(fused.graph, "rows") == 1);
  require_same<bfloat16>(single, fused.graph, {test::random_array<bfloat16>({50, 96}, 3).any()});
}

TEST_CASE("a second derivative runs through rows") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, {9, 33}}, 0)}, u{test::input(graph, {DType::float32, {9, 33}}, 1)};
  const std::vector<AnyTensor> by{x.any()};
  const AnyTensor first = gradients(sum(softmax(x) * u).any(), by)[0];
  graph.results().push_back(gradients(sum(Tensor<float>{first} * u * u).any(), by)[0].value());
  const Graph single = optimise(graph);
  const auto fused = passes::fuse_rows(single, rows).graph;
  CHECK(count(fused, "rows") == 1);
  require_same<float>(single, fused, random_inputs<float>(single));
}

TEST_CASE("nodes are not joined around a node that stands between them") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, {12, 12}}, 0)};
  const auto y = softmax(x);
  const auto turned = transpose(y, {1, 0});  // needs y
  graph.results().push_back((softmax(turned) * y * sum(y + turned, Axes{1}.kept())).any().value());
  const Graph single = optimise(graph);
  const auto fused = passes::fuse_rows(single, rows).graph;
  CHECK(count(fused, "rows") == 2);
  require_same<float>(single, fused, random_inputs<float>(single));
}

TEST_CASE("a sum of rows that is broadcast along columns is not taken for one of rows") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, {12, 12}}, 0)};
  const auto total = sum(x * x, {1});  // [12], which NumPy's rules repeat for each row
  graph.results().push_back((x - total).any().value());
  graph.results().push_back(sum(exp(x - max(x, Axes{1}.kept())), {1}).any().value());
  const Graph single = optimise(graph);
  const auto fused = passes::fuse_rows(single, rows_and_columns).graph;
  require_same<float>(single, fused, random_inputs<float>(single));
}

TEST_CASE("what one pass does alone stays as it is, and so do images, very long rows and empty tensors") {
  const auto unchanged = [](const Shape& shape, const Formula<float>& formula) {
    const Graph graph = graph_of<float>({shape}, formula, false);
    return count(passes::fuse_rows(graph, rows_and_columns).graph, "rows") == 0;
  };
  CHECK(unchanged({8, 40}, [](const auto& in) { return mean(in[0] * in[0], {1}); }));
  CHECK(unchanged({8, 40}, [](const auto& in) { return in[0] - mean(in[0], Axes{0}.kept()); }));
  CHECK(unchanged({2, 3, 8, 8}, [](const auto& in) { return in[0] - mean(in[0], Axes{2, 3}.kept()); }));
  CHECK(unchanged({2, 40'000}, [](const auto& in) { return softmax(in[0]); }));
  CHECK(unchanged({0, 40}, [](const auto& in) { return softmax(in[0]); }));
  CHECK_FALSE(unchanged({2, 3, 8, 8}, [](const auto& in) { return softmax(in[0]); }));
}

TEST_CASE("a value that is stored in bfloat16 is rounded before its rows are reduced") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, {12, 40}}, 0)};
  const auto rounded = cast<bfloat16>(exp(x));
  graph.results().push_back(softmax(cast<float>(rounded)).any().value());
  const Graph single = optimise(graph);
  const auto fused = passes::fuse_rows(single, rows).graph;
  CHECK(count(fused, "rows") == 1);
  CHECK(count(fused, "map") == 1);
  require_same<float>(single, fused, random_inputs<float>(single));
}

TEST_CASE("a sum of columns is finished before a row reads it") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, {12, 40}}, 0)}, y{test::input(graph, {DType::float32, {12, 40}}, 1)};
  const auto a = softmax(x), b = softmax(y);
  const auto total = sum(b, {0});
  const auto both = a * total;
  graph.results().push_back(both.any().value());
  graph.results().push_back((both * b).any().value());
  graph.results().push_back(b.any().value());
  const Graph single = optimise(graph);
  const auto fused = passes::fuse_rows(single, rows_and_columns).graph;
  CHECK(count(fused, "rows") == 2);
  require_same<float>(single, fused, random_inputs<float>(single));
}

TEST_CASE("random graphs of rows, columns and turned tensors keep their bits") {
  std::size_t joined = 0, nodes = 0;
  REQUIRE(rc::check([&] {
    Graph graph;
    std::vector<Tensor<float>> pool;
    for (const Shape& shape : {Shape{6, 6}, Shape{6, 6}, Shape{6}, Shape{6, 1}, Shape{}})
      pool.emplace_back(test::input(graph, {DType::float32, shape}, static_cast<std::uint32_t>(pool.size())));
    const auto below = [](std::size_t n) { return *rc::gen::inRange<std::size_t>(0, n); };
    for (std::size_t i = 4 + below(16); i > 0; --i) {
      const auto a = pool[below(pool.size())], b = pool[below(pool.size())];
      const bool square = a.shape() == Shape{6, 6};
      switch (below(12)) {
        case 0: pool.push_back(a - b); break;
        case 1: pool.push_back(a * b); break;
        case 2: pool.push_back(exp(tanh(a))); break;
        case 3: pool.push_back(square ? sum(a, Axes{1}.kept()) : a + b); break;
        case 4: pool.push_back(square ? max(a, {1}) : a + b); break;
        case 5: pool.push_back(square ? sum(a, {0}) : a + b); break;
        case 6: pool.push_back(square ? transpose(a, {1, 0}) : a - b); break;
        default: pool.push_back(square ? softmax(a) : a * b);
      }
    }
    for (std::size_t i = 0; i < 3; ++i) graph.results().push_back(pool[pool.size() - 1 - below(std::min<std::size_t>(pool.size(), 6))].any().value());
    const Graph single = optimise(graph);
    const Graph fused = passes::fuse_rows(single, {true, *rc::gen::arbitrary<bool>()}).graph;
    joined += count(fused, "rows");
    ++nodes;
    require_same<float>(single, fused, [&] {
      std::vector<AnyArray> inputs;
      for (const Shape& shape : {Shape{6, 6}, Shape{6, 6}, Shape{6}, Shape{6, 1}, Shape{}}) inputs.push_back(test::random_array<float>(shape, inputs.size()).any());
      return inputs;
    }());
  }));
  CHECK(joined > nodes / 20);
}

TEST_CASE("what is computed again for a derivative is not computed with the forward pass, where it would be kept") {
  Graph graph;
  const Tensor<float> x{test::input(graph, {DType::float32, {512, 256}}, 0)}, w{test::input(graph, {DType::float32, {256, 64}}, 1)};
  const auto by = moments(x, Axes{1}.kept());
  const auto scale = map([](auto v) { return 1 / sqrt(v + 1e-5); }, by.variance);
  const auto y = matmul(map([](auto a, auto m, auto s) { return (a - m) * s; }, x, by.mean, scale), w);
  graph.results().push_back(y.any().value());
  for (const auto& d : gradients(sum(y * y).any(), std::vector<AnyTensor>{x.any(), w.any()})) graph.results().push_back(d.value());
  const Graph single = optimise(graph);  // recomputes the normalised value for the gradient of w
  std::int64_t copies = 0;
  for (const auto& node : single.nodes()) copies += node.marks.again;
  CHECK(copies > 0);
  const auto fused = passes::fuse_rows(single, rows_and_columns);
  CHECK(count(fused.graph, "rows") > 0);
  for (const auto& origins : fused.origins) {
    std::uint32_t first = ~0u, again = 0;
    for (const auto origin : origins) {
      const auto& marks = single.node(origin.node).marks;
      first = std::min(first, marks.order);
      if (marks.again) again = std::max(again, marks.order);
    }
    CHECK(again <= first);
  }
}

TEST_CASE("nodes with different marks are not joined") {
  const Graph graph = graph_of<float>({{8, 40}}, softmax_of<float>, false);
  std::vector<bool> mark(graph.nodes().size());
  mark.back() = true;
  const auto fused = passes::fuse_rows(graph, rows, mark).graph;
  CHECK(count(fused, "map") == 1);
  require_same<float>(graph, fused, random_inputs<float>(graph));
}

}  // namespace test_rows
