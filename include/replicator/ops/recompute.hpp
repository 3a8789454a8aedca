// SPDX-License-Identifier: Apache-2.0
// rp::recompute: the values inside a part of a step are computed again for the backward pass, and not kept.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <replicator/core/scoped_value.hpp>
#include <replicator/graph/tensor.hpp>

namespace replicator {

namespace detail {

template <class A>
concept CarriesGraph = requires(const std::remove_cvref_t<A>& a) {
  { a.graph() } -> std::convertible_to<Graph&>;
};

// The result of rp::recompute. It calls f and marks the nodes that f makes.
template <class F>
class Recomputed {
 public:
  explicit Recomputed(F f) : f_{std::move(f)} {}

  template <class... A>
  auto operator()(A&&... arguments) const {
    constexpr bool knows_graph = (CarriesGraph<A> || ...);
    static_assert(knows_graph, "replicator: the function made by rp::recompute(f) must be called with at least one rp::Tensor (or the ReplicaContext)");
    if constexpr (knows_graph) {
      Graph& graph = graph_of(arguments...);
      detail::NodeMarks marks = graph.marks();
      if (marks.region == 0) marks.region = graph.next_region();
      const detail::ScopedValue scope{graph.marks(), marks};
      return f_(std::forward<A>(arguments)...);
    }
  }

 private:
  template <class A, class... Rest>
  static Graph& graph_of(const A& first, const Rest&... rest) {
    if constexpr (CarriesGraph<A>) return first.graph();
    else return graph_of(rest...);
  }

  F f_;
};

}  // namespace detail

// Returns a function like f, of tensors. Its inner values are not kept for the backward pass. When that needs them, they are
// computed again from f's arguments. This saves memory at the price of a second forward pass of f. The bits stay the same, even
// those of random numbers.
//
// Some values are kept: what f returns, results of its collectives, small results of its reductions, and values of less than
// Deployment::recompute_bytes. Within another rp::recompute it does nothing of its own.
//   x = rp::recompute([&](auto x) { return block(replica, x); })(x);
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
template <class F>
auto recompute(F f) {
  return detail::Recomputed<F>{std::move(f)};
}

}  // namespace replicator
