// SPDX-License-Identifier: Apache-2.0
// Planner: plans a device's program, that is, the order of its instructions. Each device runs the nodes that are placed
// on it: segment k of its replicas in ascending order, then segment k + 1. Uniform nodes run once, with the first
// replica of their graph. Nodes that only update variables run last, when no collective can fail any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <replicator/runtime/plan/assignment_placer.hpp>
#include <replicator/runtime/plan/collective_placer.hpp>
#include <replicator/runtime/plan/device_share.hpp>
#include <replicator/runtime/plan/handoff_placer.hpp>
#include <replicator/runtime/plan/kernel_placer.hpp>
#include <replicator/runtime/plan/memory_count.hpp>
#include <replicator/runtime/plan/plan_request.hpp>
#include <replicator/runtime/plan/program_builder.hpp>
#include <replicator/runtime/plan/result_placer.hpp>
#include <replicator/runtime/plan/update_launches.hpp>
#include <replicator/runtime/plan/value_buffers.hpp>
#include <replicator/runtime/plan/variable_placer.hpp>

namespace replicator::detail {

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_{request}, builder_{support_of(request.kind), request.index}, collectives_{request, builder_}, handoffs_{request.handoffs, request.device, request.devices, builder_}, variables_{request, builder_}, values_{request, builder_, collectives_, handoffs_, variables_}, kernels_{request, builder_, values_}, results_{request, builder_, collectives_, values_}, assignments_{request, builder_, variables_, values_}, memory_{request.resolution, request.lowered} {
    program_.communicator = &request.communicator;
    program_.device = std::string{name_of(request.kind)} + ":" + std::to_string(request.index);
    program_.first_replica = request.replicas_before;
    for (int r = 0; r < request.replicas(); ++r) program_.replica_ids.push_back(request.begin() + r);
    builder_.enter();  // makes this device current for the calls below
    program_.words = StepWords{builder_.support().staging, program_.replica_ids};
  }

  Program run() && {
    find_shares();
    count_variables();
    const bool on_host = builder_.support().runs_on_host();
    if (!on_host) require_room();  // variables and collectives keep the memory that they get
    collectives_.prepare();
    if (!on_host) {
      variables_.make_room();
      stage_inputs();
    }
    for (std::uint32_t segment = 0; segment <= last_segment_; ++segment) emit_segment(segment);
    give_collected(last_segment_ + 1);
    if (request_.device == 0) results_.copy_results();
    take_for_updates();
    // Before the devices meet, each waits for its queue. That includes its part of collectives in the queue, which may
    // fail. So all collectives must have been queued and awaited by then.
    if (request_.device_communicator) collectives_.wait_for_all();
    builder_.look_at_refusals();
    handoffs_.meet();
    if (request_.communicator.size() > 1) results_.exchange();
    collectives_.wait_for_all();
    emit_updates();
    builder_.arrange();
    memory_.count(builder_, request_.device);
    require_room();
    program_.memory = memory_.plan();
    return std::move(builder_).finish();
  }

 private:
  void find_shares() {
    shares_.resize(request_.lowered.size());
    for (int r = 0; r < request_.replicas(); ++r) {
      const int c = request_.class_of(r);
      auto& share = shares_[static_cast<std::size_t>(c)];
      if (share) continue;
      share.emplace(request_.source(c).graph, request_.lowered_graph(c), request_.device);
      classes_.push_back(c);
      for (const auto& node : request_.lowered_graph(c).nodes) last_segment_ = std::max(last_segment_, node.segment);
    }
  }
  // Copies all inputs at the beginning, so that their places are soon free for those of the next step.
  void stage_inputs() {
    for (int r = 0; r < request_.replicas(); ++r) {
      const int c = request_.class_of(r);
      const auto& nodes = request_.lowered_graph(c).nodes;
      for (std::uint32_t i = 0; i < nodes.size(); ++i) {
        const auto* input = request_.node(c, nodes[i]).get<Input>();
        if (!input || input->source != Input::Source::element || !share(c).runs(i)) continue;
        kernels_.set_origin(c, nodes[i], r);
        const auto value = nodes[i].outputs[0];
        const auto staged = builder_.staged_input(static_cast<std::uint32_t>(r), input->index, request_.value(c, value).bytes);
        name(builder_.memory(staged), c, value, r);
        staged_inputs_[{r, input->index}] = staged;
      }
    }
  }
  void name(ProgramBuilder::Memory& memory, int c, std::uint32_t value, int r) const {
    memory.graph = static_cast<std::uint32_t>(c);
    memory.value = value;
    memory.owner = request_.begin() + r;
  }
  const DeviceShare& share(int c) const { return *shares_[static_cast<std::size_t>(c)]; }
  bool is_placeholder(int c, const LoweredNode& node) const { return detail::is_placeholder(request_.source(c).graph, node); }

