// SPDX-License-Identifier: Apache-2.0
// Checks gradient rules against central differences, in double.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <replicator/graph/gradients.hpp>

#include "evaluate.hpp"

namespace replicator::test {

using namespace replicator::detail;

using Function = std::function<AnyTensor(Graph&, std::span<const AnyTensor>)>;

inline double dot(const AnyArray& a, const AnyArray& b) {
  const auto x = doubles(a), y = doubles(b);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// Compares the change of sum(f(x) * r) along a random direction of each input with the gradient. Returns the largest
// difference relative to 1 + the derivative. `order` 2 checks the gradient of sum(gradient * s) instead.
inline double gradient_error(const Function& f, std::vector<AnyArray> x, int order, double step = 1e-4,
                             const EvaluateOptions& options = {}) {
  Graph graph;
  std::vector<AnyTensor> xs;
  for (std::size_t i = 0; i < x.size(); ++i) xs.push_back(input(graph, x[i].type(), static_cast<std::uint32_t>(i)));
  AnyTensor y = f(graph, xs);
  const auto weighted = [&](AnyTensor value, std::uint64_t seed) {
    const AnyTensor r = constant_node(graph, random_array<double>(value.shape(), seed).any(), {});
    return apply(ScalarOp::multiply, {value, r}, {});
  };
  std::vector<AnyTensor> terms{weighted(y, 11)};
  if (order == 2) {
    const auto first = gradients(terms[0], xs, {});
    terms.clear();
    for (std::size_t i = 0; i < first.size(); ++i) terms.push_back(weighted(first[i], 20 + i));
  }
  // Each term has the shape of its own input: one gradient per term, added up.
  std::vector<std::vector<AnyTensor>> slopes;
  for (const auto& term : terms) slopes.push_back(gradients(term, xs, {}));
  std::vector<Value> term_values, slope_values;
  for (std::size_t t = 0; t < terms.size(); ++t) {
    term_values.push_back(terms[t].value());
    for (const auto& slope : slopes[t]) slope_values.push_back(slope.value());
  }
  const auto total = [&](const std::vector<AnyArray>& at) {
    double sum = 0;
    for (const auto& array : evaluate(graph, term_values, at, options))
      for (const double value : doubles(array)) sum += value;
    return sum;
  };
  const auto slope_arrays = evaluate(graph, slope_values, x, options);
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const AnyArray direction = random_array<double>(x[i].shape(), 40 + i).any();
    const auto moved = [&](double by) {
      auto at = x;
      for (std::size_t e = 0; e < doubles(x[i]).size(); ++e) at[i].as<double>()[e] += by * direction.as<double>()[e];
      return total(at);
    };
    double slope = 0;
    for (std::size_t t = 0; t < terms.size(); ++t) slope += dot(slope_arrays[t * x.size() + i], direction);
    const double measured = (moved(step) - moved(-step)) / (2 * step);
    const double error = std::abs(slope - measured) / (1 + std::abs(measured));
    if (std::isnan(error)) return INFINITY;
    most = std::max(most, error);
  }
  return most;
}

}  // namespace replicator::test
