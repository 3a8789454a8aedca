// SPDX-License-Identifier: Apache-2.0
// Handles that name a tensor in a graph.
#pragma once

#include <cstdint>

#include <replicator/core/shape.hpp>
#include <replicator/graph/graph_handle.hpp>

namespace replicator {

// Output `output` of node `node` of a graph.
struct Value {
  std::uint32_t node = 0;
  std::uint32_t output = 0;

  friend bool operator==(const Value&, const Value&) = default;
  friend auto operator<=>(const Value&, const Value&) = default;
};

// A handle on a value in a graph, of any dtype; empty by default. Cheap to copy.
class AnyTensor {
 public:
  AnyTensor() = default;
  AnyTensor(Graph& graph, Value value) : graph_{graph}, value_{value} {}

  explicit operator bool() const { return static_cast<bool>(graph_); }
  // Throws BuildError where the graph is gone, that is, the tensor was kept from an earlier trace.
  Graph& graph() const { return *graph_; }
  bool in(const detail::GraphHandle& graph) const { return graph_ == graph; }
  Value value() const { return value_; }
  const TensorType& type() const;  // graph.hpp
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }

 private:
  detail::GraphHandle graph_;
  Value value_;
};

}  // namespace replicator
