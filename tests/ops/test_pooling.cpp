// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include <replicator/cpu/pooling.hpp>

#include "../support/differences.hpp"

namespace test_pooling {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

struct PoolingCase {
  PoolingOptions options;
  Shape x, y;
  std::string text() const {
    AttributePrinter printer;
    options.describe(printer);
    return x.text() + " " + printer.text();
  }
};

PoolingCase pooling_case(const Shape& x, const PoolingOptions& options) {
  const auto o = replicator::detail::with_stride(options);
  return {o, x, replicator::detail::pooled_shape(x, o)};
}

PoolingCase draw_pooling(const std::vector<std::int64_t>& channels) {
  const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
  PoolingOptions o;
  Shape x{in(1, 2), *rc::gen::elementOf(channels)};
  for (std::size_t i = 0; i < 2; ++i) {
    o.window[i] = in(1, 4);
    o.stride[i] = in(0, 3);
    o.padding.low[i] = in(0, o.window[i] - 1);
    o.padding.high[i] = in(0, o.window[i] - 1);
    x.push_back(in(std::max<std::int64_t>(1, o.window[i] - o.padding.low[i] - o.padding.high[i]), 8));
  }
  o.count_include_pad = in(0, 1) == 1;
  return pooling_case(x, o);
}

// For each window its elements of x in row-major order, by the definition.
std::vector<std::vector<std::size_t>> windows(const PoolingCase& c) {
  std::vector<std::vector<std::size_t>> result;
  for_each_index(c.y, [&](const std::vector<std::int64_t>& i) {
    auto& window = result.emplace_back();
    for (std::int64_t a = 0; a < c.options.window[0]; ++a)
      for (std::int64_t b = 0; b < c.options.window[1]; ++b) {
        const std::int64_t row = i[2] * c.options.stride[0] + a - c.options.padding.low[0];
        const std::int64_t column = i[3] * c.options.stride[1] + b - c.options.padding.low[1];
        if (row < 0 || column < 0 || row >= c.x[2] || column >= c.x[3]) continue;
        window.push_back(static_cast<std::size_t>(((i[0] * c.x[1] + i[1]) * c.x[2] + row) * c.x[3] + column));
      }
  });
  return result;
}

struct PoolingResults {
  std::vector<double> maximum, spread, picked, average, shared;
};

PoolingResults by_definition(const PoolingCase& c, const AnyArray& x, const AnyArray& u, const AnyArray& dy) {
  const auto xs = doubles(x), us = doubles(u), dys = doubles(dy);
  PoolingResults r;
  r.spread.resize(xs.size());
  r.shared.resize(xs.size());
  const auto all = windows(c);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& w = all[i];
    const auto best = *std::max_element(w.begin(), w.end(), [&](auto a, auto b) { return xs[a] < xs[b]; });
    const auto count = static_cast<double>(c.options.count_include_pad ? c.options.window[0] * c.options.window[1]
                                                                       : static_cast<std::int64_t>(w.size()));
    r.maximum.push_back(xs[best]);
    r.spread[best] += dys[i];
    r.picked.push_back(us[best]);
    r.average.push_back(std::accumulate(w.begin(), w.end(), 0.0, [&](double sum, auto at) { return sum + xs[at]; }) /
                        count);
    for (const auto at : w) r.shared[at] += dys[i] / count;
  }
  return r;
}

// The largest difference between kernels and definition. x is offered in `layout`; few different values, so that maxima
// tie.
template <Element T>
double pooling_error(const PoolingCase& c, const Layout& layout = {}, int threads = 1) {
  auto x = random_array<T>(c.x, 1);
  for (auto& value : x) value = static_cast<T>(static_cast<int>(value * 3));
  const auto u = random_array<T>(c.x, 2).any(), dy = random_array<T>(c.y, 3).any();
  const auto expected = by_definition(c, x.any(), u, dy);
  const auto error = [&](const AnyOperation& op, std::vector<Held> in, const Shape& shape,
                         const std::vector<double>& values) {
    const TensorType type{dtype_of<T>, shape};
    const auto found = run_kernel(op, std::move(in), {&type, 1}, {.threads = threads})[0];
    return largest_difference(array_of(found), array_of(type, values));
  };
  const Held laid = relaid(held(x.any()), layout);
  return std::max({error(MaxPool{c.options}, {laid}, c.y, expected.maximum),
                   error(MaxPoolSpread{c.options}, {laid, held(dy)}, c.x, expected.spread),
                   error(MaxPoolPick{c.options}, {laid, held(u)}, c.y, expected.picked),
                   error(AveragePool{c.options}, {laid}, c.y, expected.average),
                   error(AveragePoolTranspose{c.options, c.x}, {held(dy)}, c.x, expected.shared)});
}

