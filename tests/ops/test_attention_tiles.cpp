// SPDX-License-Identifier: Apache-2.0
// The kernels of attention and of its gradient, which keep no weights. The expected values are those of attention in float64,
// which is made of products and a softmax.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include <replicator/cpu/attention.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/ops/attention.hpp>
#include <replicator/ops/recompute.hpp>

#include "../support/cases.hpp"
#include "../support/evaluate.hpp"

namespace test_attention_tiles {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

bool has_tiles() {
  if (cpu::instruction_level() != cpu::InstructionLevel::baseline) return true;
  WARN("skipped: the kernels of attention need AVX2 with FMA");
  return false;
}

struct Sizes {
  Shape batch;
  std::int64_t queries, keys, depth, features;
  bool causal;

  Shape of(std::int64_t rows, std::int64_t columns) const {
    Shape shape = batch;
    shape.push_back(rows), shape.push_back(columns);
    return shape;
  }
};

template <Element T>
AnyArray converted_to(const Array<double>& from) {
  Array<T> result{from.shape()};
  for (std::int64_t i = 0; i < from.size(); ++i) result[i] = static_cast<T>(from[i]);
  return result.any();
}

// Inputs q, k, v, and the gradients of the result, q, k and v.
std::vector<Array<double>> random_inputs(const Sizes& s) {
  const Shape shapes[] = {s.of(s.queries, s.depth), s.of(s.keys, s.depth), s.of(s.keys, s.features),
                          s.of(s.queries, s.features), s.of(s.queries, s.depth), s.of(s.keys, s.depth), s.of(s.keys, s.features)};
  std::vector<Array<double>> result;
  for (const Shape& shape : shapes) result.push_back(random_array<double>(shape, 50 + result.size()));
  for (auto& value : result[0]) value *= 3;  // so that weights differ much
  return result;
}

// Hides the first 200 elements, or half of them if that is less, some hundreds of the others, and some here and there.
Array<bool> random_mask(const Shape& shape) {
  Array<bool> mask{shape};
  const auto hundreds = random_array<float>({mask.size() / 100 + 1}, 90), single = random_array<float>({mask.size()}, 91);
  for (std::int64_t i = std::min<std::int64_t>(200, mask.size() / 2); i < mask.size(); ++i) mask[i] = hundreds[i / 100] < 0.5f && single[i] < 0.5f;
  return mask;
}

struct Run {
  bool second = false;
  int threads = 1;
  std::optional<DeviceKind> kind = DeviceKind::cpu;  // none: in parts
};

// y, its gradients by q, k, v in the direction of the fourth input, and with `second` the gradients of these, by q, k, v and that
// input, in the direction of the others.
template <Element T>
std::vector<AnyArray> attended(const std::vector<Array<double>>& inputs, AttentionOptions options, const std::optional<Array<bool>>& mask = {}, const Run& run = {}) {
  Graph graph;
  std::vector<AnyArray> arrays;
  std::vector<Tensor<T>> in;
  for (const auto& array : inputs) {
    arrays.push_back(converted_to<T>(array));
    in.push_back(Tensor<T>{input(graph, arrays.back().type(), static_cast<std::uint32_t>(in.size()))});
  }
  if (mask) options.mask = Tensor<bool>{input(graph, mask->any().type(), static_cast<std::uint32_t>(in.size()))}, arrays.push_back(mask->any());
  const auto y = attention(in[0], in[1], in[2], options);
  const std::vector<Tensor<T>> of_first{in[0], in[1], in[2]}, of_second{in[0], in[1], in[2], in[3]};
  const auto first = gradients(sum(y * in[3]), of_first);
  std::vector<Value> wanted{y.any().value()};
  for (const auto& gradient : first) wanted.push_back(gradient.any().value());
  if (run.second)
    for (const auto& gradient : gradients(sum(first[0] * in[4]) + sum(first[1] * in[5]) + sum(first[2] * in[6]), of_second)) wanted.push_back(gradient.any().value());
  return evaluate(graph, wanted, arrays, {.threads = run.threads, .kind = run.kind});
}

void check_close(const std::vector<AnyArray>& found, const std::vector<AnyArray>& expected, double most) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(largest_difference(found[i], expected[i]) < most);
  }
}

