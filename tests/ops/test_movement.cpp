// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include <replicator/cpu/movement.hpp>
#include <replicator/ops/movement/broadcast_to.hpp>
#include <replicator/ops/stop_gradient.hpp>

#include "../support/differences.hpp"

namespace test_movement {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

std::int64_t in(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }

Shape draw_shape(std::int64_t least = 0) {
  Shape shape;
  for (std::int64_t rank = in(0, 4); rank > 0; --rank) shape.push_back(in(least, 5));
  return shape;
}

// 0, 1, 2 ...: every element is told apart (for bool, every second one).
template <Element T>
AnyArray counted(const Shape& shape) {
  Array<T> result{shape};
  for (std::int64_t i = 0; i < result.size(); ++i) result[i] = static_cast<T>(std::same_as<T, bool> ? i % 2 : i);
  return std::move(result).any();
}

double at(const AnyArray& array, const std::vector<std::int64_t>& index) {
  return doubles(array)[static_cast<std::size_t>(offset_of({}, array.shape(), index))];
}

AnyArray run(const AnyOperation& op, const std::vector<AnyArray>& inputs) {
  std::vector<TensorType> types;
  std::vector<Held> from;
  for (const auto& input : inputs) types.push_back(input.type()), from.push_back(held(input));
  return array_of(run_kernel(op, from, op.infer_shape(types))[0]);
}

// Calls check<T>() for every dtype.
template <class F>
void for_each_dtype(F&& check) {
  for (const auto dtype : {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8, DType::boolean})
    visit_dtype(dtype, [&]<class T>() { check.template operator()<T>(); });
}

AxisValues draw_permutation(std::size_t rank) {
  AxisValues permutation(rank);
  std::iota(permutation.begin(), permutation.end(), 0);
  for (std::size_t i = rank; i > 1; --i)
    std::swap(permutation[i - 1], permutation[static_cast<std::size_t>(in(0, static_cast<std::int64_t>(i) - 1))]);
  return permutation;
}

Slice draw_slice(const Shape& shape) {
  Slice slice;
  for (const auto extent : shape) {
    slice.begin.push_back(in(0, extent));
    slice.end.push_back(in(slice.begin.back(), extent));
    slice.step.push_back(in(1, 3));
  }
  return slice;
}

Pad draw_pad(const Shape& shape) {
  Pad pad;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    pad.low.push_back(in(0, 2));
    pad.high.push_back(in(0, 2));
    pad.inner.push_back(in(0, 2));
  }
  pad.value = 1;
  return pad;
}

// nChw16c: the channels of a pixel lie in blocks of 16, the last of which may be padded.
Layout blocks_of_channels(const Shape& shape) {
  const std::int64_t rows = shape[2] * shape[3] * 16, blocks = (shape[1] + 15) / 16;
  Layout layout;
  layout.plain = false;
  layout.strides = {blocks * rows, rows, shape[3] * 16, 16};
  layout.blocks = 1;
  layout.axis = {1};
  layout.size = {16};
  layout.storage = shape[0] * blocks * rows;
  return layout;
}

}  // namespace

TEST_CASE("transpose moves every element to its permuted index, in any dtype") {
  REQUIRE(rc::check("transpose", [] {
    const Shape shape = draw_shape();
    const Transpose op{draw_permutation(shape.rank())};
    for_each_dtype([&]<class T>() {
      const AnyArray x = counted<T>(shape), y = run(op, {x});
      for_each_index(y.shape(), [&](const std::vector<std::int64_t>& index) {
        std::vector<std::int64_t> from(index.size());
        for (std::size_t i = 0; i < index.size(); ++i) from[static_cast<std::size_t>(op.permutation[i])] = index[i];
        RC_ASSERT(at(y, index) == at(x, from));
      });
    });
  }));
}

TEST_CASE("slice takes the elements at begin + i step, in any dtype") {
  REQUIRE(rc::check("slice", [] {
    const Shape shape = draw_shape();
    const Slice op = draw_slice(shape);
    for_each_dtype([&]<class T>() {
      const AnyArray x = counted<T>(shape), y = run(op, {x});
      for_each_index(y.shape(), [&](std::vector<std::int64_t> index) {
        const double found = at(y, index);
        for (std::size_t i = 0; i < index.size(); ++i) {
          index[i] = op.begin[i] + index[i] * op.step[i];
          RC_ASSERT(index[i] < op.end[i]);
        }
        RC_ASSERT(found == at(x, index));
      });
    });
  }));
}

