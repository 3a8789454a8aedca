// SPDX-License-Identifier: Apache-2.0
// Functions of real numbers for headers that every program includes. <cmath> would add 3 % to the time that such a program
// takes to compile.
#pragma once

namespace replicator::detail {

// Neither NaN nor infinite.
constexpr bool is_finite(double x) { return x - x == 0; }
// The square root, correctly rounded (IEEE 754), as std::sqrt gives it.
inline double square_root(double x) { return __builtin_sqrt(x); }

}  // namespace replicator::detail
