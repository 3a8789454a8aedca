// SPDX-License-Identifier: Apache-2.0
// A node of a graph: one of a closed set of alternatives, applied to inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/collective_kind.hpp>
#include <replicator/core/groups.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/core/location.hpp>
#include <replicator/core/reduction.hpp>
#include <replicator/graph/operation.hpp>
#include <replicator/graph/value.hpp>

namespace replicator::detail {

// A value that a step receives from outside.
struct Input {
  enum class Source : std::uint8_t {
    element,     // component `index` of the input element; varies
    replica_id,  // int32 scalar; varies
    step,        // int64 scalar, the number of steps done before this one; uniform
    arrival,     // value number `index` from elsewhere: a mean over replicas, so uniform
  };
  Source source = Source::element;
  std::uint32_t index = 0;
};

// A value that is known while tracing.
struct Constant {
  std::shared_ptr<const AnyArray> array;
  Digest digest;  // of type and bits
};

// A variable's value at the step's start. `variable` indexes Graph::variables().
struct Read {
  std::uint32_t variable = 0;
};

// A variable's value after the step. It has no output.
struct Assign {
  std::uint32_t variable = 0;
};

// The placeholder of a collective. It can be inspected, printed and differentiated, but not run.
struct Placeholder {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Reduction reduction = Reduction::sum;
  std::int32_t root = 0;        // broadcast: the source's position in each group
  bool any_order = false;       // gives up the fixed order of additions for speed
  Groups groups = {};           // the groups it happens in; none are listed where all replicas are one group
  std::uint32_t ordinal = 0;    // number of the collective in the step, in program order; replicas are matched by it
  std::int64_t stands_for = 0;  // elements behind each element of the value; replicas must have equally many, because their values count alike

  template <class V>
  void describe(V& v) const {
    v("kind", kind);
    v("reduction", reduction);
    v("root", root);
    v("any_order", any_order);
    v("groups", groups);
    v("ordinal", ordinal);
    v("stands_for", groups.everybody() ? stands_for : 0);  // otherwise equal within each group
  }
};

// An operation on the inputs.
struct Compute {
  AnyOperation operation;
};

// Information for passes about a node, besides its computation.
struct NodeMarks {
  std::uint32_t order = 0;   // the node belongs to a derivative of this order
  std::uint32_t region = 0;  // the rp::recompute that made the node, from 1; 0: none
  bool again = false;        // computes a value a second time, for a derivative, because it was not kept

  friend bool operator==(const NodeMarks&, const NodeMarks&) = default;
};

// A node with its inputs, output types and source line.
struct Node {
  std::variant<Input, Constant, Read, Assign, Placeholder, Compute> what;
  std::vector<Value> inputs;
  std::vector<TensorType> outputs;
  Location where;
  std::string label;         // given by the user or the layer; may be empty
  std::int32_t device = -1;  // logical device of the replica; -1: the graph decides when the node is added
  NodeMarks marks = {};
  std::vector<Location> output_lines = {};  // where a pass merged several nodes: the line of each output; else empty

  const Location& line_of(std::uint32_t output) const { return output < output_lines.size() ? output_lines[output] : where; }

  template <class T>
  const T* get() const { return std::get_if<T>(&what); }

  // Whether every device can make the value by itself: an input, a constant, or a value computed without inputs.
  bool leaf() const {
    if (const auto* compute = get<Compute>()) return inputs.empty() && !compute->operation.varies();
    return get<Input>() || get<Constant>();
  }

  // "all_reduce", "input", "matmul"
  std::string_view kind() const {
    if (const auto* compute = get<Compute>()) return compute->operation.name();
    if (const auto* placeholder = get<Placeholder>()) return name_of(placeholder->kind);
    constexpr std::string_view names[] = {"input", "constant", "read", "assign", "placeholder", "compute"};
    return names[what.index()];
  }
  // The kind for errors: what the program asked for, such as the layer that made the node.
  std::string title() const {
    const auto* compute = get<Compute>();
    return compute ? compute->operation.title() : std::string{kind()};
  }
};

}  // namespace replicator::detail
