// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <limits>

#include "elementwise_cases.hpp"

#include <replicator/cpu/map.hpp>
#include <replicator/graph/map_gradient.hpp>

namespace test_map {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

struct MapCase {
  Expression expression;
  Shape domain;
  std::vector<TensorType> inputs;
  std::vector<Layout> offered;
  std::vector<DType> dtypes;
  std::vector<std::vector<std::byte>> data;  // as the kernel demands it
};

Shape random_domain() {
  static const Shape shapes[] = {{}, {1}, {7}, {1000}, {5000}, {3, 5}, {40, 10}, {300, 37}, {2, 3, 49}, {2, 32, 7, 7}, {2, 16, 9, 13}, {3, 48, 5, 1}, {1, 64, 20, 20}, {2, 3, 4, 5, 6}, {0, 4}, {70, 16}, {5, 2048}};
  return shapes[draw(0, static_cast<int>(std::size(shapes)))];
}

MapCase random_case() {
  MapCase c;
  c.domain = random_domain();
  const DType computes[] = {DType::float32, DType::float32, DType::float64, DType::int32, DType::int64};
  const int count = draw(0, 4);
  c.expression = random_expression(computes[draw(0, 5)], count, draw(1, 3), false);
  // Half of the expressions on floats are of bfloat16 above all.
  const DType usual = c.expression.compute == DType::float32 && draw(0, 2) ? DType::bfloat16 : c.expression.compute;
  const auto stored_dtype = [&] { return draw(0, 3)   ? usual
                                         : draw(0, 2) ? c.expression.compute
                                                      : static_cast<DType>(draw(0, 7)); };
  for (int i = 0; i < count; ++i) {
    const DType dtype = stored_dtype();
    c.inputs.push_back({dtype, random_operand(c.domain)});
    Layout layout;
    if (c.inputs.back().shape == c.domain && c.domain.rank() == 4) {
      const int kind = draw(0, 4);
      if (kind == 1) layout = blocked(c.domain, 1, 16);
      if (kind == 2) layout = permuted(c.domain, {0, 2, 3, 1});
    }
    c.offered.push_back(layout);
  }
  for (std::size_t o = 0; o < c.expression.outputs.size(); ++o)
    c.dtypes.push_back(stored_dtype());
  return c;
}

std::unique_ptr<Executable> make(MapCase& c, int threads) {
  const Map map{std::make_shared<const Expression>(c.expression), c.domain, c.dtypes};
  const AnyOperation operation{map};
  const auto outputs = map.infer_shape(c.inputs);
  return cpu::make_map({operation, c.inputs, outputs, c.offered, threads});
}

// The outputs' bytes, in storage order; the scratch and all buffers are misaligned as asked.
std::vector<std::vector<std::byte>> run(const MapCase& c, const Executable& e, std::size_t misalignment, bool in_place) {
  Memory memory;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> writable, outputs;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    writable.push_back(memory.add(c.data[i].size(), misalignment * size_of(c.inputs[i].dtype)));
    if (!c.data[i].empty()) std::memcpy(writable.back(), c.data[i].data(), c.data[i].size());
    inputs.push_back(writable.back());
  }
  for (std::size_t o = 0; o < c.dtypes.size(); ++o) {
    const std::size_t bytes = static_cast<std::size_t>(c.domain.elements()) * size_of(c.dtypes[o]);
    if (in_place && e.in_place[o] >= 0) outputs.push_back(writable[static_cast<std::size_t>(e.in_place[o])]);
    else outputs.push_back(memory.add(bytes, misalignment * size_of(c.dtypes[o])));
  }
  e.run({inputs.data(), outputs.data(), memory.add(e.scratch_bytes, 0), {}, nullptr});
  std::vector<std::vector<std::byte>> result;
  for (std::size_t o = 0; o < c.dtypes.size(); ++o) {
    const std::size_t bytes = static_cast<std::size_t>(c.domain.elements()) * size_of(c.dtypes[o]);
    result.emplace_back(outputs[o], outputs[o] + bytes);
    if (!(in_place && e.in_place[o] >= 0)) RC_ASSERT(outputs[o][bytes] == std::byte{0xA5});
  }
  return result;
}

template <class T>
bool same_bits_or_nan(const std::byte* a, const std::byte* b) {
  T x, y;
  std::memcpy(&x, a, sizeof(T));
  std::memcpy(&y, b, sizeof(T));
  return std::memcmp(a, b, sizeof(T)) == 0 || (x != x && y != y);
}