  void emit_segment(std::uint32_t segment) {
    give_collected(segment);
    std::set<int> begun;  // classes with a replica that has run
    for (int r = 0; r < request_.replicas(); ++r) {
      const int c = request_.class_of(r);
      const bool first = begun.insert(c).second;
      const auto& nodes = request_.lowered_graph(c).nodes;
      for (std::uint32_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i].segment != segment || !share(c).runs(i)) continue;
        if (is_placeholder(c, nodes[i])) emit_placeholder(c, nodes[i], r);
        else if (!nodes[i].uniform) emit(c, nodes[i], r);
        else if (first && !share(c).only_updates(i)) emit(c, nodes[i], -1);
      }
    }
  }
  // Gives the results of the previous segment's collectives to the other devices.
  void give_collected(std::uint32_t segment) {
    for (int r = 0; r < request_.replicas(); ++r) {
      const int c = request_.class_of(r);
      for (const auto& node : request_.lowered_graph(c).nodes)
        if (node.segment + 1 == segment && is_placeholder(c, node) && node.device == request_.device) values_.give_collected(c, node.outputs[0], r);
    }
  }

  // Calls f(class, node) for each node that only updates variables.
  template <class F>
  void for_each_update(F f) const {
    for (const int c : classes_) {
      const auto& nodes = request_.lowered_graph(c).nodes;
      for (std::uint32_t i = 0; i < nodes.size(); ++i)
        if (share(c).runs(i) && share(c).only_updates(i)) f(c, nodes[i]);
    }
  }
  // Takes the values that updates need from other devices, before the devices meet.
  void take_for_updates() {
    const auto take = [this](int c, std::uint32_t value) {
      const auto device = request_.value(c, value).device;
      if (device != everywhere && device != request_.device) values_.operand(c, value, -1);
    };
    for_each_update([&](int c, const LoweredNode& node) {
      for (const auto input : node.inputs) take(c, input);
    });
    assignments_.for_each_mirrored(take);
  }
  void emit_updates() {
    std::vector<Update> updates;
    for_each_update([&](int c, const LoweredNode& node) { updates.push_back({c, &node}); });
    assignments_.begin();
    for (const auto& launch : launches_of(updates)) kernels_.place(launch);
    assignments_.finish();
  }

  // r = -1: once for the device.
  void emit(int c, const LoweredNode& node, int r) {
    kernels_.set_origin(c, node, r);
    if (node.executable) kernels_.place(c, node, r);
    else if (const auto* assign = request_.node(c, node).get<Assign>()) assignments_.note(c, node.inputs[0], assign->variable, r);
    else values_.of(c, node.outputs[0], r) = leaf_buffer(c, node, r);
  }
  std::uint32_t leaf_buffer(int c, const LoweredNode& node, int r) {
    const auto& leaf = request_.node(c, node);
    const auto bytes = request_.value(c, node.outputs[0]).bytes;
    if (const auto* input = leaf.get<Input>()) return input_buffer(*input, r, bytes);
    if (const auto* constant = leaf.get<Constant>()) return builder_.constant_buffer(constant->array->data(), bytes);
    return variables_.buffer(c, leaf.get<Read>()->variable, r);
  }
  std::uint32_t input_buffer(const Input& input, int r, std::size_t bytes) {
    if (input.source == Input::Source::step) return builder_.step_buffer();
    if (input.source == Input::Source::replica_id)
      return builder_.fixed_buffer(program_.words.replica_id(static_cast<std::size_t>(r)), bytes);
    const int replica = std::max(r, 0);  // an arrival is the same for all replicas
    if (!builder_.support().runs_on_host()) return staged_inputs_.at({replica, input.index});
    ProgramBuilder::Memory memory;
    memory.bytes = bytes;
    memory.replica = replica;
    memory.element = input.index;
    return builder_.new_buffer(memory);
  }

  void emit_placeholder(int c, const LoweredNode& node, int r) {
    const auto& placeholder = *request_.node(c, node).get<Placeholder>();
    const auto input = node.inputs[0], output = node.outputs[0];
    kernels_.set_origin(c, node, r);
    const auto buffer = values_.operand(c, input, r);
    collectives_.contribute({placeholder, r, buffer, request_.value(c, input).bytes, movable(c, input, buffer)});
    const auto bytes = request_.value(c, output).bytes;
    auto* data = collectives_.output(placeholder, r, bytes);
    program_.collected.push_back({placeholder.ordinal, r, data});
    values_.set_collected(c, output, collectives_.collective_of(placeholder));
    values_.of(c, output, r) = builder_.fixed_buffer(data, bytes);
  }
  // True if this replica's value may be placed where the collective needs it: nothing else may read it.
  bool movable(int c, std::uint32_t value, std::uint32_t buffer) const {
    return !request_.value(c, value).uniform && share(c).uses(value) == 1 && builder_.memory(buffer).in_arena();
  }

  void count_variables() {
    for (int r = 0; r < request_.replicas(); ++r)
      memory_.add_replica(static_cast<std::uint32_t>(request_.class_of(r)), request_.begin() + r, request_.device);
  }
  void require_room() const {
    replicator::detail::require_room(memory_.plan(), program_.device, request_.memory_limit);
  }

  const PlanRequest& request_;
  ProgramBuilder builder_;
  Program& program_ = builder_.program();
  CollectivePlacer collectives_;
  HandoffPlacer handoffs_;
  VariablePlacer variables_;
  ValueBuffers values_;
  KernelPlacer kernels_;
  ResultPlacer results_;
  AssignmentPlacer assignments_;
  MemoryCount memory_;
  std::vector<int> classes_;                                              // of the device's replicas, in order
  std::vector<std::optional<DeviceShare>> shares_;                        // by class; empty if the device has no replica of it
  std::map<std::pair<int, std::uint32_t>, std::uint32_t> staged_inputs_;  // by replica of the device, and component of the input
  std::uint32_t last_segment_ = 0;
};

template <class>
Program plan(const PlanRequest& request) { return Planner{request}.run(); }

}  // namespace replicator::detail
