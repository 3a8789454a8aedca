// SPDX-License-Identifier: Apache-2.0
// Random shapes for RapidCheck.
#pragma once

#include <rapidcheck.h>

#include <replicator/core/shape.hpp>

namespace replicator::test {

using namespace replicator::detail;

// A shape with a rank and extents within these bounds, both included.
inline Shape draw_shape(int least_rank, int most_rank, std::int64_t least, std::int64_t most) {
  Shape shape;
  for (int rank = *rc::gen::inRange(least_rank, most_rank + 1); rank > 0; --rank)
    shape.push_back(*rc::gen::inRange<std::int64_t>(least, most + 1));
  return shape;
}

}  // namespace replicator::test
