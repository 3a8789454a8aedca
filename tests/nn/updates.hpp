// SPDX-License-Identifier: Apache-2.0
// Three updates of one variable by given gradients, run by the engine. The expected values in the tests come from
// PyTorch's optimizers in float64.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../replicate/deployments.hpp"
#include "../support/evaluate.hpp"

namespace replicator::test {

using namespace replicator::detail;

inline constexpr double first_values[] = {1, -2, 0.5, 3};
inline constexpr double three_gradients[3][4] = {{0.5, -1, 0, 2}, {0.25, 3, -0.125, 1}, {-0.5, 0.5, 0.0625, -4}};

// The values of these variables after three steps. "w" begins with first_values; the loss is sum(w * gradient).
template <FloatingElement T, class Optimizer>
std::map<std::string, std::vector<double>> updated(const Optimizer& optimizer, const std::vector<std::string>& names, const Shape& shape = {2, 2}) {
  const auto filled = [&](const double* values) {
    Array<T> array{shape};
    std::copy(values, values + 4, array.begin());
    return array;
  };
  Replicator repl{on_devices(1, 1)};
  auto train = repl.replicate(
      [&](const InputContext&) { return data::from_generator([&](std::int64_t at) { return filled(three_gradients[at % 3]); }); },
      [&](ReplicaContext& replica, Tensor<T> gradient) {
        const auto w = replica.template variable<T>("w", shape, Initializer::value(filled(first_values)));
        const auto loss = sum(w.read() * gradient);
        optimizer.minimize(replica, loss);
        return loss;
      });
  for (int i = 0; i < 3; ++i) train.step();
  std::map<std::string, std::vector<double>> result;
  for (const auto& name : names) result.emplace(name, doubles(repl.value(name)));
  return result;
}

// How far the values are from the expected ones, relative to 1 + |expected|.
inline double distance(const std::vector<double>& values, const std::vector<double>& expected) {
  double most = values.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(values.size(), expected.size()); ++i) {
    const double d = std::abs(values[i] - expected[i]) / (1 + std::abs(expected[i]));
    most = d <= most ? most : d;  // a NaN stays
  }
  return most;
}

}  // namespace replicator::test
