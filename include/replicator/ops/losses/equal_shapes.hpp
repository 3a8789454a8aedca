// SPDX-License-Identifier: Apache-2.0
// A check for losses that compare two tensors.
#pragma once

#include <string>
#include <string_view>

#include <replicator/graph/graph.hpp>

namespace replicator::detail {

// Requires equal shapes, because broadcasting in such a loss is nearly always a mistake. Throws BuildError.
inline void require_equal_shapes(std::string_view what, AnyTensor a, AnyTensor b, Location where) {
  if (a.shape() == b.shape()) return;
  const auto left = a.shape().elements(), right = b.shape().elements();
  throw BuildError{detail::call_text(a.graph().replica(), what, where) +
                   ": the shapes must be equal, found " + a.shape().text() + " and " + b.shape().text() +
                   (left == right ? ": reshape one of them"
                                  : ": one of them has " + std::to_string(left) + " elements, the other " + std::to_string(right) +
                                        ", so check how both were computed")};
}

}  // namespace replicator::detail
