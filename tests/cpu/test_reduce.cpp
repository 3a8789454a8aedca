// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "elementwise_cases.hpp"

#include <replicator/cpu/reduce.hpp>
#include <replicator/graph/map_gradient.hpp>

namespace test_reduce {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

struct ReduceCase {
  Reduce reduce;
  std::vector<TensorType> inputs;
  std::vector<Layout> offered;
  std::vector<std::vector<std::byte>> data;
};

std::unique_ptr<Executable> make(const ReduceCase& c, int threads) {
  const AnyOperation operation{c.reduce};
  const auto outputs = c.reduce.infer_shape(c.inputs);
  return cpu::make_reduce({operation, c.inputs, outputs, c.offered, threads});
}

std::vector<std::vector<std::byte>> run(const ReduceCase& c, int threads, std::size_t misalignment) {
  const auto e = make(c, threads);
  Memory memory;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    auto* at = memory.add(c.data[i].size(), misalignment * size_of(c.inputs[i].dtype));
    if (!c.data[i].empty()) std::memcpy(at, c.data[i].data(), c.data[i].size());
    inputs.push_back(at);
  }
  const auto types = c.reduce.infer_shape(c.inputs);
  for (const auto& type : types) outputs.push_back(memory.add(type.bytes(), misalignment * size_of(type.dtype)));
  e->run({inputs.data(), outputs.data(), memory.add(e->scratch_bytes, 0), {}, nullptr});
  std::vector<std::vector<std::byte>> result;
  for (std::size_t o = 0; o < types.size(); ++o) {
    result.emplace_back(outputs[o], outputs[o] + types[o].bytes());
    REQUIRE(outputs[o][types[o].bytes()] == std::byte{0xA5});
  }
  return result;
}

ReduceCase random_case() {
  static const Shape shapes[] = {{}, {1}, {7}, {1000}, {20000}, {3, 5}, {40, 10}, {300, 37}, {2, 3, 49}, {2, 32, 7, 7}, {70, 16}, {2, 16, 9, 13}, {3, 48, 5, 1}, {2, 32, 20, 20}, {2, 3, 4, 5, 6}, {9000, 3}, {3, 2, 5000}, {10, 2048}};
  ReduceCase c;
  c.reduce.domain = shapes[draw(0, static_cast<int>(std::size(shapes)))];
  c.reduce.kind = static_cast<ReduceKind>(draw(0, 3));
  for (std::size_t axis = 0; axis < c.reduce.domain.rank(); ++axis)
    if (draw(0, 2)) c.reduce.axes.push_back(static_cast<std::int64_t>(axis));
  const DType computes[] = {DType::float32, DType::float32, DType::float64, DType::int32, DType::int64};
  const int count = draw(1, 4);
  const auto expression = random_expression(computes[draw(0, 5)], count, draw(1, 3), true);
  c.reduce.expression = std::make_shared<const Expression>(expression);
  const DType usual = expression.compute == DType::float32 && draw(0, 2) ? DType::bfloat16 : expression.compute;
  for (int i = 0; i < count; ++i) {
    const DType dtype = draw(0, 3) ? usual : static_cast<DType>(draw(0, 7));
    c.inputs.push_back({dtype, i == 0 ? c.reduce.domain : random_operand(c.reduce.domain)});
    Layout layout;
    if (c.inputs.back().shape == c.reduce.domain && c.reduce.domain.rank() == 4) {
      const int kind = draw(0, 4);
      if (kind == 1) layout = blocked(c.reduce.domain, 1, 16);
      if (kind == 2) layout = permuted(c.reduce.domain, {0, 2, 3, 1});
    }
    c.offered.push_back(layout);
    c.data.emplace_back(c.inputs.back().bytes());
    fill_random(c.data.back(), dtype, static_cast<std::size_t>(13 * i + draw(0, 1000)), true);
  }
  for (std::size_t o = 0; o < expression.outputs.size(); ++o) c.reduce.dtypes.push_back(expression.compute);
  return c;
}

