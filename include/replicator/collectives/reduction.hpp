// SPDX-License-Identifier: Apache-2.0
// The arithmetic at a node of the reduction tree: one plain operation per element, with equal bits on every instruction
// set. Values of bfloat16 are combined in float. Every node rounds its result, on whichever rank it is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/reduction.hpp>
#include <string>

namespace replicator::detail::collectives {

using replicator::name_of;
using replicator::Reduction;

// Throws BuildError for a sum or mean of bool and a mean of integers.
inline void require_reducible(DType dtype, Reduction reduction) {
  if (const auto fault = reduction_fault(dtype, reduction, replicator::name_of(dtype)); !fault.empty()) throw BuildError{fault};
}

// dst = combine(left, right) over `elements` elements. dst may equal `left` or `right`; otherwise it overlaps neither.
using CombineFunction = void (*)(std::byte* dst, const std::byte* left, const std::byte* right, std::int64_t elements);

// The loop for this machine's instruction set. Throws BuildError as require_reducible does.
template <class = void>
CombineFunction combine_function(DType dtype, Reduction reduction);

// dst = combine(left, right), elementwise; see CombineFunction. Throws BuildError as require_reducible does.
inline void combine(DType dtype, Reduction reduction, std::byte* dst, const std::byte* left, const std::byte* right,
                    std::int64_t elements) {
  combine_function(dtype, reduction)(dst, left, right, elements);
}

// Turns the root of T into the result: a mean is divided by the number of replicas, any other reduction is left as it is.
template <class = void>
void finish_root(DType dtype, Reduction reduction, std::byte* values, std::int64_t elements, int replicas);

}  // namespace replicator::detail::collectives
