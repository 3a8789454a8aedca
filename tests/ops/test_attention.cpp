// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include <replicator/ops/attention.hpp>

#include "../support/differences.hpp"

namespace test_attention {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

namespace {

// By the definition, for each of n heads; seen(query, key) says what is not hidden.
template <class Seen>
std::vector<double> attend(const Array<double>& q, const Array<double>& k, const Array<double>& v, double scale, Seen seen) {
  const auto heads = q.shape()[0], queries = q.shape()[1], depth = q.shape()[2], keys = k.shape()[1], features = v.shape()[2];
  std::vector<double> result;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i) {
      std::vector<double> weights;
      double total = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        double fit = 0;
        for (std::int64_t d = 0; d < depth; ++d) fit += q[(h * queries + i) * depth + d] * k[(h * keys + j) * depth + d];
        weights.push_back(seen(i, j) ? std::exp(fit * scale) : 0);
        total += weights.back();
      }
      if (total == 0) total = 1;  // the query sees no key: 0
      for (std::int64_t f = 0; f < features; ++f) {
        double mean = 0;
        for (std::int64_t j = 0; j < keys; ++j) mean += weights[static_cast<std::size_t>(j)] / total * v[(h * keys + j) * features + f];
        result.push_back(mean);
      }
    }
  return result;
}

struct Attention {
  Graph graph;
  Array<double> q, k, v;

  Attention(Shape of_q, Shape of_k, Shape of_v) : q{random_array<double>(of_q, 1)}, k{random_array<double>(of_k, 2)}, v{random_array<double>(of_v, 3)} {}
  Tensor<double> operator()(const AttentionOptions& options) { return attention(input(graph, q, 0), input(graph, k, 1), input(graph, v, 2), options); }
  std::vector<double> run(const AttentionOptions& options) {
    return doubles(evaluate((*this)(options), std::vector{q.any(), k.any(), v.any()}));
  }
};

void check_close(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(1e-12));
}

}  // namespace

TEST_CASE("attention is the mean of the values with the softmax of the scaled products as weights") {
  Attention a{{2, 3, 4}, {2, 5, 4}, {2, 5, 6}};
  check_close(a.run({}), attend(a.q, a.k, a.v, 0.5, [](auto, auto) { return true; }));
  check_close(a.run({.scale = 2}), attend(a.q, a.k, a.v, 2, [](auto, auto) { return true; }));
}

TEST_CASE("causal attention sees nothing that comes later") {
  Attention a{{2, 5, 4}, {2, 5, 4}, {2, 5, 3}};
  const auto found = a.run({.causal = true});
  check_close(found, attend(a.q, a.k, a.v, 0.5, [](auto query, auto key) { return key <= query; }));
  for (std::int64_t i = 4 * 3; i < 5 * 3; ++i) a.v[i] += 100;  // the last place of the first head
  for (std::int64_t i = 4 * 4; i < 5 * 4; ++i) a.k[i] += 100;
  const auto later = a.run({.causal = true});
  for (std::size_t i = 0; i < 4 * 3; ++i) CHECK(found[i] == later[i]);
}

TEST_CASE("long causal attention, in blocks of queries, is that of the definition, with masks of any shape too") {
  const std::int64_t places = GENERATE(257, 600);
  Attention a{{2, places, 2}, {2, places, 2}, {2, places, 1}};
  check_close(a.run({.causal = true}), attend(a.q, a.k, a.v, std::sqrt(0.5), [](auto query, auto key) { return key <= query; }));
  const Shape shape = GENERATE_COPY(Shape{places}, Shape{places, 1}, Shape{1, places, places});
  Array<bool> seen{shape};
  for (std::int64_t i = 0; i < seen.size(); ++i) seen[i] = i % 7 != 3;
  const auto masked = a({.causal = true, .mask = input(a.graph, seen, 3)});
  const auto expected = attend(a.q, a.k, a.v, std::sqrt(0.5), [&](auto query, auto key) {
    return key <= query && seen[shape.rank() == 1 ? key : shape.rank() == 2 ? query
                                                                            : query * places + key];
  });
  const auto found = doubles(evaluate(masked, std::vector{a.q.any(), a.k.any(), a.v.any(), seen.any()}));
  check_close(found, expected);
}