TEST_CASE("slicing what was padded gives back x, and all else is the value") {
  REQUIRE(rc::check("pad", [] {
    const Shape shape = draw_shape(1);
    const Pad op = draw_pad(shape);
    for_each_dtype([&]<class T>() {
      const AnyArray x = counted<T>(shape), y = run(op, {x});
      Slice back{op.low, {}, op.inner};
      for (std::size_t i = 0; i < shape.rank(); ++i) back.end.push_back(y.shape()[i] - op.high[i]), ++back.step[i];
      RC_ASSERT(doubles(run(back, {y})) == doubles(x));
      const auto xs = doubles(x), ys = doubles(y);
      const double rest = static_cast<double>(ys.size() - xs.size());
      RC_ASSERT(std::accumulate(ys.begin(), ys.end(), 0.0) == std::accumulate(xs.begin(), xs.end(), 0.0) + rest);
    });
  }));
}

TEST_CASE("concat puts parts one after the other, and slices give them back") {
  REQUIRE(rc::check("concat", [] {
    Shape shape = draw_shape();
    shape.push_back(1);
    const auto axis = static_cast<std::size_t>(in(0, static_cast<std::int64_t>(shape.rank()) - 1));
    std::vector<AnyArray> parts;
    for (std::int64_t n = in(1, 3); n > 0; --n) {
      shape[axis] = in(0, 3);
      parts.push_back(random_array<float>(shape, static_cast<std::uint64_t>(n)).any());
    }
    const AnyArray whole = run(Concat{static_cast<std::int64_t>(axis)}, parts);
    std::int64_t first = 0;
    for (const auto& part : parts) {
      Slice slice{AxisValues(shape.rank(), 0), AxisValues(whole.shape().begin(), whole.shape().end()),
                  AxisValues(shape.rank(), 1)};
      slice.begin[axis] = first;
      slice.end[axis] = first += part.shape()[axis];
      RC_ASSERT(doubles(run(slice, {whole})) == doubles(part));
    }
    RC_ASSERT(whole.shape()[axis] == first);
  }));
}

TEST_CASE("movement of tensors of any size takes the right elements, on several threads, and transposes any layout") {
  REQUIRE(rc::check("large", [] {
    const DType dtypes[] = {DType::float32, DType::bfloat16, DType::float64, DType::uint8};
    const TensorType type{dtypes[in(0, 3)], {in(1, 9), in(1, 40), in(1, 80), 16 * in(0, 4) + in(1, 3)}};
    const std::size_t size = size_of(type.dtype);
    Held x = held(type, Layout{});
    for (std::size_t i = 0; i < x.memory.size_bytes(); ++i) x.data()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    // Whether the result is `element(index)` of x, or 0 where that is empty.
    const auto moved = [&](const AnyOperation& op, const Held& from, const std::function<std::optional<std::vector<std::int64_t>>(std::vector<std::int64_t>)>& element) {
      const auto types = op.infer_shape(std::vector{type});
      Held y = run_kernel(op, {from}, types, {.threads = 3})[0];
      bool right = y.layout.plain;
      std::size_t at = 0;
      for_each_index(types[0].shape, [&](const std::vector<std::int64_t>& index) {
        const auto source = element(index);
        constexpr std::byte zero[8]{};
        right = right && std::memcmp(y.data() + at, source ? x.data() + static_cast<std::size_t>(offset_of({}, type.shape, *source)) * size : zero, size) == 0;
        at += size;
      });
      return right;
    };
    const Transpose transpose{draw_permutation(4)};
    const auto transposed = [&](const std::vector<std::int64_t>& index) {
      std::vector<std::int64_t> source(4);
      for (std::size_t i = 0; i < 4; ++i) source[static_cast<std::size_t>(transpose.permutation[i])] = index[i];
      return source;
    };
    RC_ASSERT(moved(transpose, x, transposed));
    for (const auto& layout : {channels_last(type.shape), blocks_of_channels(type.shape)}) RC_ASSERT(moved(transpose, relaid(x, layout), transposed));
    const Slice slice = draw_slice(type.shape);
    RC_ASSERT(moved(slice, x, [&](std::vector<std::int64_t> index) {
      for (std::size_t i = 0; i < 4; ++i) index[i] = slice.begin[i] + index[i] * slice.step[i];
      return index;
    }));
    Pad pad = draw_pad(type.shape);
    pad.value = 0;
    RC_ASSERT(moved(pad, x, [&](std::vector<std::int64_t> index) -> std::optional<std::vector<std::int64_t>> {
      for (std::size_t i = 0; i < 4; ++i) {
        index[i] -= pad.low[i];
        if (index[i] < 0 || index[i] % (pad.inner[i] + 1) != 0 || (index[i] /= pad.inner[i] + 1) >= type.shape[i]) return std::nullopt;
      }
      return index;
    }));
  }));
}

