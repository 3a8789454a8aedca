// SPDX-License-Identifier: Apache-2.0
// Order statistics of measured values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace replicator::detail {

// The value with the fraction `part` (0 to 1) of the other values below it; 0 if there are none.
inline double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto found = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), found, values.end());
  return *found;
}

inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace replicator::detail