// Sums in long double, minima and maxima exactly; and the sum of the magnitudes, to judge the error by.
template <class T>
void check_against_reference(const ReduceCase& c, const std::vector<std::vector<std::byte>>& results) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, long double>;
  const auto e = make(c, 1);
  const auto& domain = c.reduce.domain;
  const auto type = c.reduce.infer_shape(c.inputs)[0];
  const auto kept = static_cast<std::size_t>(type.shape.elements());
  std::vector<std::vector<Wide>> expected(results.size(), std::vector<Wide>(kept));
  std::vector<std::vector<long double>> scale(results.size(), std::vector<long double>(kept));
  std::vector<bool> seen(kept);
  for_each_index(domain, [&](const Index& index) {
    std::vector<T> values;
    Index own{};
    std::size_t axes = 0;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      const std::int64_t at = c.inputs[i].shape == domain ? offset_in(e->input_layouts[i], domain, index)
                                                          : broadcast_offset(c.inputs[i].shape, domain, index);
      values.push_back(load<T>(c.data[i].data(), c.inputs[i].dtype, at));
    }
    for (std::size_t axis = 0; axis < domain.rank(); ++axis)
      if (std::find(c.reduce.axes.begin(), c.reduce.axes.end(), static_cast<std::int64_t>(axis)) == c.reduce.axes.end())
        own[axes++] = index[axis];
    const auto at = static_cast<std::size_t>(offset_in({}, type.shape, own));
    const auto outputs = evaluate<T>(*c.reduce.expression, values);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const auto x = static_cast<Wide>(outputs[o]);
      auto& r = expected[o][at];
      if (c.reduce.kind == ReduceKind::sum) r = static_cast<Wide>(seen[at] ? r + x : x);
      else if (!seen[at] || x != x) r = x;
      else if (c.reduce.kind == ReduceKind::min) r = x < r ? x : r;
      else r = r < x ? x : r;
      scale[o][at] += std::abs(static_cast<long double>(x));
    }
    seen[at] = true;
  });
  for (std::size_t o = 0; o < results.size(); ++o)
    for (std::size_t k = 0; k < kept; ++k) {
      T got;
      std::memcpy(&got, results[o].data() + k * sizeof(T), sizeof(T));
      if constexpr (std::is_integral_v<T>) {
        RC_ASSERT(got == static_cast<T>(expected[o][k]));
      } else {
        const long double tolerance = c.reduce.kind == ReduceKind::sum ? scale[o][k] * 100 * std::numeric_limits<T>::epsilon() : 0;
        const auto want = expected[o][k];
        const bool same = want == got || (std::isnan(want) && std::isnan(got)) || std::abs(want - got) <= tolerance ||
                          !(scale[o][k] < std::numeric_limits<T>::max() / 4);
        if (!same) RC_FAIL(c.reduce.expression->text() + ": " + std::to_string(got) + " instead of " + std::to_string(want));
      }
    }
}

Expression identity_expression() {
  Expression e;
  e.inputs = 1;
  e.outputs = {e.input(0)};
  return e;
}

