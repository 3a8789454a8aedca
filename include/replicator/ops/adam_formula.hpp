// SPDX-License-Identifier: Apache-2.0
// The formula of Adam, written once for graphs (on symbols) and for kernels (on numbers).
#pragma once

#include <memory>
#include <optional>

#include <replicator/graph/map.hpp>

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
// p - rate first / (root factor + epsilon), where root is the square root of the second moment
template <class X, class Number>
constexpr X next_weight(X p, X first, X root, X rate, X factor, const AdamConstants<Number>& c) {
  return p - rate * (first / (root * factor + c.epsilon));
}

// Tells kernels that a Map is Adam's: its expression is (p, gradient, kept, rate, factor, first, second) -> (p, first, second) by
// the formula above.
struct AdamFormula {
  AdamConstants<double> constants;
  bool decays;  // p is multiplied by `kept` first

  std::shared_ptr<const KnownFormula> known() const {
    return std::make_shared<const KnownFormula>(
        KnownFormula{"adam", {constants.beta1, constants.rest1, constants.beta2, constants.rest2, constants.epsilon, decays ? 1.0 : 0.0}});
  }
  static std::optional<AdamFormula> of(const Map& map) {
    if (!map.known || map.known->name != "adam") return {};
    const auto& c = map.known->constants;
    return AdamFormula{{c[0], c[1], c[2], c[3], c[4]}, c[5] != 0};
  }
};

}  // namespace replicator::detail