AnyArray as_type(DType to, const AnyArray& x) { return array_of({to, x.shape()}, doubles(x)); }

// Whether an operation has the bits of the one on the same numbers in float32, rounded to bfloat16 in the end.
bool rounds_once(const AnyOperation& op, const std::vector<AnyArray>& inputs, const Shape& output, cpu::detail::ImageLayout layout, int threads) {
  const auto run = [&](DType dtype, const std::vector<AnyArray>& arrays) {
    std::vector<Held> in;
    for (const auto& array : arrays) in.push_back(held(array));
    in[0] = relaid(in[0], layout.of(in[0].type.shape));
    const TensorType type{dtype, output};
    return array_of(run_kernel(op, std::move(in), {&type, 1}, {.threads = threads})[0]);
  };
  std::vector<AnyArray> widened;
  for (const auto& input : inputs) widened.push_back(as_type(DType::float32, input));
  const AnyArray found = run(DType::bfloat16, inputs), expected = as_type(DType::bfloat16, run(DType::float32, widened));
  return std::memcmp(found.data(), expected.data(), found.size_bytes()) == 0;
}

}  // namespace

TEST_CASE("pooling and its transposes are as defined, ties included") {
  REQUIRE(rc::check("row-major", [] {
    const auto c = draw_pooling({1, 3});
    RC_LOG(c.text());
    RC_ASSERT(pooling_error<float>(c) < 1e-6);
    RC_ASSERT(pooling_error<double>(c) < 1e-15);
  }));
}

TEST_CASE("pooling takes blocked channels and channels last as they are") {
  REQUIRE(rc::check("layouts", [] {
    const auto c = draw_pooling({3, 8, 10, 16, 17, 24});
    RC_LOG(c.text());
    for (const auto& layout :
         {cpu::detail::channel_blocks(c.x, 8), cpu::detail::channel_blocks(c.x, 16), channels_last(c.x)}) {
      RC_ASSERT(pooling_error<float>(c, layout) < 1e-6);
      RC_ASSERT(pooling_error<double>(c, layout) < 1e-15);
    }
  }));
}

TEST_CASE("pooling of bfloat16, in any layout and by any number of threads, has the bits of float32, rounded once") {
  REQUIRE(rc::check("layouts", [] {
    const auto c = draw_pooling({1, 3, 8, 16, 17, 32});
    RC_LOG(c.text());
    auto x = random_array<bfloat16>(c.x, 1);
    for (auto& value : x) value = std::floor(value * 3);
    const auto u = random_array<bfloat16>(c.x, 2).any(), dy = random_array<bfloat16>(c.y, 3).any(), wide = random_array<float>(c.y, 4).any();
    for (const auto& [channels, threads] : {std::pair{1, 2}, {8, 1}, {16, 1}, {16, 3}, {0, 1}}) {
      const cpu::detail::ImageLayout layout{channels};
      RC_ASSERT(rounds_once(MaxPool{c.options}, {x.any()}, c.y, layout, threads));
      RC_ASSERT(rounds_once(MaxPoolSpread{c.options}, {x.any(), dy}, c.x, layout, threads));
      RC_ASSERT(rounds_once(MaxPoolSpread{c.options}, {x.any(), wide}, c.x, layout, threads));
      RC_ASSERT(rounds_once(MaxPoolPick{c.options}, {x.any(), u}, c.y, layout, threads));
      RC_ASSERT(rounds_once(AveragePool{c.options}, {x.any()}, c.y, layout, threads));
      RC_ASSERT(rounds_once(AveragePoolTranspose{c.options, c.x}, {dy}, c.x, layout, threads));
    }
  }));
}

