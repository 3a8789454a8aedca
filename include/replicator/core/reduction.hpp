// SPDX-License-Identifier: Apache-2.0
// How a collective combines the contributions of the replicas.
#pragma once

#include <cstdint>
#include <string_view>

namespace replicator {

// `mean` is a sum whose root is divided once by the number of replicas.
enum class Reduction : std::uint8_t { sum, mean, min, max };

constexpr std::string_view name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::mean: return "mean";
    case Reduction::min: return "min";
    case Reduction::max: return "max";
  }
  return "?";
}

}  // namespace replicator