template <class Op>
int count(const Graph& graph) {
  int result = 0;
  for (const auto& node : graph.nodes()) result += operation_of<Op>(node) != nullptr;
  return result;
}

// A graph of attention and its gradients in float32.
Graph traced(const AttentionOptions& options, const Shape& shape = {2, 8, 4}) {
  Graph graph;
  std::vector<Tensor<float>> in;
  for (std::uint32_t i = 0; i < 3; ++i) in.push_back(Tensor<float>{input(graph, {DType::float32, shape}, i)});
  const auto y = attention(in[0], in[1], in[2], options);
  for (const auto& gradient : gradients(sum(y * y), in)) graph.results().push_back(gradient.any().value());
  return graph;
}

}  // namespace

TEST_CASE("attention without stored weights, and its gradients, are those of the formula for any sizes") {
  if (!has_tiles()) return;
  const Sizes sizes = GENERATE(values<Sizes>({{{}, 1, 1, 1, 1, true},
                                              {{3}, 7, 7, 8, 8, true},
                                              {{2}, 64, 64, 64, 64, true},
                                              {{2}, 65, 65, 80, 64, true},
                                              {{1, 2}, 257, 257, 64, 64, true},
                                              {{1}, 130, 130, 128, 17, true},
                                              {{}, 1, 200, 8, 128, false},
                                              {{2}, 7, 65, 1, 33, false},
                                              {{2, 2}, 65, 7, 80, 8, false},
                                              {{1}, 64, 128, 128, 128, false},
                                              {{1}, 257, 80, 16, 1, false}}));
  CAPTURE(sizes.batch.text(), sizes.queries, sizes.keys, sizes.depth, sizes.features, sizes.causal);
  const auto inputs = random_inputs(sizes);
  const AttentionOptions options{.causal = sizes.causal};
  check_close(attended<float>(inputs, options), attended<double>(inputs, options), 1e-5);
}

TEST_CASE("attention without stored weights has the gradients of its gradients") {
  if (!has_tiles()) return;
  const bool causal = GENERATE(false, true);
  const auto inputs = random_inputs({{2}, 70, 70, 8, 5, causal});
  const AttentionOptions options{.causal = causal, .scale = 0.5};
  check_close(attended<float>(inputs, options, {}, {.second = true}), attended<double>(inputs, options, {}, {.second = true}), 1e-4);
}

TEST_CASE("attention without stored weights takes any scale, products that overflow, and NaN in one query") {
  if (!has_tiles()) return;
  auto inputs = random_inputs({{1}, 70, 70, 4, 4, true});
  for (const double scale : {0.0, -2.0, 8.0}) check_close(attended<float>(inputs, {.causal = true, .scale = scale}), attended<double>(inputs, {.causal = true, .scale = scale}), 2e-5);
  for (std::int64_t key = 0; key < 70; ++key) inputs[1][4 * key] = 1;
  inputs[0][4 * 69] = 1e38, inputs[1][4 * 3] = -1e38;  // this key has no weight for the last query
  const auto overflow = attended<float>(inputs, {.causal = true, .scale = 1});
  for (const double value : doubles(overflow[0])) CHECK(std::isfinite(value));
  // Products of 1e11 that are scaled by a number that is no power of two: the largest one takes all the weight.
  auto large = random_inputs({{1}, 40, 40, 8, 4, true});
  for (std::size_t i : {0u, 1u})
    for (auto& value : large[i]) value *= 1e6f;
  const auto peaked = doubles(attended<float>(large, {})[0]);
  for (const double value : peaked) CHECK(std::isfinite(value));
  inputs[0][4 * 10] = std::nan("");
  const auto found = doubles(attended<float>(inputs, {.causal = true})[0]);
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::isnan(found[i]) == (i / 4 == 10));
}

