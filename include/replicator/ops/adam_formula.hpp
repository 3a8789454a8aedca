// SPDX-License-Identifier: Apache-2.0
// The formula of Adam, written once: for graphs, on symbols, and for kernels, on numbers.
#pragma once

namespace replicator::detail {

template <class Number>
struct AdamConstants {
  Number beta1, rest1;  // 1 - beta1
  Number beta2, rest2;
  Number epsilon;
};

// first = beta1 first + rest1 g;  second = beta2 second + rest2 g g
template <class X, class Number>
constexpr X next_first_moment(X first, X g, const AdamConstants<Number>& c) {
  return c.beta1 * first + c.rest1 * g;
}
template <class X, class Number>
constexpr X next_second_moment(X second, X g, const AdamConstants<Number>& c) {
  return c.beta2 * second + c.rest2 * (g * g);
}
// p - rate first / (root factor + epsilon), where root is that of the second moment
template <class X, class Number>
constexpr X next_weight(X p, X first, X root, X rate, X factor, const AdamConstants<Number>& c) {
  return p - rate * (first / (root * factor + c.epsilon));
}

}  // namespace replicator::detail