ReduceCase plain_sum(Shape shape, std::vector<std::int64_t> axes, std::uint64_t seed) {
  ReduceCase c;
  c.reduce = {ReduceKind::sum, std::make_shared<const Expression>(identity_expression()), std::move(axes), shape, {DType::float32}};
  c.inputs = {{DType::float32, shape}};
  c.offered = {Layout{}};
  c.data.emplace_back(c.inputs[0].bytes());
  fill_random(c.data[0], DType::float32, seed, true);
  return c;
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> result(bytes.size() / 4);
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

// The order as it is written down, without a thought for speed.
float balanced(std::vector<float> x) {
  while (x.size() > 1) {
    for (std::size_t i = 0; i < x.size() / 2; ++i) x[i] += x[i + x.size() / 2];
    x.resize(x.size() / 2);
  }
  return x[0];
}
float counted(const std::vector<float>& x) {
  std::vector<std::pair<float, int>> stack;
  for (const float value : x) {
    stack.emplace_back(value, 1);
    while (stack.size() > 1 && stack[stack.size() - 2].second == stack.back().second) {
      const auto right = stack.back();
      stack.pop_back();
      stack.back() = {stack.back().first + right.first, 2 * right.second};
    }
  }
  float total = stack.back().first;
  for (std::size_t i = stack.size() - 1; i-- > 0;) total = stack[i].first + total;
  return total;
}
float in_blocks(const std::vector<float>& x, std::size_t lanes) {
  std::vector<float> blocks;
  for (std::size_t begin = 0; begin < x.size(); begin += 4096) {
    std::vector<float> lane(lanes, -0.0f);
    for (std::size_t i = begin; i < std::min(x.size(), begin + 4096); ++i) lane[(i - begin) % lanes] += x[i];
    blocks.push_back(balanced(lane));
  }
  return counted(blocks);
}

}  // namespace

TEST_CASE("a reduction equals the sum, minimum or maximum for any axes, layouts and dtypes, whatever the threads and alignment") {
  CHECK(rc::check([] {
    for (int repeat = 0; repeat < 10; ++repeat) {
      const auto c = random_case();
      const auto results = run(c, 1, 0);
      switch (c.reduce.expression->compute) {
        case DType::float32: check_against_reference<float>(c, results); break;
        case DType::float64: check_against_reference<double>(c, results); break;
        case DType::int32: check_against_reference<std::int32_t>(c, results); break;
        default: check_against_reference<std::int64_t>(c, results);
      }
      RC_ASSERT(run(c, 1, static_cast<std::size_t>(draw(0, 16))) == results);
      RC_ASSERT(run(c, 2, 0) == results);
      RC_ASSERT(run(c, 3, 0) == results);
    }
  }));
}

TEST_CASE("large reductions have the same bits under one, two and three threads") {
  const Shape shape{5, 32, 60, 61};
  for (const auto& layout : {Layout{}, blocked(shape, 1, 16), permuted(shape, {0, 2, 3, 1})})
    for (const auto& axes : {std::vector<std::int64_t>{0, 2, 3}, {0, 1, 2, 3}, {3}, {0}, {1}, {2, 3}, {0, 1}}) {
      auto c = plain_sum(shape, axes, 5);
      c.offered = {layout};
      const auto once = run(c, 1, 0);
      CHECK(run(c, 2, 3) == once);
      CHECK(run(c, 3, 1) == once);
    }
}

TEST_CASE("of several NaN the same one is the sum of stored bfloat16, for any number of threads") {
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, std::int64_t>>{{{235, 215}, 1}, {{324, 330}, 1}, {{34, 34, 30}, 1}, {{300, 64}, 0}}) {
    auto c = plain_sum(shape, {axis}, 5);
    c.inputs[0].dtype = DType::bfloat16;
    const std::size_t elements = c.data[0].size() / 4;
    c.data[0].resize(2 * elements);
    for (std::size_t i = 0; i < elements; ++i) {
      const std::uint32_t random = static_cast<std::uint32_t>(i) * 2654435761u >> 16;
      const auto bits = static_cast<std::uint16_t>(random % 6 == 0 ? 0x7fc0 | (random & 0x803f) : 0x3f80);
      std::memcpy(c.data[0].data() + 2 * i, &bits, 2);
    }
    CAPTURE(shape.text(), axis);
    const auto once = run(c, 1, 0);
    CHECK(run(c, 3, 0) == once);
    CHECK(run(c, 5, 0) == once);
  }
}