TEST_CASE("products with a whole tile of keys that are minus infinity leave the weights to the other tiles") {
  if (!has_tiles()) return;
  Graph graph;
  Array<float> q{{1, 1}, {1}}, k{{65, 1}}, v{{65, 1}};
  for (std::int64_t i = 0; i < 65; ++i) k[i] = i < 64 ? -std::numeric_limits<float>::infinity() : 1.0f, v[i] = static_cast<float>(i);
  const auto y = attention(input(graph, q, 0), input(graph, k, 1), input(graph, v, 2));
  CHECK(doubles(evaluate(y, std::vector{q.any(), k.any(), v.any()}, {.kind = DeviceKind::cpu})) == std::vector<double>{64});
}

TEST_CASE("a query of masked attention that sees only products of minus infinity gives 0, with kernels and without") {
  Graph graph;
  const float infinity = std::numeric_limits<float>::infinity();
  const Array<float> q{{2, 1}, {1, -1}}, k{{3, 1}, {-infinity, -infinity, 1}}, v{{3, 1}, {2, 4, 6}};
  const Array<bool> seen{{2, 3}, {true, true, false, false, false, true}};
  const auto y = attention(input(graph, q, 0), input(graph, k, 1), input(graph, v, 2), {.mask = input(graph, seen, 3)});
  for (const auto kind : {std::optional<DeviceKind>{}, std::optional{DeviceKind::cpu}})
    CHECK(doubles(evaluate(y, std::vector{q.any(), k.any(), v.any(), seen.any()}, {.kind = kind})) == std::vector<double>{0, 6});
}

TEST_CASE("queries, keys and values may depend on each other") {
  if (!has_tiles()) return;
  const auto gradient_of = [&]<class T>(T) {
    Graph graph;
    const AnyArray x = converted_to<T>(random_array<double>({2, 20, 4}, 3));
    const Tensor<T> in{input(graph, x.type(), 0)};
    const auto slope = gradient(sum(attention(in, in * in, in + in, {.causal = true}) * in), in);
    return evaluate(gradient(sum(slope * slope), in).any(), std::vector{x}, {.kind = DeviceKind::cpu});
  };
  CHECK(largest_difference(gradient_of(float{}), gradient_of(double{})) < 1e-4);
}

TEST_CASE("the number of threads changes no bit of attention and its gradients") {
  if (!has_tiles()) return;
  const bool causal = GENERATE(false, true);
  auto inputs = random_inputs({{5, 2}, 150, 150, 24, 24, causal});
  for (std::size_t i : {1u, 2u, 5u, 6u}) inputs[i] = random_array<double>({5, 1, 150, 24}, 60 + i);  // two heads share keys and values
  const AttentionOptions options{.causal = causal, .dropout = 0.25};
  const auto one = attended<float>(inputs, options, random_mask({5, 1, 150, 150}));
  for (const int threads : {2, 3, 8}) {
    const auto more = attended<float>(inputs, options, random_mask({5, 1, 150, 150}), {.threads = threads});
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::memcmp(one[i].data(), more[i].data(), one[i].size_bytes()) == 0);
  }
}

TEST_CASE("float32 attention is one operation where the devices have a kernel for it, and its parts elsewhere") {
  for (const auto kind : {std::optional<DeviceKind>{}, std::optional{DeviceKind::cuda}}) {
    const Graph graph = simplify(traced({}), kind);
    CHECK(count<Attention>(graph) + count<AttentionGradient>(graph) == 0);
    CHECK(count<Matmul>(graph) == 6);  // the products of the forward pass are there once
  }
  if (!has_tiles()) return;
  const Graph graph = simplify(traced({.causal = true}), DeviceKind::cpu);
  CHECK(count<Attention>(graph) == 1);
  CHECK(count<AttentionGradient>(graph) == 1);
  CHECK(count<Matmul>(graph) == 0);
}

