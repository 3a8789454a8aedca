// SPDX-License-Identifier: Apache-2.0
// Training of each replica's own weights, and their mean from time to time: local SGD and federated averaging.
// Source: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-efficient learning of deep networks from
// decentralized data", 2017; Stich, "Local SGD converges fast and communicates little", 2019.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/placeholder.hpp>
#include <replicator/nn/optimizers/optimizer.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

// Makes an optimizer train the variables of each replica by that replica's own gradients. Nothing is communicated. The
// variables must be replica-local: see ReplicaContext::local_variables.
//
// Batch norm needs no more: its weight and bias become replica-local too and are trained like the others. Its running statistics
// always are replica-local, and each replica follows its own batches. So replicas normalise differently between two averages, and a
// prediction uses the statistics of the replica that makes it. nn::average_over_replicas averages weights and statistics alike. The
// mean of the replicas' variances is less than the variance over all their examples, because their means differ. With
// {.across_replicas = true}, batch norm uses the moments over all replicas. It then needs an all-reduce in each layer and step.
template <class Optimizer>
class Local {
  static_assert(!detail::averages<Optimizer>, "replicator: nn::local trains each replica alone, and wrap_optimizer averages over the replicas: choose one of them");

 public:
  explicit Local(Optimizer inner) : inner_{std::move(inner)} {}

  // Takes one step towards a smaller loss of this replica. Updates the given variables; by default, every trainable
  // variable of the loss's element type that this step has read.
  // Throws BuildError without a variable, if one is mirrored, or if the loss is not one number.
  template <FloatingElement T>
  requires AppliesGradients<Optimizer, T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, std::source_location where = std::source_location::current()) const {
    minimize(replica, loss, replica.trainable_variables<T>(), where);
  }
  template <FloatingElement T>
  requires AppliesGradients<Optimizer, T>
  void minimize(ReplicaContext& replica, Tensor<T> loss, const std::vector<Variable<T>>& variables,
                std::source_location where = std::source_location::current()) const {
    require_variables(replica, variables, "minimize", where);
    for (const auto& variable : variables) require_local(replica, variable.index(), where);
    detail::note_minimised(replica, variables, where);
    inner_.apply_gradients(replica, variables, variable_gradients(loss, variables, where), where);
  }

 private:
  static void require_local(const ReplicaContext& replica, std::uint32_t variable, Location where) {
    const auto& declared = replica.graph().variables()[variable];
    if (declared.kind != VariableKind::replica_local)
      throw BuildError{replicator::detail::call_text(replica.id(), "minimize of nn::local", where) + " was given \"" + declared.name +
                       "\", declared at " + declared.where.text() +
                       ", which is mirrored: each replica would give it another value; declare it while replica.local_variables() lives, minimize it "
                       "without nn::local, or give nn::local a list of the others: replica.trainable_variables<float>(\"expert\"), for example"};
  }

  Optimizer inner_;
};

// nn::local(nn::sgd({.learning_rate = 0.1})).minimize(replica, loss);
template <class Optimizer>
Local<Optimizer> local(Optimizer optimizer) {
  return Local<Optimizer>{std::move(optimizer)};
}

// Sets each replica-local floating variable to its mean over the replicas: weights, statistics of batch norm, and what
// optimizers remember. It takes those that this step has declared up to here; with a scope, by its whole name, only those below
// it. Integers, such as Adam's count of updates, do not change. It makes one all-reduce for each variable, labelled "<variable>/mean".
// **Give a scope if an optimizer keeps its state in parts (sharded, low_rank).** Each replica has the part of other elements, so
// their mean makes no sense.
// Throws BuildError if there are none.
template <class = void>
void average_over_replicas(ReplicaContext& replica, std::string_view scope = {}, std::source_location where = std::source_location::current()) {
  Graph& graph = replica;
  const std::string start = scope.empty() ? std::string{} : std::string{scope} + ".";
  bool any = false;
  for (std::uint32_t i = 0; i < graph.variables().size(); ++i) {
    const VariableDeclaration declared = graph.variables()[i];
    if (declared.kind != VariableKind::replica_local || !is_floating(declared.type.dtype) || !declared.name.starts_with(start)) continue;
    const AnyTensor mean = replicator::detail::placeholder_node(
        graph.read(i, where), {replicator::detail::CollectiveKind::all_reduce, Reduction::mean, 0, false, {}}, where, declared.name + "/mean");
    graph.assign(i, mean.value(), where);
    any = true;
  }
  if (!any)
    throw BuildError{replicator::detail::call_text(replica.id(), "average_over_replicas", where) +
                     " found no replica-local floating variable" + (scope.empty() ? std::string{} : " below \"" + std::string{scope} + "\"") +
                     " that this step has declared: declare the layers before, while replica.local_variables() lives"};
}

}  // namespace replicator::nn
