// SPDX-License-Identifier: Apache-2.0
// Compares the gradient of a function with differences of its values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/number_text.hpp>
#include <replicator/core/real.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

namespace replicator {

struct GradientCheck {
  double error = 0;  // the largest |gradient - difference| / max(1, |difference|); infinity for one that is not finite
  std::string text;  // where it is: "argument 1, element 7: the gradient is 2, differences give 3"
};

namespace detail {

// Numbers between 0.5 and 1.5 that have no simple pattern.
inline Array<double> uneven_weights(const Shape& shape) {
  Array<double> weights{shape};
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    const double turns = 0.618034 * static_cast<double>(i + 1);  // the golden ratio spreads the fractions evenly
    weights[i] = 0.5 + turns - static_cast<double>(static_cast<std::int64_t>(turns));
  }
  return weights;
}

// Element 0 is x. Elements 2 k + 1 and 2 k + 2 are x with the k-th number of all arrays changed by +-step.
template <class Arrays, std::size_t... I>
auto varied(const Arrays& x, double step, std::index_sequence<I...>) {
  return data::from_generator([x, step](std::int64_t position) {
    Arrays at = x;
    std::int64_t k = (position - 1) / 2;
    const auto change = [&](Array<double>& array) {
      if (k >= 0 && k < array.size()) array[k] += position % 2 == 1 ? step : -step;
      k -= array.size();
    };
    if (position > 0) (change(std::get<I>(at)), ...);
    return at;
  });
}

}  // namespace detail

// Compares the gradient of f, by rp::gradients, with central differences at x. f takes a Tensor<double> for each array, and
// returns one. All elements of its result are added with uneven weights. It runs two steps for each element of x, on one
// replica of this process alone. At a kink, such as relu at 0, the two may differ. f must not draw random numbers, which differ
// between the steps. The error is relative to the difference, or absolute where that is below 1: scale f so that it is not.
//   const auto check = rp::check_gradients([](auto a, auto b) { return my_loss(a, b); }, a, b);
//   if (check.error > 1e-6) std::cerr << check.text << '\n';
template <class F, class... Arrays>
GradientCheck check_gradients(F f, const Array<double>& first, const Arrays&... more) {
  constexpr double step = 1e-5;
  const std::tuple x{first, Array<double>{more}...};
  constexpr auto arguments = std::make_index_sequence<1 + sizeof...(Arrays)>{};
  Deployment alone;
  alone.processes = Processes{};  // also inside of a larger job
  Replicator repl{alone};
  auto values = repl.replicate([&](const InputContext&) { return detail::varied(x, step, arguments); },
                               [f = std::move(f)](ReplicaContext&, auto... at) {
                                 const Tensor<double> y = f(at...);
                                 const auto total = sum(y * constant(y.graph(), detail::uneven_weights(y.shape())));
                                 const auto slopes = gradients(total, std::vector<Tensor<double>>{at...});
                                 return [&]<std::size_t... I>(std::index_sequence<I...>) { return std::tuple{total, slopes[I]...}; }
                                 (std::make_index_sequence<sizeof...(at)>{});
                               });
  const auto at_x = values.step();
  GradientCheck worst{-1, {}};
  const auto compare = [&](std::size_t argument, const Array<double>& slopes) {
    for (std::int64_t i = 0; i < slopes.size(); ++i) {
      const double up = std::get<0>(values.step())[0][0], down = std::get<0>(values.step())[0][0];
      const double difference = (up - down) / (2 * step);
      double error = std::abs(slopes[i] - difference) / std::max(1.0, std::abs(difference));
      if (!detail::is_finite(error)) error = std::numeric_limits<double>::infinity();
      if (error > worst.error)
        worst = {error, "argument " + std::to_string(argument) + ", element " + std::to_string(i) + ": the gradient is " + detail::number_text(slopes[i]) +
                            ", differences give " + detail::number_text(difference)};
    }
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) { (compare(I, std::get<I + 1>(at_x)[0]), ...); }
  (arguments);
  if (worst.error < 0) return {0, "no elements"};
  return worst;
}

}  // namespace replicator