TEST_CASE("attention without stored weights takes masks of any shape, and a query that sees no key gives 0 and no gradient") {
  if (!has_tiles()) return;
  const bool causal = GENERATE(false, true);
  const Shape shape = GENERATE(values<Shape>({{}, {1}, {200}, {200, 1}, {200, 200}, {3, 1, 200}, {3, 200, 200}, {2, 1, 1, 200}, {2, 3, 200, 1}, {2, 3, 200, 200}}));
  CAPTURE(causal, shape.text());
  const auto inputs = random_inputs({{2, 3}, 200, 200, 8, 5, causal});
  const auto mask = random_mask(shape);
  const auto found = attended<float>(inputs, {.causal = causal}, mask), expected = attended<double>(inputs, {.causal = causal}, mask);
  check_close(found, expected, 1e-5);
  const auto y = doubles(found[0]), dq = doubles(found[1]);
  if (shape.rank() == 4 && shape[2] == 200 && shape[3] == 200) {  // the first query sees nothing
    for (std::size_t f = 0; f < 5; ++f) CHECK(y[f] == 0);
    for (std::size_t d = 0; d < 8; ++d) CHECK(dq[d] == 0);
  }
}

TEST_CASE("queries in groups share keys and values, whose gradients are the sums over the group") {
  if (!has_tiles()) return;
  struct Groups {
    Shape queries, keys;
  };
  const Groups groups = GENERATE(values<Groups>({{{2, 3}, {2, 1}}, {{2, 3}, {1, 3}}, {{2, 3}, {1, 1}}, {{2, 3}, {}}, {{2, 3}, {3}}, {{2, 2, 3}, {2, 1, 3}}}));
  const bool causal = GENERATE(false, true);
  CAPTURE(groups.queries.text(), groups.keys.text(), causal);
  const Sizes of_queries{groups.queries, 70, 70, 8, 5, causal}, of_keys{groups.keys, 70, 70, 8, 5, causal};
  auto inputs = random_inputs(of_queries);
  const auto shared = random_inputs(of_keys);
  for (std::size_t i : {1u, 2u, 5u, 6u}) inputs[i] = shared[i];
  check_close(attended<float>(inputs, {.causal = causal}), attended<double>(inputs, {.causal = causal}), 2e-5);
  check_close(attended<float>(inputs, {.causal = causal}, {}, {.second = true}), attended<double>(inputs, {.causal = causal}, {}, {.second = true}), 1e-4);
}

TEST_CASE("dropout in attention without stored weights drops the same weights as its parts") {
  if (!has_tiles()) return;
  const Sizes sizes = GENERATE(values<Sizes>({{{3}, 7, 7, 8, 8, true}, {{2}, 65, 65, 8, 4, true}, {{1, 2}, 300, 300, 4, 4, true}, {{2}, 5, 200, 8, 8, false}, {{2, 2}, 65, 67, 8, 8, false}}));
  CAPTURE(sizes.batch.text(), sizes.queries, sizes.keys, sizes.causal);
  const auto inputs = random_inputs(sizes);
  const bool masked = GENERATE(false, true);
  const std::optional<Array<bool>> mask = masked ? std::optional{random_mask({sizes.queries, sizes.keys})} : std::nullopt;
  const AttentionOptions options{.causal = sizes.causal, .dropout = GENERATE(0.1, 0.9)};
  const auto found = attended<float>(inputs, options, mask);
  check_close(found, attended<float>(inputs, options, mask, {.kind = {}}), 1e-4);
  if (sizes.keys < 100 || sizes.causal) check_close(attended<float>(inputs, options, mask, {.second = true}), attended<float>(inputs, options, mask, {.second = true, .kind = {}}), 1e-3);
  if (!masked) CHECK(largest_difference(found[0], attended<float>(inputs, {.causal = sizes.causal})[0]) > 0.01);
}

