// SPDX-License-Identifier: Apache-2.0
// The identity that stops gradients.
#pragma once

#include <source_location>

#include <replicator/graph/tensor.hpp>

namespace replicator {

// The same value; no gradient flows back through it.
template <Element T>
Tensor<T> stop_gradient(Tensor<T> x, std::source_location where = std::source_location::current()) {
  return Tensor<T>{compute(x.graph(), StopGradient{}, {x}, where)};
}

}  // namespace replicator