void check_against_reference(const MapCase& c, const Executable& e, const std::vector<std::vector<std::byte>>& results) {
  const auto check = [&]<class T>() {
    for_each_index(c.domain, [&](const Index& index) {
      std::vector<T> values;
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        const std::int64_t at = c.inputs[i].shape == c.domain ? offset_in(e.input_layouts[i], c.domain, index)
                                                              : broadcast_offset(c.inputs[i].shape, c.domain, index);
        values.push_back(load<T>(c.data[i].data(), c.inputs[i].dtype, at));
      }
      const auto expected = evaluate<T>(c.expression, values);
      for (std::size_t o = 0; o < c.dtypes.size(); ++o) {
        const auto* got = results[o].data() + static_cast<std::size_t>(offset_in(e.output_layouts[o], c.domain, index)) * size_of(c.dtypes[o]);
        const auto want = stored(expected[o], c.dtypes[o]);
        const bool same = c.dtypes[o] == DType::float32    ? same_bits_or_nan<float>(got, want.data())
                          : c.dtypes[o] == DType::float64  ? same_bits_or_nan<double>(got, want.data())
                          : c.dtypes[o] == DType::bfloat16 ? same_bits_or_nan<bfloat16>(got, want.data())
                                                           : std::memcmp(got, want.data(), want.size()) == 0;
        if (!same) RC_FAIL("output " + std::to_string(o) + " of " + c.expression.text());
      }
    });
  };
  switch (c.expression.compute) {
    case DType::float32: return check.template operator()<float>();
    case DType::float64: return check.template operator()<double>();
    case DType::int32: return check.template operator()<std::int32_t>();
    default: return check.template operator()<std::int64_t>();
  }
}

}  // namespace

TEST_CASE("a map gives the bits of the scalar expression for any shapes, layouts, dtypes and alignments") {
  CHECK(rc::check([] {
    for (int repeat = 0; repeat < 8; ++repeat) {
      auto c = random_case();
      const auto e = make(c, 1);
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        c.data.emplace_back(c.inputs[i].bytes());
        fill_random(c.data.back(), c.inputs[i].dtype, 11 * i + static_cast<std::size_t>(draw(0, 1000)), false);
      }
      const auto results = run(c, *e, 0, false);
      check_against_reference(c, *e, results);
      RC_ASSERT(run(c, *e, static_cast<std::size_t>(draw(0, 16)), false) == results);
      RC_ASSERT(run(c, *e, 0, true) == results);
      RC_ASSERT(run(c, *make(c, 3), 0, false) == results);
    }
  }));
}

TEST_CASE("a conversion to integers truncates, saturates where they end, and takes 0 for NaN") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto converted = []<class To>(To, std::array<float, 16> x) {
    std::array<To, 16> y{};
    cpu::conversion_loop(DType::float32, dtype_of<To>)(y.data(), {reinterpret_cast<const std::byte*>(x.data()), sizeof(x)}, {}, {}, 16);
    return y;
  };
  const std::array<float, 16> x{0, -0.9f, 2.9f, -2.9f, 255.9f, 256, 2147483520, 2147483648, -2147483648, -3e9f, 9.3e18f, -9.3e18f, infinity, -infinity, NAN, 1};
  constexpr auto most = std::numeric_limits<std::int32_t>::max(), least = std::numeric_limits<std::int32_t>::min();
  CHECK(converted(std::int32_t{}, x) ==
        std::array<std::int32_t, 16>{0, 0, 2, -2, 255, 256, 2147483520, most, least, least, most, least, most, least, 0, 1});
  constexpr auto highest = std::numeric_limits<std::int64_t>::max(), lowest = std::numeric_limits<std::int64_t>::min();
  CHECK(converted(std::int64_t{}, x) == std::array<std::int64_t, 16>{0, 0, 2, -2, 255, 256, 2147483520, 2147483648, -2147483648, -3000000000, highest,
                                                                     lowest, highest, lowest, 0, 1});
  CHECK(converted(std::uint8_t{}, x) == std::array<std::uint8_t, 16>{0, 0, 2, 0, 255, 255, 255, 255, 0, 0, 255, 0, 255, 0, 0, 1});
}

}  // namespace test_map
