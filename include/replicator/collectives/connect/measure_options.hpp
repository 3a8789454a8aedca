// SPDX-License-Identifier: Apache-2.0
// MeasureOptions: how long the measurement of links may take.
#pragma once

#include <chrono>

namespace replicator::detail::collectives {

// Limits on the time of a measurement.
struct MeasureOptions {
  std::chrono::microseconds budget{1000000};  // for all rounds together, roughly
  std::chrono::milliseconds deadline{20000};  // for each wait on a partner
};

}  // namespace replicator::detail::collectives
