// SPDX-License-Identifier: Apache-2.0
// Measures the random variation of the times of a device's kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace replicator::detail {

// Deviations from step to step, relative to the mean: 0.05 is 5 %.
struct MeasuredJitter {
  double kernel = 0;  // of a single kernel, after its step's total time is normalised: root mean square, weighted by time
  double device = 0;  // of the sum of all kernels of a step
};

// `times`: [step][instruction], with the same instructions in each step. A single step has no jitter.
inline MeasuredJitter measure_jitter(const std::vector<std::vector<double>>& times) {
  if (times.size() < 2) return {};
  const auto steps = static_cast<double>(times.size());
  std::vector<double> sums;
  double mean = 0;
  for (const auto& step : times) {
    double sum = 0;
    for (const double time : step) sum += time;
    if (!(sum > 0)) return {};
    sums.push_back(sum);
    mean += sum / steps;
  }
  double of_sums = 0, of_kernels = 0, squares = 0;
  for (const double sum : sums) of_sums += (sum - mean) * (sum - mean) / (steps - 1);
  for (std::size_t i = 0; i < times[0].size(); ++i) {
    const auto even = [&](std::size_t step) { return times[step][i] * mean / sums[step]; };
    double average = 0;
    for (std::size_t s = 0; s < times.size(); ++s) average += even(s) / steps;
    for (std::size_t s = 0; s < times.size(); ++s) of_kernels += (even(s) - average) * (even(s) - average) / (steps - 1);
    squares += average * average;
  }
  return {std::sqrt(of_kernels / squares), std::sqrt(of_sums) / mean};
}

}  // namespace replicator::detail
