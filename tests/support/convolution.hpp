// SPDX-License-Identifier: Apache-2.0
// Convolutions for tests: random shapes, and the definition as seven loops in double.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <replicator/ops/convolution.hpp>

#include "evaluate.hpp"

namespace replicator::test {

using namespace replicator::detail;

struct ConvolutionCase {
  ConvolutionOptions options;
  Shape x, w, y;

  std::string text() const {
    AttributePrinter printer;
    options.describe(printer);
    return "x " + x.text() + ", w " + w.text() + ", " + printer.text();
  }
};

inline ConvolutionCase convolution_case(const Shape& x, const Shape& w, const ConvolutionOptions& options) {
  return {options, x, w, replicator::detail::convolution_shape(x, w, options)};
}

// Random extents, strides, paddings on either side, dilations and groups. The window always fits.
inline ConvolutionCase draw_convolution(const std::vector<std::int64_t>& channels_per_group, std::int64_t largest = 9) {
  const auto in = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
  ConvolutionOptions o;
  o.groups = in(1, 3);
  Shape x{in(1, 2), *rc::gen::elementOf(channels_per_group) * o.groups};
  Shape w{*rc::gen::elementOf(channels_per_group) * o.groups, x[1] / o.groups};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t window = in(1, 4);
    o.stride[i] = in(1, 3);
    o.dilation[i] = in(1, 2);
    o.padding.low[i] = in(0, window - 1);
    o.padding.high[i] = in(0, window - 1);
    const std::int64_t needed = o.dilation[i] * (window - 1) + 1 - o.padding.low[i] - o.padding.high[i];
    x.push_back(in(std::max<std::int64_t>(needed, 1), largest));
    w.push_back(window);
  }
  return convolution_case(x, w, o);
}

// Calls f(x index, w index, y index) for every product of the definition.
template <class F>
void for_each_product(const ConvolutionCase& c, F&& f) {
  const auto& o = c.options;
  for_each_index(Shape{c.y[0], c.y[1], c.y[2], c.y[3], c.w[1], c.w[2], c.w[3]},
                 [&](const std::vector<std::int64_t>& i) {
                   const std::int64_t row = i[2] * o.stride[0] + i[5] * o.dilation[0] - o.padding.low[0];
                   const std::int64_t column = i[3] * o.stride[1] + i[6] * o.dilation[1] - o.padding.low[1];
                   if (row < 0 || row >= c.x[2] || column < 0 || column >= c.x[3]) return;
                   const std::int64_t channel = i[1] / (c.w[0] / o.groups) * c.w[1] + i[4];
                   f(static_cast<std::size_t>(((i[0] * c.x[1] + channel) * c.x[2] + row) * c.x[3] + column),
                     static_cast<std::size_t>(((i[1] * c.w[1] + i[4]) * c.w[2] + i[5]) * c.w[3] + i[6]),
                     static_cast<std::size_t>(((i[0] * c.y[1] + i[1]) * c.y[2] + i[2]) * c.y[3] + i[3]));
                 });
}

// y = C(x, w), dx = D(dy, w), dw = W(x, dy) by the definition.
struct ConvolutionResults {
  AnyArray y, dx, dw;
};
inline ConvolutionResults by_definition(const ConvolutionCase& c, const AnyArray& x, const AnyArray& w,
                                        const AnyArray& dy) {
  const auto xs = doubles(x), ws = doubles(w), dys = doubles(dy);
  std::vector<double> y(dys.size()), dx(xs.size()), dw(ws.size());
  for_each_product(c, [&](std::size_t xi, std::size_t wi, std::size_t yi) {
    y[yi] += xs[xi] * ws[wi];
    dx[xi] += dys[yi] * ws[wi];
    dw[wi] += dys[yi] * xs[xi];
  });
  return {array_of(dy.type(), y), array_of(x.type(), dx), array_of(w.type(), dw)};
}

// The same by the registered kernels.
inline ConvolutionResults by_kernels(const ConvolutionCase& c, const AnyArray& x, const AnyArray& w, const AnyArray& dy,
                                     const EvaluateOptions& options) {
  const auto run = [&](const AnyOperation& op, const AnyArray& a, const AnyArray& b, const AnyArray& like) {
    const TensorType type = like.type();
    return array_of(run_kernel(op, {held(a), held(b)}, {&type, 1}, options)[0]);
  };
  return {run(Convolution{c.options}, x, w, dy), run(ConvolutionBackwardData{c.options, c.x}, dy, w, x),
          run(ConvolutionBackwardWeights{c.options, c.w}, x, dy, w)};
}

// The largest difference between elements, in units of the root mean square of the expected elements.
inline double difference_to_scale(const AnyArray& found, const AnyArray& expected) {
  const auto x = doubles(found), y = doubles(expected);
  double most = 0, squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double difference = std::abs(x[i] - y[i]);
    if (std::isnan(difference)) return INFINITY;
    most = std::max(most, difference);
    squares += y[i] * y[i];
  }
  return most / std::sqrt(squares / static_cast<double>(y.size()));
}

// The largest relative difference between kernels and definition on random values.
template <Element T>
double convolution_error(const ConvolutionCase& c, const EvaluateOptions& options = {}) {
  const auto x = random_array<T>(c.x, 1).any(), w = random_array<T>(c.w, 2).any(), dy = random_array<T>(c.y, 3).any();
  const auto expected = by_definition(c, x, w, dy), found = by_kernels(c, x, w, dy, options);
  return std::max({largest_difference(found.y, expected.y), largest_difference(found.dx, expected.dx),
                   largest_difference(found.dw, expected.dw)});
}

}  // namespace replicator::test