TEST_CASE("dropout in long causal attention drops the same weights forward and backward, on every path") {
  // y = W v, and the gradient by v in the direction d is W^T d. So sum(y d) = sum(v W^T d) where both have the same W.
  const auto inputs = random_inputs({{2}, 600, 600, 4, 4, true});
  const auto product = [](const AnyArray& a, const Array<double>& b) {
    const auto values = doubles(a);
    return std::inner_product(values.begin(), values.end(), b.begin(), 0.0);
  };
  const auto check = [&](const std::vector<AnyArray>& found) { CHECK(product(found[0], inputs[3]) == Approx(product(found[3], inputs[2])).epsilon(1e-4)); };
  check(attended<double>(inputs, {.causal = true, .dropout = 0.5}));
  check(attended<float>(inputs, {.causal = true, .dropout = 0.5}, {}, {.kind = {}}));
  if (has_tiles()) check(attended<float>(inputs, {.causal = true, .dropout = 0.5}));
}

TEST_CASE("attention in float32 is one node with a mask, dropout, and shared heads of keys and values") {
  Graph graph;
  const auto of = [&](Shape shape) { return Tensor<float>{input(graph, {DType::float32, shape}, 0)}; };
  const auto x = of({2, 8, 4}), shared = of({1, 8, 4});
  const auto is_one_node = [&](Tensor<float> y) { return operation_of<Attention>(graph.node(y.any().value())) != nullptr; };
  CHECK(is_one_node(attention(x, x, x)));
  CHECK(is_one_node(attention(x, x, x, {.mask = Tensor<bool>{input(graph, {DType::boolean, {8}}, 1)}})));
  CHECK(is_one_node(attention(x, x, x, {.dropout = 0.5})));
  CHECK(is_one_node(attention(x, shared, shared)));
  CHECK_FALSE(is_one_node(attention(x, x, shared)));
  CHECK_FALSE(is_one_node(attention(shared, x, x)));
  CHECK_FALSE(is_one_node(attention(of({2, 0, 4}), x, x)));
  const auto mixed = mixed_precision(graph);
  CHECK_FALSE(is_one_node(attention(x, x, x)));
}

TEST_CASE("attention inside rp::recompute is computed again for the backward pass, with the same bits") {
  if (!has_tiles()) return;
  const auto made = [](bool again) {
    Graph graph;
    const Tensor<float> x{input(graph, {DType::float32, {2, 70, 8}}, 0)};
    const auto block = [](Tensor<float> v) { return attention(v, v * v, v, {.causal = true}) * 2.0f; };
    const auto y = again ? recompute(block)(x) : block(x);
    const auto loss = sum(y * y);
    graph.results() = {loss.any().value(), gradient(loss, x).any().value()};
    return condense(graph, {.smallest = 0}, DeviceKind::cpu);
  };
  const Graph kept = made(false), again = made(true);
  CHECK(count<Attention>(kept) == 1);
  CHECK(count<Attention>(again) == 2);
  const std::vector inputs{random_array<float>({2, 70, 8}, 1).any()};
  const auto a = evaluate(kept, inputs, {.kind = DeviceKind::cpu}), b = evaluate(again, inputs, {.kind = DeviceKind::cpu});
  CHECK(std::memcmp(a[1].data(), b[1].data(), a[1].size_bytes()) == 0);
}

TEST_CASE("attention counts the arithmetic of its products: half of it where it is causal") {
  const TensorType inputs[] = {{DType::float32, {3, 10, 4}}, {DType::float32, {3, 20, 4}}, {DType::float32, {3, 20, 6}}};
  CHECK(AnyOperation{Attention{}}.work(inputs) == 3 * 2 * 10 * 20 * (4 + 6));
  CHECK(AnyOperation{AttentionGradient{}}.work(inputs) == 3 * 2 * 10 * 20 * (3 * 4 + 2 * 6));
  const TensorType square[] = {inputs[0], inputs[0], inputs[0]};
  CHECK(AnyOperation{Attention{.causal = true}}.work(square) == 3 * 2 * (10 * 11 / 2) * (4 + 4));
}

