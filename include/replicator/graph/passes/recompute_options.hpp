// SPDX-License-Identifier: Apache-2.0
// RecomputeOptions: which values the pass `recompute` computes again instead of keeping them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace replicator::detail::passes {

struct RecomputeOptions {
  std::int64_t smallest = 64 << 10;   // bytes from which a value is worth it
  std::size_t most_large_inputs = 1;  // of a cheap value
};

}  // namespace replicator::detail::passes
