// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include <replicator/cpu/upsample.hpp>

#include "../support/differences.hpp"

namespace test_upsample {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

struct UpsampleCase {
  Shape x, y;
  Extents2d factors;
  Interpolation interpolation;
  std::string text() const { return x.text() + " -> " + y.text() + " " + std::string{name_of(interpolation)}; }
};

UpsampleCase draw_upsample(const std::vector<std::int64_t>& channels) {
  const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
  UpsampleCase c;
  c.x = {in(1, 2), *rc::gen::elementOf(channels), in(1, 4), in(1, 4)};
  c.factors = {in(1, 3), in(1, 3)};
  c.y = {c.x[0], c.x[1], c.x[2] * c.factors[0], c.x[3] * c.factors[1]};
  c.interpolation = in(0, 1) == 0 ? Interpolation::nearest : Interpolation::bilinear;
  return c;
}

// How much pixel `from` of an axis counts for pixel `to` of the enlarged one.
double weight(std::int64_t to, std::int64_t from, std::int64_t extent, std::int64_t factor, Interpolation mode) {
  if (mode == Interpolation::nearest) return to / factor == from ? 1 : 0;
  double centre = (static_cast<double>(to) + 0.5) / static_cast<double>(factor) - 0.5;
  centre = std::min(std::max(centre, 0.0), static_cast<double>(extent - 1));
  return std::max(0.0, 1 - std::abs(centre - static_cast<double>(from)));
}

// y of x, and dx of dy, by the definition.
struct UpsampleResults {
  std::vector<double> y, dx;
};
UpsampleResults by_definition(const UpsampleCase& c, const AnyArray& x, const AnyArray& dy) {
  const auto xs = doubles(x), dys = doubles(dy);
  UpsampleResults r{std::vector<double>(dys.size()), std::vector<double>(xs.size())};
  for_each_index(Shape{c.x[0], c.x[1], c.y[2], c.y[3], c.x[2], c.x[3]}, [&](const std::vector<std::int64_t>& i) {
    const double w = weight(i[2], i[4], c.x[2], c.factors[0], c.interpolation) *
                     weight(i[3], i[5], c.x[3], c.factors[1], c.interpolation);
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
double upsample_error(const UpsampleCase& c, std::int64_t pixel, int threads) {
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
  return std::max(error(Upsample{{c.factors, c.interpolation}}, x, dy.type(), expected.y),
                  error(UpsampleTranspose{{c.factors, c.interpolation}}, dy, x.type(), expected.dx));
}

}  // namespace

TEST_CASE("up-sampling and its transpose are as defined, in every layout, on any number of threads") {
  REQUIRE(rc::check("nearest, bilinear", [] {
    const auto c = draw_upsample({1, 3, 8, 10, 16, 17});
    RC_LOG(c.text());
    const auto pixel = *rc::gen::element<std::int64_t>(0, 1, 8, 16);
    const int threads = *rc::gen::inRange(1, 4);
    RC_ASSERT(upsample_error<float>(c, pixel, threads) < 1e-6);
    RC_ASSERT(upsample_error<double>(c, pixel, threads) < 1e-14);
  }));
}

TEST_CASE("the gradients of up-sampling agree with differences to second order") {
  REQUIRE(rc::check("nearest, bilinear", [] {
    const auto c = draw_upsample({1, 2});
    RC_LOG(c.text());
    const auto x = random_array<double>(c.x, 1).any(), dy = random_array<double>(c.y, 2).any();
    const auto squared = [](AnyTensor y) { return apply(ScalarOp::multiply, {y, y}, {}); };
    const Function forward = [&](Graph& graph, std::span<const AnyTensor> in) {
      return squared(compute(graph, Upsample{{c.factors, c.interpolation}}, {in[0]}, {}));
    };
    const Function backward = [&](Graph& graph, std::span<const AnyTensor> in) {
      return squared(compute(graph, UpsampleTranspose{{c.factors, c.interpolation}}, {in[0]}, {}));
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
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(upsample(input(graph, image, 0), {2, 2}, Interpolation::bilinear),
                    Contains("upsample at test_upsample.cpp:") && Contains("asked for bilinear interpolation of uint8[1, 1, 2, 1]: cast it to a "
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
                    Contains("upsample at test_upsample.cpp:") &&
                        Contains("x must be [N, C, H, W] of a floating type, found float32[2, 3]"));
  CHECK_THROWS_WITH(upsample(x, {std::int64_t{1} << 62, std::int64_t{1} << 62}), Contains("has more than 2^59 - 1 elements"));
  CHECK_THROWS_WITH(upsample(x, {2, 0}), Contains("asked for the factors 2 and 0"));
  CHECK_THROWS_WITH(compute(graph, UpsampleTranspose{{{1, 2}}}, {x}, {}), Contains("do not divide the extents of"));
}

}  // namespace test_upsample