TEST_CASE("the gradients of movement agree with differences") {
  REQUIRE(rc::check("transpose, slice, pad, concat", [] {
    const Shape shape = draw_shape();
    const auto permutation = draw_permutation(shape.rank());
    const Slice slice = draw_slice(shape);
    const Pad pad = draw_pad(shape);
    const auto x = random_array<double>(shape, 1).any();
    const auto error = [&](const AnyOperation& op) {
      return gradient_error(
          [&](Graph& graph, std::span<const AnyTensor> xs) { return compute(graph, op, {xs[0]}, {}); }, {x}, 1);
    };
    RC_ASSERT(error(Transpose{permutation}) < 1e-8);
    RC_ASSERT(error(slice) < 1e-8);
    if (shape.elements() > 0) RC_ASSERT(error(pad) < 1e-8);
    if (shape.rank() == 0) return;
    const auto axis = in(0, static_cast<std::int64_t>(shape.rank()) - 1);
    const Function joined = [&](Graph& graph, std::span<const AnyTensor> xs) {
      return compute(graph, Concat{axis}, {xs[0], xs[1], xs[0]}, {});
    };
    RC_ASSERT(gradient_error(joined, {x, random_array<double>(shape, 2).any()}, 1) < 1e-8);
  }));
}

TEST_CASE("changes of shape keep the elements in order") {
  Graph graph;
  const Array<std::int32_t> x{{2, 1, 3}, {1, 2, 3, 4, 5, 6}};
  const auto t = input(graph, x, 0);
  const auto check = [&](Tensor<std::int32_t> y, const Shape& shape) {
    CHECK(y.shape() == shape);
    CHECK(doubles(evaluate(y, std::vector{x.any()})) == doubles(x.any()));
  };
  check(reshape(t, {3, -1}), {3, 2});
  check(reshape(t, {-1}), {6});
  check(flatten(t), {2, 3});
  check(expand_dims(t, 0), {1, 2, 1, 3});
  check(expand_dims(t, -1), {2, 1, 3, 1});
  check(squeeze(t, 1), {2, 3});
  check(stop_gradient(t), {2, 1, 3});
  const auto wide = evaluate(broadcast_to(t, {2, 2, 3}), std::vector{x.any()});
  CHECK(doubles(wide) == std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
}

TEST_CASE("slice_axis takes from one axis, counted from either end") {
  Graph graph;
  const Array<float> x{{2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}};
  const auto t = input(graph, x, 0);
  const auto values = [&](Tensor<float> y) { return doubles(evaluate(y, std::vector{x.any()})); };
  CHECK(values(slice_axis(t, 1, 1, 3)) == std::vector<double>{2, 3, 6, 7});
  CHECK(values(slice_axis(t, 1, 0, -1)) == std::vector<double>{1, 2, 3, 5, 6, 7});
  CHECK(values(slice_axis(t, -1, -1)) == std::vector<double>{4, 8});
  CHECK(values(slice_axis(t, 0, 1)) == std::vector<double>{5, 6, 7, 8});
  CHECK(slice_axis(t, 1, 2, 2).shape() == Shape{2, 0});
}

TEST_CASE("concat of the parts of a split is the whole, and so are the squeezed slices of a stack") {
  Graph graph;
  const auto x = random_array<float>({2, 6, 3}, 1);
  const auto t = input(graph, x, 0);
  const auto [a, b, c] = split<3>(t, 1);
  CHECK(a.shape() == Shape{2, 2, 3});
  CHECK(doubles(evaluate(concat({a, b, c}, 1), std::vector{x.any()})) == doubles(x.any()));
  CHECK(split<3>(t)[2].shape() == Shape{2, 6, 1});

  const std::array parts{a, b, c};
  for (const std::int64_t axis : {0, 1, -1}) {
    const auto stacked = stack({a, b, c}, axis);
    CHECK(stacked.shape()[axis] == 3);
    CHECK(stacked.shape().rank() == 4);
    for (std::int64_t i = 0; i < 3; ++i) {
      const auto slice = squeeze(slice_axis(stacked, axis, i, i + 1), axis);
      const Value wanted[] = {slice.any().value(), parts[static_cast<std::size_t>(i)].any().value()};
      const auto found = evaluate(graph, wanted, std::vector{x.any()});
      CHECK(doubles(found[0]) == doubles(found[1]));
    }
  }
}

TEST_CASE("no gradient flows through stop_gradient") {
  Graph graph;
  const Array<double> x{{2}, {3, 5}};
  const auto t = input(graph, x, 0);
  const AnyTensor wanted[] = {t};
  const auto slope = gradients(stop_gradient(t) * t, wanted, {});
  CHECK(doubles(evaluate(slope[0], std::vector{x.any()})) == std::vector<double>{3, 5});
}

TEST_CASE("movement says what does not fit, and where") {
  Graph graph;
  const auto x = Tensor<float>{input(graph, {DType::float32, {2, 3}}, 0)};
  const auto y = Tensor<float>{input(graph, {DType::float32, {4, 4}}, 1)};
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(transpose(x, {0, 0}),
                    Contains("transpose at test_movement.cpp:") && Contains("asked for the axes [0, 0] of float32[2, 3]: name each of 0 to 1 once"));
  CHECK_THROWS_WITH(transpose(x, {0}), Contains("found 1 values of permutation for float32[2, 3]"));
  CHECK_THROWS_WITH(slice(x, {0, 0}, {2, 4}),
                    Contains("asked for elements 0 to 4 in steps of 1 of axis 1 of float32[2, 3]"));
  CHECK_THROWS_WITH(pad(x, {0, -1}, {0, 0}), Contains("asked to pad axis 1 by -1 and 0"));
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_WITH(pad(x, {most, 0}, {most, 0}), Contains("has more than 2^59 - 1 elements"));
  CHECK_THROWS_WITH(concat({x, y}, 0),
                    Contains("concat at test_movement.cpp:") && Contains("found float32[2, 3] and float32[4, 4]"));
  CHECK_THROWS_WITH(stack(std::span<const Tensor<float>>{}, 0), Contains("stack at test_movement.cpp:") && Contains("found nothing to put together"));
  CHECK_THROWS_WITH(stack({x, y}, 0), Contains("stack at test_movement.cpp:") && Contains("found float32[2, 3] and float32[4, 4]: all must have one shape"));
  CHECK_THROWS_WITH(concat({x, x}, 2), Contains("asked for axis 2 of a tensor of 2 dimensions"));
  CHECK_THROWS_WITH(reshape(x, {4, -1}), Contains("reshape at test_movement.cpp:") && Contains("cannot be found"));
  CHECK_THROWS_WITH(slice_axis(x, 1, 2, 4), Contains("slice_axis at test_movement.cpp:") && Contains("elements 2 to 4 of axis 1 of float32[2, 3]"));
  CHECK_THROWS_WITH(slice_axis(x, 1, -4), Contains("elements -4 to 3 of axis 1"));
  CHECK_THROWS_WITH(slice_axis(x, 1, 2, 1), Contains("the end must not lie before it"));
  CHECK_THROWS_WITH(slice_axis(x, 2, 0), Contains("asked for axis 2"));
  CHECK_THROWS_WITH(split<2>(x), Contains("split at test_movement.cpp:") && Contains("2 equal parts of axis 1 of float32[2, 3]: take a number that divides"));
  CHECK_THROWS_WITH(squeeze(x, 1), Contains("squeeze at test_movement.cpp:") && Contains("not of extent 1"));
  CHECK_THROWS_WITH(broadcast_to(x, {3, 3}), Contains("replica 0: broadcast_to at test_movement.cpp:") &&
                                                 Contains("asked for the shape [3, 3], found float32[2, 3]: from the last axis on, each extent must be 1 or that of the shape"));
}

TEST_CASE("a step beyond the end takes the first element, however far it goes") {
  Graph graph;
  const auto x = random_array<float>({5}, 1);
  const auto t = input(graph, x, 0);
  const auto first = slice(t, {1}, {5}, {std::numeric_limits<std::int64_t>::max()});
  REQUIRE(first.shape() == Shape{1});
  CHECK(evaluate(first, std::vector{x.any()}).as<float>()[0] == x[1]);
  CHECK(doubles(evaluate(gradient(first, t), std::vector{x.any()})) == std::vector<double>{0, 1, 0, 0, 0});
}

}  // namespace test_movement
