// SPDX-License-Identifier: Apache-2.0
// LoweredGraph: a graph with a kernel for every node, a layout for every value, and copies between layouts. It does not
// depend on the placement.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <replicator/resolve/placeholders.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/executable_cache.hpp>

namespace replicator::detail {

// A tensor in memory: an output of a node, or its copy in another layout.
struct LoweredValue {
  std::size_t bytes = 0;
  bool uniform = false;
  Digest digest;             // of the content and layout: equal uniform values of different graphs are shared
  std::uint32_t node = 0;    // the node of the graph that makes it
  std::int32_t device = 0;   // the device of the replica that makes it; `everywhere`: each device that uses it
  bool crosses = false;      // another device of the replica uses it
  bool variable = false;     // it is a variable's own memory
  std::uint32_t output = 0;  // the output of that node
  bool copied = false;       // it is a copy in another layout

  Value of() const { return {node, output}; }
};

// The device of leaves: every device can make them, so they are not handed over.
inline constexpr std::int32_t everywhere = -1;

struct LoweredNode {
  std::uint32_t node = 0;                        // index in the graph; for a copy, the node that uses it
  std::shared_ptr<const Executable> executable;  // null: an Input, Constant, Read, Assign or Placeholder
  std::vector<std::uint32_t> inputs;             // values
  std::vector<std::uint32_t> outputs;
  bool uniform = false;
  std::uint32_t segment = 0;
  std::int32_t device = 0;  // as LoweredValue::device
  bool relayout = false;    // a layout copy for `node`
};

struct LoweredGraph {
  std::vector<LoweredNode> nodes;
  std::vector<LoweredValue> values;
  std::vector<std::uint32_t> results;  // values, in plain layout
};

class Lowering {
 public:
  Lowering(const GraphClass& source, DeviceKind kind, ExecutableCache& cache)
      : source_{source}, graph_{source.graph}, kind_{kind}, cache_{cache} {}

  LoweredGraph run() && {
    require_resolved();
    native_.resize(graph_.nodes().size());
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i) lower(i);
    for (const auto result : graph_.results()) lowered_.results.push_back(in_layout(result, Layout{}, result.node));
    find_crossings();
    return std::move(lowered_);
  }

 private:
  struct Native {
    std::uint32_t value;
    Layout layout;
  };

  void require_resolved() const {
    const auto& known = source_.collective;
    for (std::uint32_t i = 0; i < graph_.nodes().size(); ++i)
      if (const auto* placeholder = graph_.node(i).get<Placeholder>();
          placeholder && (placeholder->ordinal >= known.size() || known[placeholder->ordinal] != i))
        throw BuildError{describe_placeholder(graph_.node(i)) +
                         " is still a placeholder, which can be looked at and differentiated, but not run: resolve the graphs of all replicas first"};
  }

  void lower(std::uint32_t index) {
    const auto& node = graph_.node(index);
    const auto* compute = node.get<Compute>();
    if (compute && compute->operation.alias()) {
      native_[index] = {{in_layout(node.inputs[0], Layout{}, index), Layout{}}};
      return;
    }
    LoweredNode lowered{index, nullptr, {}, {}, source_.uniformity.uniform[index], source_.segment[index], device_of(index), false};
    std::vector<Layout> given(node.outputs.size());
    if (compute) {
      lowered.executable = choose(node, compute->operation);
      given = lowered.executable->output_layouts;
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      lowered.inputs.push_back(in_layout(node.inputs[i], compute ? lowered.executable->input_layouts[i] : Layout{}, index));
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o) {
      lowered.outputs.push_back(add_value({index, o}, given[o], lowered.uniform, lowered.device));
      lowered_.values.back().variable = node.get<Read>() != nullptr;
      native_[index].push_back({lowered.outputs.back(), given[o]});
    }
    lowered_.nodes.push_back(std::move(lowered));
  }

  std::int32_t device_of(std::uint32_t index) const { return graph_.node(index).leaf() ? everywhere : graph_.node(index).device; }
  // The results of a step must be on device 0.
  void find_crossings() {
    const auto use = [this](std::uint32_t value, std::int32_t device) {
      auto& used = lowered_.values[value];
      used.crosses = used.crosses || (used.device != everywhere && used.device != device);
    };
    for (const auto& node : lowered_.nodes)
      for (const auto input : node.inputs) use(input, node.device);
    for (const auto result : lowered_.results) use(result, 0);
  }

  std::shared_ptr<const Executable> choose(const Node& node, const AnyOperation& operation) {
    std::vector<TensorType> inputs;
    std::vector<Layout> offered;
    for (const auto input : node.inputs) {
      inputs.push_back(graph_.type(input));
      offered.push_back(native_[input.node][input.output].layout);
    }
    return cache_.get(kind_, operation, inputs, node.outputs, offered, node.where.text());
  }

  std::uint32_t add_value(Value value, const Layout& layout, bool uniform, std::int32_t device) {
    const auto& type = graph_.type(value);
    Hasher hasher;
    hasher.digest(source_.uniformity.digest(value));
    AttributeHasher visitor{hasher};
    LayoutCopy{layout}.describe(visitor);
    const auto bytes = static_cast<std::size_t>(storage_elements(layout, type.shape)) * size_of(type.dtype);
    lowered_.values.push_back({bytes, uniform, hasher.result(), value.node, device});
    lowered_.values.back().output = value.output;
    return static_cast<std::uint32_t>(lowered_.values.size() - 1);
  }

  // The value in this layout: the value itself, or a copy. A copy is made once, right before its first user, on the
  // device of the value.
  std::uint32_t in_layout(Value value, const Layout& layout, std::uint32_t user) {
    const auto& native = native_[value.node][value.output];
    if (native.layout == layout) return native.value;
    auto& made = copies_[value];
    for (const auto& [known, copy] : made)
      if (known == layout) return copy;
    const auto& type = graph_.type(value);
    auto executable = cache_.get(kind_, LayoutCopy{layout}, {&type, 1}, {&type, 1}, {&native.layout, 1}, graph_.node(user).where.text());
    const bool uniform = source_.uniformity.uniform[value.node];
    const auto segment = source_.segment[value.node] + (graph_.node(value).get<Placeholder>() ? 1 : 0);
    const auto device = lowered_.values[native.value].device;
    const auto copy = add_value(value, layout, uniform, device);
    lowered_.values[copy].copied = true;
    lowered_.nodes.push_back({user, std::move(executable), {native_[value.node][value.output].value}, {copy}, uniform, segment, device, true});
    made.emplace_back(layout, copy);
    return copy;
  }

  const GraphClass& source_;
  const Graph& graph_;
  DeviceKind kind_;
  ExecutableCache& cache_;
  LoweredGraph lowered_;
  std::vector<std::vector<Native>> native_;
  std::map<Value, std::vector<std::pair<Layout, std::uint32_t>>> copies_;
};

// Throws BuildError if an operation has no kernel for this kind of device, and for placeholders that are not resolved.
template <class = void>
LoweredGraph lower(const GraphClass& source, DeviceKind kind, ExecutableCache& cache) {
  return detail::Lowering{source, kind, cache}.run();
}

}  // namespace replicator::detail