#if defined(__x86_64__)  // other processors have no such loops
TEST_CASE("the loops for AVX2 give the bits of those for AVX-512") {
  if (cpu::instruction_level() != cpu::InstructionLevel::avx512) {
    WARN("skipped: needs AVX-512");
    return;
  }
  constexpr auto tile = cpu::attention_tile;
  const auto random = [](std::int64_t count, std::uint64_t seed) { return random_array<float>({count}, seed); };
  const auto twice = [](const auto& values, const auto& compute) {
    auto a = values, b = values;
    compute(cpu::attention_avx2, a), compute(cpu::attention_avx512, b);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::memcmp(a[i].data(), b[i].data(), static_cast<std::size_t>(a[i].size()) * sizeof(float)) == 0);
  };
  using Arrays = std::vector<Array<float>>;
  for (const std::int64_t rows : {1, 5, 13, 64})
    for (const std::int64_t columns : {1, 7, 16, 29, 64, 70})
      for (const bool add : {false, true})
        twice(Arrays{random(rows * 19, 1), random(19 * columns, 2), random(rows * columns, 3)}, [&](const auto& loops, Arrays& m) {
          loops.multiply({rows, 19, columns}, {m[0].data(), 1, rows}, {m[1].data(), columns}, {m[2].data(), columns}, add);
        });
  cpu::AttentionBits seen{}, kept{};
  const auto words = random(static_cast<std::int64_t>(seen.size()), 14);
  for (std::size_t i = 0; i < seen.size(); ++i) std::memcpy(&seen[i], &words[static_cast<std::int64_t>(i)], 2);
  cpu::draw_kept({{0, 7, 1, 5}, {3, 4}, cpu::AttentionDropout::threshold_of(0.3), 1}, 1200, 204, 3, kept);
  for (const std::int64_t first : {0, 2})
    for (const std::uint16_t* of_seen : {static_cast<const std::uint16_t*>(nullptr), cpu::diagonal_bits.data(), static_cast<const std::uint16_t*>(seen.data())}) {
      const bool drops = of_seen != nullptr;
      const cpu::AttentionPart part{0, of_seen == cpu::diagonal_bits.data() ? 16 : 50, first, of_seen, drops ? kept.data() : nullptr, drops ? 1.25f : 1.0f};
      twice(Arrays{random(tile * tile, 4), random(tile, 5), random(tile, 6), random(tile, 7)}, [&](const auto& loops, Arrays& m) {
        loops.weigh(m[0].data(), part, 4, 30.0f, m[1].data(), m[2].data(), m[3].data());
      });
      Array<float> log_sums{{tile}};
      std::fill(log_sums.begin(), log_sums.end(), 100.0f);  // above all scaled products
      twice(Arrays{random(tile * tile, 8), random(tile * tile, 9), random(tile, 10)}, [&](const auto& loops, Arrays& m) {
        loops.weigh_back(m[0].data(), m[1].data(), part, 4, log_sums.data(), m[2].data(), 20.0f);
      });
    }
  for (const std::int64_t columns : {1, 8, 16, 37})
    twice(Arrays{random(5 * columns, 11), random(5, 12), random(1, 13)}, [&](const auto& loops, Arrays& m) {
      loops.scale_rows(m[0].data(), m[1].data(), 5, columns);
      loops.divide_rows(m[0].data(), m[1].data(), 5, columns);
      m[2][0] = loops.dot(m[0].data(), m[0].data() + columns, columns);
    });
}
#endif

}  // namespace test_attention_tiles
