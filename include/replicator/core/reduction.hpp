// SPDX-License-Identifier: Apache-2.0
// How a collective combines the contributions of the replicas.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <replicator/core/dtype.hpp>

namespace replicator {

// `mean` is a sum whose root is divided once by the number of replicas.
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

// Why elements of this dtype cannot be combined so over replicas, in a sentence that calls them `what`; empty where they can.
// Everything has a minimum and a maximum; of bool nothing else is defined, and integers have no mean.
inline std::string reduction_fault(DType dtype, Reduction reduction, std::string_view what) {
  const bool adds = reduction == Reduction::sum || reduction == Reduction::mean;
  if (!(dtype == DType::boolean && adds) && (is_floating(dtype) || reduction != Reduction::mean)) return {};
  return std::string{name_of(reduction)} + " of " + std::string{what} +
         " over replicas is not defined: cast to a floating type first, or take min or max";
}

}  // namespace replicator
