// SPDX-License-Identifier: Apache-2.0
// The reductions of collectives: how the contributions of the replicas are combined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <replicator/core/dtype.hpp>

namespace replicator {

// `mean` is the sum, divided once at the root by the number of replicas.
enum class Reduction : std::uint8_t {
  sum,
  mean,
  min,
  max
};

// "sum", "mean", "min" or "max".
constexpr std::string_view name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::mean: return "mean";
    case Reduction::min: return "min";
    case Reduction::max: return "max";
  }
  return "?";
}

// Says why elements of this dtype cannot be reduced this way, in a sentence that calls them `what`; empty if they can.
// Every dtype has min and max. bool has nothing else, and integers have no mean.
inline std::string reduction_fault(DType dtype, Reduction reduction, std::string_view what) {
  const bool adds = reduction == Reduction::sum || reduction == Reduction::mean;
  if (!(dtype == DType::boolean && adds) && (is_floating(dtype) || reduction != Reduction::mean)) return {};
  return std::string{name_of(reduction)} + " of " + std::string{what} +
         " over replicas is not defined: cast to a floating type first, or take min or max";
}

}  // namespace replicator