TEST_CASE("sums of bfloat16, which are read as they are stored, have the bits of sums of the same numbers in float32") {
  for (const Shape& shape : {Shape{2, 32, 20, 61}, Shape{3, 16, 5, 7}, Shape{1, 48, 1, 3}})
    for (const auto& layout : {Layout{}, blocked(shape, 1, 16), permuted(shape, {0, 2, 3, 1})})
      for (const auto& axes : {std::vector<std::int64_t>{0, 2, 3}, {0, 1, 2, 3}, {3}, {0}, {1}, {2, 3}, {0, 1}})
        for (const bool twice : {false, true}) {
          auto c = plain_sum(shape, axes, 5);
          if (twice) {  // widened for one output, read as it is for another
            auto e = *c.reduce.expression;
            e.outputs.push_back(e.apply(ScalarOp::absolute, e.outputs[0]));
            c.reduce.expression = std::make_shared<const Expression>(e);
            c.reduce.dtypes.push_back(DType::float32);
          }
          c.offered = {layout};
          auto stored = c;
          stored.inputs[0].dtype = DType::bfloat16;
          stored.data[0].resize(c.data[0].size() / 2);
          for (std::size_t i = 0; i < c.data[0].size() / 4; ++i) {
            float value;
            std::memcpy(&value, c.data[0].data() + 4 * i, 4);
            const bfloat16 narrow{value};
            value = narrow;
            std::memcpy(c.data[0].data() + 4 * i, &value, 4);
            std::memcpy(stored.data[0].data() + 2 * i, &narrow, 2);
          }
          CAPTURE(shape.text(), axes, twice);
          CHECK(run(stored, 1, 0) == run(c, 1, 0));
          CHECK(run(stored, 3, 1) == run(c, 1, 0));
        }
}

TEST_CASE("a full sum follows blocks of 4,096 elements, 64 lanes and the trees") {
  for (const std::int64_t n : {200, 4096, 4097, 50000, 100003}) {
    const auto c = plain_sum({n}, {0}, static_cast<std::uint64_t>(n));
    CHECK(floats(run(c, 2, 0)[0])[0] == in_blocks(floats(c.data[0]), 64));
  }
}

TEST_CASE("a sum per channel follows the rows of each image, then the tree over the images") {
  const std::int64_t images = 5, channels = 3, pixels = 5000;
  const auto c = plain_sum({images, channels, pixels}, {0, 2}, 9);
  const auto x = floats(c.data[0]);
  const auto sums = floats(run(c, 3, 0)[0]);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    std::vector<float> rows;
    for (std::int64_t n = 0; n < images; ++n) {
      const auto begin = x.begin() + (n * channels + channel) * pixels;
      rows.push_back(in_blocks({begin, begin + pixels}, 64));
    }
    CHECK(sums[static_cast<std::size_t>(channel)] == counted(rows));
  }
}

TEST_CASE("a sum per channel in blocks of 16 channels has four lanes per channel") {
  const Shape shape{3, 32, 10, 13};
  auto c = plain_sum(shape, {0, 2, 3}, 3);
  c.offered = {blocked(shape, 1, 16)};
  const auto x = floats(c.data[0]);
  const auto sums = floats(run(c, 2, 0)[0]);
  for (std::size_t channel = 0; channel < 32; ++channel) {
    std::vector<float> images;
    for (std::size_t n = 0; n < 3; ++n) {
      std::vector<float> pixels;
      for (std::size_t p = 0; p < 130; ++p) pixels.push_back(x[((n * 2 + channel / 16) * 130 + p) * 16 + channel % 16]);
      images.push_back(in_blocks(pixels, 4));
    }
    CHECK(sums[channel] == counted(images));
  }
}

TEST_CASE("a NaN among the elements is the minimum and the maximum") {
  for (const auto kind : {ReduceKind::min, ReduceKind::max})
    for (const std::size_t at : {std::size_t{0}, std::size_t{77}, std::size_t{4999}}) {
      auto c = plain_sum({5000}, {0}, 1);
      c.reduce.kind = kind;
      const float nan = std::nanf("");
      std::memcpy(c.data[0].data() + 4 * at, &nan, 4);
      CHECK(std::isnan(floats(run(c, 1, 0)[0])[0]));
    }
}