TEST_CASE("two threads share the planes of a pooling") {
  const auto c = pooling_case({3, 17, 6, 5}, {.window = {3, 2}, .stride = {1, 2}, .padding = {1, 1}});
  CHECK(pooling_error<float>(c, {}, 2) < 1e-6);
  CHECK(pooling_error<float>(c, cpu::detail::channel_blocks(c.x, 16), 2) < 1e-6);
}

TEST_CASE("pooling gives the layout it was offered, and row-major for one it does not know") {
  const auto c = pooling_case({2, 20, 6, 6}, {.window = {2, 2}});
  const AnyOperation op = MaxPool{c.options};
  const TensorType in{DType::float32, c.x}, out{DType::float32, c.y};
  const auto given = [&](const Layout& offered) {
    return make_kernel(op, {op, {&in, 1}, {&out, 1}, {&offered, 1}, 1}, KernelTier::reference)->output_layouts[0];
  };
  CHECK(given(cpu::detail::channel_blocks(c.x, 16)) == cpu::detail::channel_blocks(c.y, 16));
  CHECK(given(channels_last(c.x)) == channels_last(c.y));
  Layout other = cpu::detail::channel_blocks(c.x, 16);
  other.axis[0] = 0;
  CHECK(given(other).plain);
}

TEST_CASE("the gradients of pooling agree with differences to second order") {
  REQUIRE(rc::check("max, average", [] {
    const auto c = draw_pooling({2});
    RC_LOG(c.text());
    // Whole numbers far apart: no small step changes which is the largest.
    Array<double> x{c.x};
    for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((i * 7919) % 10007);
    const Function maximum = [&](Graph& graph, std::span<const AnyTensor> in) {
      return compute(graph, MaxPool{c.options}, {in[0]}, {});
    };
    const Function average = [&](Graph& graph, std::span<const AnyTensor> in) {
      return compute(graph, AveragePool{c.options}, {in[0]}, {});
    };
    const Function squared = [&](Graph& graph, std::span<const AnyTensor> in) {
      const AnyTensor y = maximum(graph, in);
      return apply(ScalarOp::multiply, {y, y}, {});
    };
    RC_ASSERT(gradient_error(maximum, {x.any()}, 1, 1e-2) < 1e-7);
    RC_ASSERT(gradient_error(average, {x.any()}, 1, 1e-2) < 1e-7);
    RC_ASSERT(gradient_error(squared, {x.any()}, 1, 1e-2) < 1e-5);
    RC_ASSERT(gradient_error(squared, {x.any()}, 2, 1e-2) < 1e-5);
  }));
}

TEST_CASE("the transposes of pooling have gradients themselves") {
  const auto c = pooling_case({1, 2, 5, 4}, {.window = {3, 2}, .stride = {1, 2}, .padding = {1, 0}});
  const auto x = random_array<double>(c.x, 1).any(), dy = random_array<double>(c.y, 2).any(),
             u = random_array<double>(c.x, 3).any();
  const Function spread = [&](Graph& graph, std::span<const AnyTensor> in) {
    return compute(graph, MaxPoolSpread{c.options}, {constant_node(graph, x, {}), in[0]}, {});
  };
  const Function pick = [&](Graph& graph, std::span<const AnyTensor> in) {
    return compute(graph, MaxPoolPick{c.options}, {constant_node(graph, x, {}), in[0]}, {});
  };
  const Function share = [&](Graph& graph, std::span<const AnyTensor> in) {
    return compute(graph, AveragePoolTranspose{c.options, c.x}, {in[0]}, {});
  };
  CHECK(gradient_error(spread, {dy}, 1) < 1e-8);
  CHECK(gradient_error(pick, {u}, 1) < 1e-8);
  CHECK(gradient_error(share, {dy}, 1) < 1e-8);
}

TEST_CASE("a window whose elements are all minus infinity gives minus infinity, and a NaN wins") {
  const float low = -std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Graph graph;
  const Array<float> x{{1, 1, 1, 6}, {low, low, 1, nan, nan, 2}};
  const auto y = max_pool(input(graph, x, 0), {.window = {1, 2}});
  const auto values = doubles(evaluate(y, std::vector{x.any()}));
  CHECK(values[0] == low);
  CHECK(std::isnan(values[1]));
  CHECK(std::isnan(values[2]));
}

