// SPDX-License-Identifier: Apache-2.0
// A sharded optimizer (ZeRO stage 1): its state is split over the replicas instead of copied on each.
// Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020 (its first
// stage).
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <replicator/nn/optimizers/dealt_elements.hpp>
#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/nn/optimizers/update.hpp>

namespace replicator::nn {

struct ShardedOptions {
  std::int64_t least = 4096;  // smaller variables (in elements) are not sharded: every replica updates them, and their gradients share buckets
  Wire wire = Wire::whole;    // for the gradients; the new values move unchanged
};

// **A checkpoint can be resumed only with the same R and `least`**: it holds every replica's part.
//
// With R replicas, a reduce_scatter gives replica i part i of the mean gradient. The replica updates that part of the
// variable, and an all_gather joins the parts. As many bytes move as in an all-reduce.
//
// The state ("<variable>/momentum", ...) is replica-local and has 1/R of the elements, so a device with r replicas
// holds r/R of it. The new values have the bits of the unsharded optimizer: elements are updated one by one, and their
// means follow the same tree.
template <UpdatesElements Optimizer>
class Sharded {
 public:
  explicit Sharded(Optimizer inner, ShardedOptions options = {}) : inner_{std::move(inner)}, options_{options} {}

  // Like AveragingOptimizer::minimize.
  template <FloatingElement T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, std::source_location where = std::source_location::current()) const {
    minimize(replica, loss, replica.trainable_variables<T>(), where);
  }
  template <FloatingElement T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, const std::vector<Variable<T>>& variables,
                std::source_location where = std::source_location::current()) const {
    require_trainable(replica, variables, "minimize", where);
    detail::note_minimised(replica, variables, where);
    auto all = trained(variables, variable_gradients(loss, variables, where), where);
    for (const auto i : detail::order_of_making(all)) all[i] = averaged(replica, all[i], where);
    inner_.update_elements(replica, all, replicator::detail::compute_type(dtype_of<T>), where);
  }

 private:
  Trained averaged(ReplicaContext& replica, const Trained& one, Location where) const {
    const VariableDeclaration& variable = replica.graph().variables()[one.variable];
    const bool in_parts = replica.count() > 1 && variable.type.shape.elements() >= options_.least;
    const auto kind = in_parts ? replicator::detail::CollectiveKind::reduce_scatter : replicator::detail::CollectiveKind::all_reduce;
    const AnyTensor gradient = in_parts ? detail::in_parts(one.gradient, where) : one.gradient;
    return {one.variable, detail::mean_by_wire(kind, gradient, options_.wire, variable.name + "/gradient", where), in_parts};
  }

  Optimizer inner_;
  ShardedOptions options_;
};

// nn::sharded(nn::adamw({.learning_rate = 3e-4})).minimize(replica, loss);
template <class Optimizer>
auto sharded(Optimizer optimizer, ShardedOptions options = {}) {
  static_assert(UpdatesElements<Optimizer>,
                "replicator: nn::sharded takes sgd, adam, adamw or rmsprop: an optimizer that updates each element by itself (update_elements); norms of "
                "whole variables or gradients are not known to a replica that has a part");
  if constexpr (UpdatesElements<Optimizer>) return Sharded<Optimizer>{std::move(optimizer), options};
  else return optimizer;
}

}  // namespace replicator::nn