TEST_CASE("the sum of nothing is zero, the minimum of nothing an error while building") {
  auto c = plain_sum({3, 0}, {1}, 1);
  CHECK(floats(run(c, 1, 0)[0]) == std::vector<float>{0, 0, 0});
  c.reduce.kind = ReduceKind::min;
  CHECK_THROWS_AS(make(c, 1), BuildError);
  c = plain_sum({3, 0}, {0}, 1);
  CHECK(run(c, 1, 0)[0].empty());
  c = plain_sum({0, 3}, {1}, 1);
  c.reduce.kind = ReduceKind::max;
  CHECK(run(c, 1, 0)[0].empty());
}

namespace {

// One row by the loops that pass the lanes through memory.
template <ReduceKind kind>
float reduced_row(const std::vector<float>& row, std::int64_t lanes) {
  namespace loops = cpu::detail;
  std::vector<float> sums(static_cast<std::size_t>(lanes));
  loops::clear_loop<kind, float>(sums.data(), lanes);
  const auto n = static_cast<std::int64_t>(row.size());
  loops::accumulate_baseline<kind, float>(sums.data(), row.data(), lanes, n / lanes);
  loops::accumulate_baseline<kind, float>(sums.data(), row.data() + n / lanes * lanes, n % lanes, 1);
  loops::fold_baseline<kind, float>(sums.data(), 1, lanes);
  return sums[0];
}

template <ReduceKind kind>
void check_rows(cpu::InstructionLevel level) {
  const auto loops = cpu::accumulate_loops(DType::float32, kind, level);
  if (loops.reduce_units == nullptr) return;
  std::mt19937 random{7};
  for (std::int64_t unit = 1; unit < 300; unit += unit < 140 ? 1 : 37)
    for (const std::int64_t lanes : {16, 32, 64}) {
      const std::size_t rows = 5, n = static_cast<std::size_t>(unit);
      std::vector<float> x(rows * n);
      std::vector<bfloat16> stored(rows * n);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, std::nanf("")};
        stored[i] = bfloat16{i % n == n / 2 && random() % 3 == 0 ? special[random() % 5] : static_cast<float>(random() % 2001) / 100 - 10};
        x[i] = static_cast<float>(stored[i]);
      }
      std::vector<float> expected, found(rows), of_stored(rows);
      for (std::size_t r = 0; r < rows; ++r) expected.push_back(reduced_row<kind>({x.begin() + static_cast<std::ptrdiff_t>(r * n), x.begin() + static_cast<std::ptrdiff_t>((r + 1) * n)}, lanes));
      loops.reduce_units(found.data(), reinterpret_cast<const std::byte*>(x.data()), unit, rows, lanes);
      CAPTURE(unit, lanes);
      CHECK(std::memcmp(found.data(), expected.data(), 4 * rows) == 0);
      if (loops.reduce_stored_units == nullptr) continue;
      loops.reduce_stored_units(of_stored.data(), reinterpret_cast<const std::byte*>(stored.data()), unit, rows, lanes);
      CHECK(std::memcmp(of_stored.data(), expected.data(), 4 * rows) == 0);
    }
}

}  // namespace

TEST_CASE("rows that are reduced in registers have the bits of lanes in memory") {
  for (auto level = cpu::InstructionLevel::baseline; level <= cpu::instruction_level(); level = static_cast<cpu::InstructionLevel>(static_cast<int>(level) + 1)) {
    check_rows<ReduceKind::sum>(level);
    check_rows<ReduceKind::min>(level);
    check_rows<ReduceKind::max>(level);
  }
}

TEST_CASE("a mean's sum may be stored in another dtype") {
  auto c = plain_sum({40, 37}, {0}, 2);
  c.reduce.dtypes = {DType::float64};
  const auto narrow = floats(run(plain_sum({40, 37}, {0}, 2), 1, 0)[0]);
  const auto bytes = run(c, 1, 0)[0];
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    double wide;
    std::memcpy(&wide, bytes.data() + 8 * i, 8);
    CHECK(wide == narrow[i]);
  }
}

}  // namespace test_reduce