TEST_CASE("the gradient of long causal attention is that of short ones put together") {
  // Queries see only keys of their own half, so two halves alone have the same gradients.
  const std::int64_t half = 200;
  Attention whole{{1, 2 * half, 2}, {1, 2 * half, 2}, {1, 2 * half, 2}};
  const auto inputs = [](Attention& a) { return std::vector{a.q.any(), a.k.any(), a.v.any()}; };
  const auto gradients_of = [&](Attention& a, const AttentionOptions& options) {
    const Tensor<double> q = input(a.graph, a.q, 0), k = input(a.graph, a.k, 1), v = input(a.graph, a.v, 2);
    const auto y = attention(q, k, v, options);
    std::vector<std::vector<double>> result;
    for (const auto& gradient : gradients(sum(y * y), std::vector{q, k, v})) result.push_back(doubles(evaluate(gradient, inputs(a))));
    return result;
  };
  Array<bool> own{{2 * half, 2 * half}};
  for (std::int64_t i = 0; i < own.size(); ++i) own[i] = i / (2 * half) / half == i % (2 * half) / half;
  const auto found = gradients_of(whole, {.causal = true, .mask = constant(whole.graph, own)});
  for (const std::int64_t part : {0, 1}) {
    Attention alone{{1, half, 2}, {1, half, 2}, {1, half, 2}};
    for (auto [to, from] : {std::pair{&alone.q, &whole.q}, std::pair{&alone.k, &whole.k}, std::pair{&alone.v, &whole.v}})
      for (std::int64_t i = 0; i < to->size(); ++i) (*to)[i] = (*from)[part * 2 * half + i];
    const auto expected = gradients_of(alone, {.causal = true});
    for (std::size_t input = 0; input < 3; ++input)
      for (std::size_t i = 0; i < static_cast<std::size_t>(2 * half); ++i)
        CHECK(found[input][static_cast<std::size_t>(part * 2 * half) + i] == Approx(expected[input][i]).margin(1e-11));
  }
}

TEST_CASE("a mask hides keys, of padding say, and is broadcast over queries and heads") {
  Attention a{{2, 3, 4}, {2, 5, 4}, {2, 5, 6}};
  const Array<bool> seen{{2, 1, 5}, {true, true, false, true, false, true, true, true, false, false}};
  const auto masked = a({.mask = input(a.graph, seen, 3)});
  const auto found = doubles(evaluate(masked, std::vector{a.q.any(), a.k.any(), a.v.any(), seen.any()}));
  std::int64_t rows = 0;  // queries of both heads, one after the other
  check_close(found, attend(a.q, a.k, a.v, 0.5, [&](auto, auto key) { return seen[rows++ / 5 / 3 * 5 + key]; }));
}

TEST_CASE("a query that sees no key gives 0, and changes no gradient") {
  Attention a{{1, 2, 3}, {1, 2, 3}, {1, 2, 3}}, first{{1, 1, 3}, {1, 2, 3}, {1, 2, 3}};
  first.q = Array<double>{{1, 1, 3}, {a.q[0], a.q[1], a.q[2]}};
  const auto gradients_of = [](Attention& of, const AttentionOptions& options) {
    const Tensor<double> q = input(of.graph, of.q, 0), k = input(of.graph, of.k, 1), v = input(of.graph, of.v, 2);
    std::vector<double> result;
    for (const auto& gradient : gradients(sum(attention(q, k, v, options)), std::vector{q, k, v}))
      for (const double value : doubles(evaluate(gradient, std::vector{of.q.any(), of.k.any(), of.v.any()}))) result.push_back(value);
    return result;
  };
  const auto mask = constant(a.graph, Array<bool>{{2, 1}, {true, false}});
  const auto y = a.run({.mask = mask});
  for (std::size_t i = 3; i < 6; ++i) CHECK(y[i] == 0);
  auto expected = gradients_of(first, {});
  expected.insert(expected.begin() + 3, 3, 0.0);  // of the second query
  check_close(gradients_of(a, {.mask = mask}), expected);
}

TEST_CASE("attention has the gradient of its formula, causal or not") {
  const bool causal = GENERATE(false, true);
  Attention a{{2, 4, 3}, {2, 4, 3}, {2, 4, 2}};
  const Function f = [&](Graph&, std::span<const AnyTensor> x) {
    return attention(Tensor<double>{x[0]}, Tensor<double>{x[1]}, Tensor<double>{x[2]}, {.causal = causal}).any();
  };
  for (const int order : {1, 2}) CHECK(gradient_error(f, {a.q.any(), a.k.any(), a.v.any()}, order) < 1e-6);
}

