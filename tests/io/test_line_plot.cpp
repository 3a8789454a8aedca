// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>

#include "../../examples/support/line_plot.hpp"

namespace test_line_plot {

using namespace replicator;
using namespace replicator::detail;
using Catch::Matchers::Contains;

namespace {

// How many pixels of a colour a column has, and how far up the highest is.
struct Column {
  int pixels = 0;
  std::int64_t highest = -1;
};
Column column(const Array<std::uint8_t>& picture, std::int64_t x, std::uint8_t red) {
  Column result;
  for (std::int64_t y = 0; y < picture.shape()[0]; ++y)
    if (picture[(y * picture.shape()[1] + x) * 3] == red && picture[(y * picture.shape()[1] + x) * 3 + 1] == 0) {
      ++result.pixels;
      if (result.highest < 0) result.highest = y;
    }
  return result;
}

}  // namespace

TEST_CASE("a curve rises from the left to the right of its picture, and what is too high is cut off") {
  const example::Curve curves[] = {{{10, 20, 30}, {0, 1, 9}, {200, 0, 0}}};
  const auto picture = example::line_plot(curves, {.width = 320, .height = 200, .low = 0, .high = 1});
  CHECK(picture.shape() == Shape{200, 320, 3});
  CHECK(column(picture, 40, 200).pixels == 0);
  const auto start = column(picture, 70, 200), middle = column(picture, 179, 200), end = column(picture, 290, 200);
  CHECK(start.pixels > 0);
  CHECK(start.highest > 150);
  CHECK(middle.highest < 25);
  CHECK(end.highest == 16);
}

TEST_CASE("a curve of one point is a dot") {
  const example::Curve curves[] = {{{10}, {0.5}, {200, 0, 0}}};
  CHECK(column(example::line_plot(curves), 64, 200).pixels == 2);
}

TEST_CASE("a plot of nothing is a grid, and what cannot be drawn is refused") {
  CHECK(example::line_plot({}).shape() == Shape{400, 640, 3});
  const example::Curve uneven[] = {{{1, 2}, {1}}}, infinite[] = {{{1}, {INFINITY}}};
  CHECK_THROWS_WITH(example::line_plot(uneven), Contains("as many x as y, all finite; found 2 and 1"));
  CHECK_THROWS_AS(example::line_plot(infinite), BuildError);
  CHECK_THROWS_WITH(example::line_plot({}, {.low = 1, .high = 1}), Contains("low < high"));
}

}  // namespace test_line_plot
