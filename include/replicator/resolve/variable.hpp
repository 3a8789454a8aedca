// SPDX-License-Identifier: Apache-2.0
// A variable of the model, as one replica's step reads and assigns it.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include <replicator/graph/tensor.hpp>

namespace replicator {

// A handle on a variable within one replica's step. Reads see the value at the step's start plus this replica's own
// assignments, in program order. All assignments take effect together when the step has succeeded. Gradients end at a
// read: they do not continue into the computation of an assigned value, such as an optimizer's update.
template <Element T>
class Variable {
 public:
  Variable(Graph& graph, std::uint32_t index) : graph_{graph}, index_{index} {}

  Tensor<T> read(std::source_location where = std::source_location::current()) const { return Tensor<T>{graph_->read(index_, where)}; }
  operator Tensor<T>() const { return Tensor<T>{graph_->read(index_, declaration().where)}; }  // NOLINT: implicit on purpose
  // Throws BuildError if the shape differs. A mirrored variable must be assigned a value that is the same on all
  // replicas.
  void assign(Tensor<T> value, std::source_location where = std::source_location::current()) const {
    if (!value.any().in(graph_)) Graph::refuse_foreign("the assignment to \"" + name() + "\" at " + Location{where}.text(), value);
    graph_->assign(index_, value.any().value(), where);
  }
  const std::string& name() const { return declaration().name; }
  const Shape& shape() const { return declaration().type.shape; }
  std::uint32_t index() const { return index_; }
  std::int32_t device() const { return declaration().device; }  // the logical device of the replica

 private:
  const VariableDeclaration& declaration() const { return graph_->variables()[index_]; }

  detail::GraphHandle graph_;
  std::uint32_t index_;
};

}  // namespace replicator
