// SPDX-License-Identifier: Apache-2.0
// Tells a function with other parameters from one whose body has an error, so that a static_assert speaks only of the former.
#pragma once

#include <type_traits>

namespace replicator::detail {

struct AnyCall {
  template <class... A>
  void operator()(A&...) const {}
};
template <class F>
struct WithAnyCall : F, AnyCall {
  using F::operator();
  using AnyCall::operator();
};

// Whether F has an operator(), of any form. A second one makes its name ambiguous.
struct OneCall {
  void operator()() const {}
};
template <class F>
struct WithOneCall : F, OneCall {};
template <class F>
constexpr bool can_be_called() {
  if constexpr (!std::is_class_v<F> || std::is_final_v<F>) return false;
  else return !requires {
      &WithOneCall<F>::operator();
    };
}

// For an F that is not invocable with these arguments: whether its parameters fit, so that its body must have an error.
// - If they do not fit, AnyCall is the only choice, and the call below is valid.
// - If they do, F and AnyCall are equally good, or F is taken, whose result has no type. Either way the call is invalid.
template <class F, class... Arguments>
constexpr bool parameters_fit() {
  if constexpr (!can_be_called<F>()) return false;
  else return !requires(WithAnyCall<F> & f, std::remove_reference_t<Arguments> & ... arguments) {
      f(arguments...);
    };
}

}  // namespace replicator::detail