TEST_CASE("the global average is the mean over both spatial axes") {
  Graph graph;
  const auto x = random_array<double>({2, 3, 4, 5}, 1);
  const auto found = doubles(evaluate(global_average_pool(input(graph, x, 0)), std::vector{x.any()}));
  REQUIRE(found.size() == 6);
  for (std::int64_t i = 0; i < 6; ++i)
    CHECK(found[static_cast<std::size_t>(i)] ==
          Approx(std::accumulate(x.data() + 20 * i, x.data() + 20 * (i + 1), 0.0) / 20));
}

TEST_CASE("the maxima of integers and bools are exact") {
  const PoolingOptions pairs{.window = {1, 2}};
  const auto pooled = [&](const auto& x) {
    Graph graph;
    return doubles(evaluate(max_pool(input(graph, x, 0), pairs), std::vector{x.any()}));
  };
  CHECK(pooled(Array<std::uint8_t>{{1, 1, 1, 4}, {3, 255, 0, 0}}) == std::vector<double>{255, 0});
  CHECK(pooled(Array<bool>{{1, 1, 1, 4}, {false, true, false, false}}) == std::vector<double>{1, 0});
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max(), least = std::numeric_limits<std::int32_t>::min();
  CHECK(pooled(Array<std::int32_t>{{1, 1, 1, 4}, {most, most - 1, least, least + 1}}) == std::vector<double>{most, least + 1.0});
}

TEST_CASE("one number is the extent of both axes") {
  constexpr PoolingOptions o{.window = 3, .stride = 2};
  CHECK(o.window == Extents2d{3, 3});
  CHECK(o.stride == Extents2d{2, 2});
  CHECK(PoolingOptions{.window{4}}.window == Extents2d{4, 4});
  CHECK(Extents2d{} == Extents2d{0, 0});
  CHECK(PoolingOptions{.padding = 1}.padding == SpatialPadding{1, 1});
  CHECK(SpatialPadding{{1, 2}, {3, 4}}.low == Extents2d{1, 3});
  Graph graph;
  const auto x = Tensor<float>{input(graph, {DType::float32, {1, 1, 7, 9}}, 0)};
  CHECK(max_pool(x, {.window = 3, .stride = 2}).shape() == Shape{1, 1, 3, 4});
}

TEST_CASE("pooling says which extents do not fit") {
  Graph graph;
  const auto x = Tensor<float>{input(graph, {DType::float32, {1, 1, 4, 4}}, 0)};
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(max_pool(x, {.window = {5, 1}}),
                    Contains("max_pool at test_pooling.cpp:") && Contains("a window of 5 does not fit"));
  CHECK_THROWS_WITH(average_pool(x, {.window = {2, 2}, .padding = {2, 0}}),
                    Contains("leaves windows of 2 without an element"));
  CHECK_THROWS_WITH(max_pool(x, {.window = {0, 1}}), Contains("asked for a window of 0 over an extent of 4: both start at 1"));
  CHECK_THROWS_WITH(max_pool(Tensor<float>{input(graph, {DType::float32, {4, 4}}, 0)}, {}), Contains("found [4, 4]"));
  const AnyTensor whole = input(graph, {DType::int32, {1, 1, 4, 4}}, 1), half = input(graph, {DType::int32, {1, 1, 2, 2}}, 2);
  const PoolingOptions pairs{.window = {2, 2}, .stride = {2, 2}};
  for (const AnyOperation& operation : {AnyOperation{MaxPoolSpread{pairs}}, AnyOperation{MaxPoolPick{pairs}}})
    CHECK_THROWS_WITH(compute(graph, operation, {whole, operation.get<MaxPoolPick>() ? whole : half}, {}),
                      Contains("x must be of a floating type, found int32[1, 1, 4, 4]"));
  CHECK_THROWS_WITH(compute(graph, AveragePoolTranspose{pairs, {1, 1, 4, 4}}, {half}, {}), Contains("x must be of a floating type, found int32"));
  const AnyTensor narrow = input(graph, {DType::bfloat16, {1, 1, 4, 4}}, 3), odd = input(graph, {DType::float32, {1, 1, 3, 3}}, 4);
  CHECK_THROWS_WITH(compute(graph, MaxPoolSpread{pairs}, {narrow, odd}, {}),
                    Contains("x bfloat16[1, 1, 4, 4] is pooled to [1, 1, 2, 2], found float32[1, 1, 3, 3]"));
}

}  // namespace test_pooling