TEST_CASE("dropped weights leave the mean as it is on average, and attention of many heads takes [batch, heads, T, D]") {
  Graph graph;
  const Array<double> q{{8, 16, 4, 2}};
  Array<double> v{{8, 16, 4, 1}};
  for (auto& value : v) value = 1;
  const auto y = attention(input(graph, q, 0), input(graph, q, 1), input(graph, v, 2), {.dropout = 0.5});
  CHECK(y.shape() == Shape{8, 16, 4, 1});
  double sum = 0;
  const auto found = doubles(evaluate(y, std::vector{q.any(), q.any(), v.any()}));
  for (const auto value : found) sum += value;
  CHECK(sum / static_cast<double>(found.size()) == Approx(1).epsilon(0.1));
  CHECK(*std::min_element(found.begin(), found.end()) == 0);
}

TEST_CASE("attention of what does not fit names all shapes, the line and what must be") {
  Graph graph;
  const auto of = [&](Shape shape) { return Tensor<float>{input(graph, {DType::float32, shape}, 0)}; };
  CHECK_THROWS_WITH(attention(of({2, 3, 4}), of({2, 5, 3}), of({2, 5, 4})),
                    Contains("replica 0: attention at test_attention.cpp:") &&
                        Contains("found queries float32[2, 3, 4], keys float32[2, 5, 3] and values float32[2, 5, 4]: they must be [.., T, D]"));
  CHECK_THROWS_WITH(attention(of({2, 3, 4}), of({2, 5, 4}), of({2, 5, 4}), {.causal = true}), Contains("causal attention takes as many keys as queries"));
  const auto hiding = [&](Shape shape) { return AttentionOptions{.mask = Tensor<bool>{input(graph, {DType::boolean, shape}, 0)}}; };
  for (const Shape& larger : {Shape{4, 5}, Shape{3, 1, 3, 5}})
    CHECK_THROWS_WITH(attention(of({1, 4}), of({5, 4}), of({5, 2}), hiding(larger)), Contains("does not broadcast to their products float32[1, 5]"));
  CHECK(attention(of({2, 3, 4}), of({2, 5, 4}), of({2, 5, 6}), hiding({3, 1})).shape() == Shape{2, 3, 6});
  for (const Shape& batch : {Shape{3, 5, 4}, Shape{2, 3, 5, 4}})
    CHECK_THROWS_WITH(attention(of({2, 3, 4}), of(batch), of({2, 5, 4})),
                      Contains("attention at test_attention.cpp:") && Contains("axes before the last two cannot be broadcast together"));
  CHECK_THROWS_WITH(attention(of({2, 3, 4}), of({2, 5, 4}), of({3, 5, 4})),
                    Contains("attention at test_attention.cpp:") && Contains("axes before the last two cannot be broadcast together"));
  CHECK_THROWS_WITH(attention(of({2, 3, 4}), of({2, 5, 4}), of({2, 5, 4}), {.dropout = 1}),
                    Catch::Contains("attention at ") && Catch::Contains(": .dropout is 1, which must be at least 0 and less than 1"));
}

TEST_CASE("a mask of keys without axes for heads and queries is refused with the shape that it should have") {
  Graph graph;
  const Tensor<float> x{input(graph, {DType::float32, {6, 2, 5, 4}}, 0)};  // [N, heads, T, D]
  const auto attend = [&](Shape mask) { return attention(x, x, x, {.mask = Tensor<bool>{input(graph, {DType::boolean, mask}, 1)}}); };
  CHECK_THROWS_WITH(attend({6, 5}), Contains("replica 0: attention at test_attention.cpp:") &&
                                        EndsWith(": a mask bool[6, 5] does not broadcast to their products float32[6, 2, 5, 5]; rp::reshape it to [6, 1, 1, 5]"));
  CHECK_THROWS_WITH(attend({7, 5}), Contains("attention at test_attention.cpp:") &&
                                        EndsWith(": a mask bool[7, 5] does not broadcast to their products float32[6, 2, 5, 5]"));
  CHECK(attend({6, 1, 1, 5}).shape() == x.shape());
}

}  // namespace test_attention
