// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include <replicator/cpu/gather.hpp>
#include <replicator/cpu/resize.hpp>

#include "../support/differences.hpp"

namespace test_resize {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

struct ResizeCase {
  Shape x, y;
  Extents2d size() const { return {y[2], y[3]}; }
  Extents2d old_size() const { return {x[2], x[3]}; }
  Interpolation interpolation;
  std::string text() const { return x.text() + " -> " + y.text() + " " + std::string{name_of(interpolation)}; }
};

ResizeCase draw_resize(const std::vector<std::int64_t>& channels) {
  const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
  ResizeCase c;
  c.x = {in(1, 2), *rc::gen::elementOf(channels), in(1, 6), in(1, 6)};
  c.y = {c.x[0], c.x[1], in(1, 13), in(1, 13)};
  c.interpolation = in(0, 1) == 0 ? Interpolation::nearest : Interpolation::bilinear;
  return c;
}

// How much pixel `from` of an axis of `in` counts for pixel `to` of the resized one, which has `out`.
double weight(std::int64_t to, std::int64_t from, std::int64_t in, std::int64_t out, Interpolation mode) {
  if (mode == Interpolation::nearest) return from * out <= to * in && to * in < (from + 1) * out ? 1 : 0;
  double centre = (static_cast<double>(to) + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5;
  centre = std::min(std::max(centre, 0.0), static_cast<double>(in - 1));
  return std::max(0.0, 1 - std::abs(centre - static_cast<double>(from)));
}

// y of x, and dx of dy, by the definition.
struct ResizeResults {
  std::vector<double> y, dx;
};
ResizeResults by_definition(const ResizeCase& c, const AnyArray& x, const AnyArray& dy) {
  const auto xs = doubles(x), dys = doubles(dy);
  ResizeResults r{std::vector<double>(dys.size()), std::vector<double>(xs.size())};
  for_each_index(Shape{c.x[0], c.x[1], c.y[2], c.y[3], c.x[2], c.x[3]}, [&](const std::vector<std::int64_t>& i) {
    const double w = weight(i[2], i[4], c.x[2], c.y[2], c.interpolation) * weight(i[3], i[5], c.x[3], c.y[3], c.interpolation);
    const auto plane = i[0] * c.x[1] + i[1];
    const auto to = static_cast<std::size_t>((plane * c.y[2] + i[2]) * c.y[3] + i[3]);
    const auto from = static_cast<std::size_t>((plane * c.x[2] + i[4]) * c.x[3] + i[5]);
    r.y[to] += w * xs[from];
    r.dx[from] += w * dys[to];
  });
  return r;
}

// The largest difference between kernels and definition; both inputs are offered channel by channel as `pixel` says
// (0: channels last).
template <Element T>
double resize_error(const ResizeCase& c, std::int64_t pixel, int threads) {
  const auto x = random_array<T>(c.x, 1).any(), dy = random_array<T>(c.y, 2).any();
  const auto expected = by_definition(c, x, dy);
  const auto error = [&](const AnyOperation& op, const AnyArray& in, const TensorType& type,
                         const std::vector<double>& values) {
    const Layout layout =
        pixel == 0 ? channels_last(in.shape()) : cpu::detail::channel_blocks(in.shape(), pixel);
    const auto found = run_kernel(op, {relaid(held(in), layout)}, {&type, 1}, {.threads = threads})[0];
    if (found.layout.plain != layout.plain) return INFINITY * 1.0;
    return largest_difference(array_of(found), array_of(type, values));
  };
  return std::max(error(Resize{c.size(), c.interpolation}, x, dy.type(), expected.y),
                  error(ResizeTranspose{c.old_size(), c.interpolation}, dy, x.type(), expected.dx));
}

}  // namespace

TEST_CASE("resizing and its transpose are as defined, in every layout, on any number of threads") {
  REQUIRE(rc::check("nearest, bilinear", [] {
    const auto c = draw_resize({1, 3, 8, 10, 16, 17});
    RC_LOG(c.text());
    const auto pixel = *rc::gen::element<std::int64_t>(0, 1, 8, 16);
    const int threads = *rc::gen::inRange(1, 4);
    RC_ASSERT(resize_error<float>(c, pixel, threads) < 1e-6);
    RC_ASSERT(resize_error<double>(c, pixel, threads) < 1e-14);
  }));
}

TEST_CASE("the gradients of resizing agree with differences to second order") {
  REQUIRE(rc::check("nearest, bilinear", [] {
    const auto c = draw_resize({1, 2});
    RC_LOG(c.text());
    const auto x = random_array<double>(c.x, 1).any(), dy = random_array<double>(c.y, 2).any();
    const auto squared = [](AnyTensor y) { return apply(ScalarOp::multiply, {y, y}, {}); };
    const Function forward = [&](Graph& graph, std::span<const AnyTensor> in) {
      return squared(compute(graph, Resize{c.size(), c.interpolation}, {in[0]}, {}));
    };
    const Function backward = [&](Graph& graph, std::span<const AnyTensor> in) {
      return squared(compute(graph, ResizeTranspose{c.old_size(), c.interpolation}, {in[0]}, {}));
    };
    for (const int order : {1, 2}) {
      RC_ASSERT(gradient_error(forward, {x}, order) < 1e-7);
      RC_ASSERT(gradient_error(backward, {dy}, order) < 1e-7);
    }
  }));
}

TEST_CASE("nearest copies, whatever the value; bilinear has PyTorch's weights without aligned corners") {
  Graph graph;
  const float infinity = std::numeric_limits<float>::infinity();
  const Array<float> x{{1, 1, 1, 3}, {1, -0.0f, infinity}};
  const auto t = input(graph, x, 0);
  const auto nearest = evaluate(upsample(t, {2, 2}), std::vector{x.any()});
  CHECK(doubles(nearest) == std::vector<double>{1, 1, 0, 0, infinity, infinity, 1, 1, 0, 0, infinity, infinity});
  CHECK(std::signbit(nearest.as<float>()[2]));
  const Array<float> y{{1, 1, 1, 2}, {1, 2}};
  const auto bilinear = upsample(input(graph, y, 0), {1, 4}, Interpolation::bilinear);
  CHECK(doubles(evaluate(graph, std::vector{bilinear.any().value()}, std::vector{y.any()})[0]) ==
        std::vector<double>{1, 1, 1.125, 1.375, 1.625, 1.875, 2, 2});
}

TEST_CASE("an image becomes smaller, or larger by no whole factor, with PyTorch's weights") {
  Graph graph;
  const Array<double> x{{1, 1, 1, 5}, {0, 10, 20, 30, 40}};
  const auto t = input(graph, x, 0);
  const auto resized = [&](std::int64_t columns, Interpolation interpolation) {
    return doubles(evaluate(graph, std::vector{resize(t, {1, columns}, interpolation).any().value()}, std::vector{x.any()})[0]);
  };
  CHECK(resized(3, Interpolation::nearest) == std::vector<double>{0, 10, 30});  // floor(0, 5 / 3, 10 / 3)
  CHECK(resized(7, Interpolation::nearest) == std::vector<double>{0, 0, 10, 20, 20, 30, 40});
  CHECK(resized(2, Interpolation::bilinear) == std::vector<double>{7.5, 32.5});  // centres at 0.75 and 3.25
  CHECK(resized(4, Interpolation::bilinear) == std::vector<double>{1.25, 13.75, 26.25, 38.75});
}

TEST_CASE("integers and bools are repeated as they are") {
  Graph graph;
  const Array<std::int64_t> x{{1, 2, 1, 2}, {std::int64_t{1} << 53, -1, 3, 4}};
  const Array<std::uint8_t> image{{1, 1, 2, 1}, {255, 7}};
  const auto y = evaluate(upsample(input(graph, x, 0), {1, 2}), std::vector{x.any()});
  const auto found = y.as<std::int64_t>();
  CHECK(y.shape() == Shape{1, 2, 1, 4});
  CHECK(std::vector(found.begin(), found.end()) == std::vector<std::int64_t>{x[0], x[0], -1, -1, 3, 3, 4, 4});
  const auto enlarged = evaluate(upsample(input(graph, image, 0), {2, 2}), std::vector{image.any()});
  CHECK(doubles(enlarged) == std::vector<double>{255, 255, 255, 255, 7, 7, 7, 7});
  const auto smaller = evaluate(resize(input(graph, x, 0), {1, 1}), std::vector{x.any()});
  CHECK(doubles(smaller) == doubles(Array<std::int64_t>{{1, 2, 1, 1}, {std::int64_t{1} << 53, 3}}.any()));
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(upsample(input(graph, image, 0), {2, 2}, Interpolation::bilinear),
                    Contains("upsample at test_resize.cpp:") && Contains("asked for bilinear interpolation of uint8[1, 1, 2, 1]: cast it to a "
                                                                         "floating type with rp::cast, or take the nearest"));
  CHECK_THROWS_WITH(upsample(input(graph, image, 0), {0, 2}), Contains("asked for the factors 0 and 2: both must be at least 1"));
  CHECK_THROWS_WITH(upsample(Tensor<bool>{input(graph, {DType::boolean, {2}}, 0)}, {1, 1}), Contains("x must be [N, C, H, W], found bool[2]"));
}

TEST_CASE("upsample says what does not fit, and where") {
  Graph graph;
  const auto flat = Tensor<float>{input(graph, {DType::float32, {2, 3}}, 0)};
  const auto x = Tensor<float>{input(graph, {DType::float32, {1, 1, 2, 3}}, 1)};
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(upsample(flat, {2, 2}),
                    Contains("upsample at test_resize.cpp:") &&
                        Contains("x must be [N, C, H, W], found float32[2, 3]"));
  CHECK_THROWS_WITH(upsample(x, {std::int64_t{1} << 62, std::int64_t{1} << 62}), Contains("has more than 2^59 - 1 elements"));
  CHECK_THROWS_WITH(upsample(x, {2, 0}), Contains("asked for the factors 2 and 0"));
  CHECK_THROWS_WITH(resize(flat, {2, 2}), Contains("resize at test_resize.cpp:") && Contains("x must be [N, C, H, W], found float32[2, 3]"));
  const auto integers = Tensor<std::int32_t>{input(graph, {DType::int32, {1, 1, 2, 3}}, 2)};
  const std::int64_t many = std::int64_t{1} << 40;
  CHECK_THROWS_WITH(resize(integers, {many, many}), Contains("resize at test_resize.cpp:") && Contains("has more than 2^59 - 1 elements"));
  CHECK_THROWS_WITH(upsample(integers, {1, many}), Contains("upsample at test_resize.cpp:") && Contains("an image has at most 2^31 - 1 rows and columns"));
  CHECK_THROWS_WITH(resize(x, {0, 4}), Contains("asked for 0 rows and 4 columns of float32[1, 1, 2, 3]: both images need at least one of each"));
}

}  // namespace test_resize
