// SPDX-License-Identifier: Apache-2.0
// A variable of the model, as one replica's step reads and assigns it.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <source_location>
#include <string>
#include <type_traits>

#include <replicator/graph/tensor.hpp>

namespace replicator {

namespace detail {
template <class X, class T>
concept AssignedInCpp = std::same_as<X, Tensor<T>> || std::is_arithmetic_v<X>;
}  // namespace detail

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
  // C++ has no assignment that a graph could record.
  template <detail::AssignedInCpp<T> X>
  Variable& operator=(const X&) { return refuse_assignment<X>(); }
  template <detail::AssignedInCpp<T> X>
  Variable& operator+=(const X&) { return refuse_assignment<X>(); }
  template <detail::AssignedInCpp<T> X>
  Variable& operator-=(const X&) { return refuse_assignment<X>(); }
  template <detail::AssignedInCpp<T> X>
  Variable& operator*=(const X&) { return refuse_assignment<X>(); }
  template <detail::AssignedInCpp<T> X>
  Variable& operator/=(const X&) { return refuse_assignment<X>(); }

  // Prints the name and the type, "fc.weight float32[16, 10]": all that is known while the step is traced.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const Variable& w) {
    return out << w.name() << ' ' << w.declaration().type.text();
  }

  const std::string& name() const { return declaration().name; }
  const Shape& shape() const { return declaration().type.shape; }
  std::uint32_t index() const { return index_; }
  // What its first value is made by, for another declaration of the same variable.
  const Initializer& initializer() const { return declaration().initializer; }
  std::int32_t device() const { return declaration().device; }  // the logical device of the replica

 private:
  template <class X>
  Variable& refuse_assignment() {
    static_assert(!std::same_as<X, X>, "replicator: w.assign(x) gives a variable the value x when the step has succeeded: w.assign(w.read() + 1.0f), for example");
    return *this;
  }
  const VariableDeclaration& declaration() const { return graph_->variables()[index_]; }

  detail::GraphHandle graph_;
  std::uint32_t index_;
};

}  // namespace replicator
