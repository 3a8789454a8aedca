// SPDX-License-Identifier: Apache-2.0
// Gives an array the first values of a variable.
#pragma once

#include <cmath>
#include <cstdint>

#include <replicator/core/array.hpp>
#include <replicator/graph/variable.hpp>

namespace replicator::detail::cpu {

// Whether all values are +0, so that untouched memory holds them already.
inline bool is_zero(const Initializer& initializer) {
  return initializer.kind == Initializer::Kind::constant && initializer.a.real() == 0 && !std::signbit(initializer.a.real());
}

// Fills an array that has only zeros, by an initializer of another kind than `value`. Random values depend on seed, stream and
// position.
template <class = void>
void initialize(AnyArray& array, const Initializer& initializer, std::uint64_t seed, std::uint64_t stream);

}  // namespace replicator::detail::cpu
