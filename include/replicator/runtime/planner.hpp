// SPDX-License-Identifier: Apache-2.0
// Plans a device's program: order, lifetimes, memory; collective_placer.hpp and handoff_placer.hpp place what is
// communicated. A device runs segment k of its replicas in ascending order, then segment k + 1, of each what is placed on
// it; what is uniform runs once, with the first of them; what only updates variables runs last, when no collective can fail
// any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <replicator/collectives/all_reduces.hpp>
#include <replicator/collectives/communicator.hpp>
#include <replicator/collectives/resolve.hpp>
#include <replicator/runtime/collective_placer.hpp>
#include <replicator/runtime/handoff_placer.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/runtime/memory_count.hpp>
#include <replicator/runtime/program_builder.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator {

// What a device's plan is made from. Everything outlives the program.
struct PlanRequest {
  const Resolution& resolution;
  const std::vector<LoweredGraph>& lowered;  // by class
  VariableStore& variables;
  collectives::Communicator& communicator;  // between these devices of all replicas
  Handoffs* handoffs = nullptr;  // between the devices of these replicas; null where they have one
  int device = 0;         // which of the devices of its replicas this is,
  int devices = 1;        // and how many they have
  int copy = 0;           // of mirrored variables: counted on this host
  int first_replica = 0;  // of this host: replica-local variables are counted from here
  std::uint32_t first_collective = 0;  // ids of earlier programs on the same communicator lie below
  bool several_hosts = false;          // then small results travel to all of them
  DeviceKind kind = DeviceKind::cpu;   // of the device, and its index among those of the kind
  int index = 0;
  collectives::AllReducePreference all_reduce = {};  // how all_reduces are done
  MemoryLimit memory_limit = {};
};

namespace detail {

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_{request}, resolution_{request.resolution}, blocks_{request.communicator.blocks()},
        begin_{blocks_.begin(request.communicator.rank())}, local_{blocks_.count(request.communicator.rank())},
        builder_{support_of(request.kind), request.index},
        collectives_{request.resolution, request.device, request.communicator, request.first_collective, request.all_reduce, builder_},
        handoffs_{request.handoffs, request.device, request.devices, builder_} {
    program_.communicator = &request.communicator;
    for (int r = 0; r < local_; ++r) program_.replica_ids.push_back(begin_ + r);
  }

  Program run() && {
    collectives_.prepare();
    prepare_classes();
    for (std::uint32_t segment = 0; segment <= last_segment_; ++segment) emit_segment(segment);
    give_collected(last_segment_ + 1);
    if (request_.device == 0) emit_results();
    take_for_updates();
    handoffs_.meet();
    if (blocks_.ranks() > 1) emit_exchange();
    collectives_.wait_for_all();
    emit_updates();
    builder_.arrange();
    count_memory();
    return std::move(builder_).finish();
  }

 private:
  static constexpr std::uint32_t none = ProgramBuilder::none;
  using Memory = ProgramBuilder::Memory;

  struct ClassState {
    std::vector<bool> here;                   // by lowered node: this device runs it
    std::vector<bool> update_only;            // by lowered node
    std::vector<std::uint32_t> uses;          // of each value
    std::vector<std::uint32_t> uniform;       // value -> buffer
    std::vector<std::uint32_t> collected;     // value -> collective of the program that gives it, or none
  };
  struct Assignment {
    std::byte* to;
    std::uint32_t buffer;
    std::size_t bytes;
  };

  void count_memory() {
    MemoryCount count{resolution_, request_.lowered};
    for (int r = 0; r < local_; ++r) count.add_replica(static_cast<std::uint32_t>(class_of(r)), begin_ + r, request_.device);
    program_.memory = std::move(count).count(builder_);
    require_room(program_.memory, std::string{name_of(request_.kind)} + ":" + std::to_string(request_.index), request_.memory_limit);
  }

  int class_of(int r) const { return static_cast<int>(resolution_.class_of[static_cast<std::size_t>(begin_ + r - request_.first_replica)]); }
  const GraphClass& source(int c) const { return resolution_.classes[static_cast<std::size_t>(c)]; }
  const LoweredGraph& lowered(int c) const { return request_.lowered[static_cast<std::size_t>(c)]; }

  void prepare_classes() {
    classes_.resize(request_.lowered.size());
    values_.resize(static_cast<std::size_t>(local_));
    for (int r = 0; r < local_; ++r) {
      const int c = class_of(r);
      values_[static_cast<std::size_t>(r)].assign(lowered(c).values.size(), none);
      auto& state = classes_[static_cast<std::size_t>(c)];
      if (!state.uniform.empty() || lowered(c).values.empty()) continue;
      used_classes_.push_back(c);
      state.uniform.assign(lowered(c).values.size(), none);
      state.collected.assign(lowered(c).values.size(), none);
      state.uses.assign(lowered(c).values.size(), 0);
      for (const auto& node : lowered(c).nodes) {
        last_segment_ = std::max(last_segment_, node.segment);
        for (const auto input : node.inputs) ++state.uses[input];
      }
      for (const auto result : lowered(c).results) ++state.uses[result];
      find_updates(c, state);
      find_own(c, state);
    }
  }

  const Node& graph_node(int c, const LoweredNode& node) const { return source(c).graph.node(node.node); }
  bool is_placeholder(int c, const LoweredNode& node) const { return !node.executable && graph_node(c, node).get<Placeholder>(); }

  bool has_effect(int c, const LoweredNode& node) const {
    const auto* compute = graph_node(c, node).get<Compute>();
    return node.executable && !node.relayout && compute && compute->operation.effect();
  }

  // What is placed here, and the leaves that it uses.
  void find_own(int c, ClassState& state) const {
    const auto& nodes = lowered(c).nodes;
    std::vector<bool> used(lowered(c).values.size());
    for (const auto result : lowered(c).results) used[result] = request_.device == 0;
    state.here.assign(nodes.size(), false);
    for (std::size_t i = nodes.size(); i-- > 0;) {
      const auto& node = nodes[i];
      state.here[i] = node.device == request_.device ||
                      (node.device == everywhere && std::any_of(node.outputs.begin(), node.outputs.end(), [&](auto o) { return used[o]; }));
      for (const auto input : node.inputs) used[input] = used[input] || state.here[i];
    }
  }

  // A uniform node that neither a replica, a collective, a result nor another device needs only updates mirrored variables.
  void find_updates(int c, ClassState& state) const {
    const auto& nodes = lowered(c).nodes;
    std::vector<bool> needed(lowered(c).values.size());
    for (const auto result : lowered(c).results) needed[result] = true;
    state.update_only.assign(nodes.size(), false);
    for (std::size_t i = nodes.size(); i-- > 0;) {
      const auto& node = nodes[i];
      if (!node.executable && node.uniform && graph_node(c, node).get<Assign>()) continue;
      const bool anchored = !node.uniform || is_placeholder(c, node) || has_effect(c, node) ||
                            std::any_of(node.outputs.begin(), node.outputs.end(), [&](auto o) { return needed[o] || lowered(c).values[o].crosses; });
      if (!anchored && node.executable) {
        state.update_only[i] = true;
        continue;
      }
      for (const auto input : node.inputs) needed[input] = true;
    }
  }

  void emit_segment(std::uint32_t segment) {
    give_collected(segment);
    std::set<int> begun;  // classes of which a replica has run
    for (int r = 0; r < local_; ++r) {
      const int c = class_of(r);
      const bool first = begun.insert(c).second;
      const auto& nodes = lowered(c).nodes;
      const auto& state = classes_[static_cast<std::size_t>(c)];
      for (std::uint32_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i].segment != segment || !state.here[i]) continue;
        if (is_placeholder(c, nodes[i])) emit_placeholder(c, nodes[i], r);
        else if (!nodes[i].uniform) emit(c, nodes[i], r);
        else if (first && !state.update_only[i]) emit(c, nodes[i], -1);
      }
    }
  }

  Handoffs::Key key(int c, std::uint32_t value, int r) const {
    return {static_cast<std::uint32_t>(c), value, lowered(c).values[value].uniform ? -1 : r};
  }
  // What the collectives of the segment before gave, to the other devices.
  void give_collected(std::uint32_t segment) {
    for (int r = 0; r < local_; ++r) {
      const int c = class_of(r);
      for (const auto& node : lowered(c).nodes) {
        if (node.segment + 1 != segment || !is_placeholder(c, node) || node.device != request_.device) continue;
        const auto value = node.outputs[0];
        if (!lowered(c).values[value].crosses || !given_.insert(key(c, value, r)).second) continue;
        wait_for_value(c, value);
        handoffs_.give(key(c, value, r), slot(c, value, r), lowered(c).values[value].bytes);
      }
    }
  }
  // The buffer of a value that a node of this device reads; taken, the first time, where another device makes it.
  std::uint32_t operand(int c, std::uint32_t value, int r) {
    wait_for_value(c, value);
    const auto known = slot(c, value, r);
    if (known != none) return known;
    const auto taken = take(c, value, r);
    slot(c, value, r) = taken;
    return taken;
  }
  // A variable may be written as soon as all devices have met: whoever needs it from elsewhere takes a copy.
  std::uint32_t take(int c, std::uint32_t value, int r) {
    const auto& lowered_value = lowered(c).values[value];
    if (!lowered_value.variable) return handoffs_.take(key(c, value, r), lowered_value.bytes);
    const auto& read = *source(c).graph.node(lowered_value.node).get<Read>();
    const auto copy = builder_.arena_buffer(lowered_value.bytes);
    builder_.copy(builder_.fixed_buffer(variable_data(c, read.variable, r), lowered_value.bytes), copy, lowered_value.bytes);
    return copy;
  }
  // What updates need from other devices, before they meet.
  void take_for_updates() {
    for (const int c : used_classes_) {
      const auto& state = classes_[static_cast<std::size_t>(c)];
      for (std::uint32_t i = 0; i < lowered(c).nodes.size(); ++i)
        if (state.here[i] && state.update_only[i])
          for (const auto input : lowered(c).nodes[i].inputs) take_early(c, input);
    }
    for (const auto& assignment : pending_) take_early(assignment.class_index, assignment.value);
  }
  void take_early(int c, std::uint32_t value) {
    const auto device = lowered(c).values[value].device;
    if (device != everywhere && device != request_.device) operand(c, value, -1);
  }

  // The buffer of a value; `r` is the replica for varying ones.
  std::uint32_t& slot(int c, std::uint32_t value, int r) {
    return lowered(c).values[value].uniform ? classes_[static_cast<std::size_t>(c)].uniform[value] : values_[static_cast<std::size_t>(r)][value];
  }
  void set_origin(int c, std::uint32_t node, int r) { builder_.set_origin(static_cast<std::uint32_t>(c), node, r < 0 ? -1 : begin_ + r); }
  void emit(int c, const LoweredNode& node, int r) {
    set_origin(c, node.node, r);
    if (node.executable) return emit_run(c, node, r);
    const auto& what = graph_node(c, node);
    if (const auto* assign = what.get<Assign>()) return note_assignment(c, node, assign->variable, r);
    auto& buffer = slot(c, node.outputs[0], r);
    const auto bytes = lowered(c).values[node.outputs[0]].bytes;
    if (const auto* input = what.get<Input>()) buffer = input_buffer(*input, r, bytes);
    else if (const auto* constant = what.get<Constant>()) buffer = builder_.fixed_buffer(const_cast<std::byte*>(constant->array->data()), bytes);
    else if (const auto* read = what.get<Read>()) {
      buffer = builder_.fixed_buffer(variable_data(c, read->variable, r), bytes);
      builder_.memory(buffer).variable = true;
    }
  }
  std::uint32_t input_buffer(const Input& input, int r, std::size_t bytes) {
    if (input.source == Input::Source::step) return builder_.fixed_buffer(reinterpret_cast<std::byte*>(program_.step.get()), bytes);
    if (input.source == Input::Source::replica_id)
      return builder_.fixed_buffer(reinterpret_cast<std::byte*>(&program_.replica_ids[static_cast<std::size_t>(r)]), bytes);
    Memory memory;
    memory.bytes = bytes;
    memory.replica = r;
    memory.element = input.index;
    return builder_.new_buffer(memory);
  }
  std::byte* variable_data(int c, std::uint32_t variable, int r) {
    const auto& declaration = source(c).graph.variables()[variable];
    const bool mirrored = declaration.kind == VariableKind::mirrored;
    return request_.variables.data(declaration.name, mirrored ? request_.copy : begin_ + r - request_.first_replica);
  }
  // Of two assignments to one place the later counts.
  void note_assignment(int c, const LoweredNode& node, std::uint32_t variable, int r) {
    const auto bytes = lowered(c).values[node.inputs[0]].bytes;
    if (source(c).graph.variables()[variable].kind == VariableKind::mirrored) pending_.push_back({c, node.inputs[0], variable});
    else assignments_.push_back({variable_data(c, variable, r), operand(c, node.inputs[0], r), bytes});
  }

  void wait_for_value(int c, std::uint32_t value) {
    const auto collective = classes_[static_cast<std::size_t>(c)].collected[value];
    if (collective != none) collectives_.wait_for(collective);
  }

  void emit_run(int c, const LoweredNode& node, int r) {
    if (node.uniform && reuse_uniform(c, node)) return give_outputs(c, node, r);
    Instruction run;
    run.executable = node.executable;
    run.inputs = static_cast<std::uint32_t>(node.inputs.size());
    run.relayout = node.relayout;
    run.origin = &graph_node(c, node);
    std::vector<std::uint32_t> operands;
    for (const auto input : node.inputs) {
      const auto buffer = operand(c, input, r);
      note_kept(c, input, node, buffer);
      operands.push_back(builder_.on_device(buffer));
    }
    for (const auto output : node.outputs) {
      slot(c, output, r) = value_buffer(c, output, r);
      operands.push_back(slot(c, output, r));
    }
    builder_.append(run, operands);
    program_.scratch_bytes = std::max(program_.scratch_bytes, node.executable->scratch_bytes);
    give_outputs(c, node, r);
  }
  void give_outputs(int c, const LoweredNode& node, int r) {
    for (const auto output : node.outputs)
      if (lowered(c).values[output].crosses) handoffs_.give(key(c, output, r), slot(c, output, r), lowered(c).values[output].bytes);
  }
  std::uint32_t value_buffer(int c, std::uint32_t value, int r) {
    Memory memory;
    memory.bytes = lowered(c).values[value].bytes;
    memory.graph = static_cast<std::uint32_t>(c);
    memory.value = value;
    memory.owner = r < 0 ? -1 : begin_ + r;
    return builder_.new_buffer(memory);
  }
  // Read by a derivative of a higher order than its maker's, a replica's value is an activation.
  void note_kept(int c, std::uint32_t value, const LoweredNode& reader, std::uint32_t buffer) {
    const auto& known = lowered(c).values[value];
    const bool later = source(c).graph.node(known.node).marks.order < graph_node(c, reader).marks.order;
    if (later && !known.uniform) builder_.memory(buffer).kept = true;
  }
  // Another class has computed the same already.
  bool reuse_uniform(int c, const LoweredNode& node) {
    bool all = true;
    for (const auto output : node.outputs) all = all && shared_.contains(lowered(c).values[output].digest);
    for (const auto output : node.outputs) {
      if (!all) break;
      const auto& [owner, value] = shared_[lowered(c).values[output].digest];
      slot(c, output, -1) = slot(owner, value, -1);
    }
    if (!all)
      for (const auto output : node.outputs) shared_.try_emplace(lowered(c).values[output].digest, c, output);
    return all;
  }

  void emit_placeholder(int c, const LoweredNode& node, int r) {
    const auto& placeholder = *graph_node(c, node).get<Placeholder>();
    const auto input = node.inputs[0], output = node.outputs[0];
    set_origin(c, node.node, r);
    const auto buffer = operand(c, input, r);
    collectives_.contribute({placeholder, r, buffer, lowered(c).values[input].bytes, movable(c, input, r)});
    const auto bytes = lowered(c).values[output].bytes;
    classes_[static_cast<std::size_t>(c)].collected[output] = collectives_.collective_of(placeholder);
    auto* data = collectives_.output(placeholder, r, bytes);
    program_.collected.push_back({placeholder.ordinal, r, data});
    slot(c, output, r) = builder_.fixed_buffer(data, bytes);
  }
  // Can this replica's value live where the collective wants it? Only if nobody else looks at it.
  bool movable(int c, std::uint32_t value, int r) {
    return !lowered(c).values[value].uniform && classes_[static_cast<std::size_t>(c)].uses[value] == 1 && builder_.memory(slot(c, value, r)).in_arena();
  }

  void emit_results() {
    if (used_classes_.empty()) return;
    const int c0 = used_classes_[0];
    const auto count = lowered(c0).results.size();
    program_.results.resize(count);
    for (std::size_t k = 0; k < count; ++k) {
      const bool uniform = source(c0).uniformity.uniform_results[k];
      program_.uniform_result.push_back(uniform);
      for (int r = 0; r < (uniform ? 1 : local_); ++r) emit_result(k, class_of(r), r);
    }
  }
  void emit_result(std::size_t k, int c, int r) {
    const auto value = lowered(c).results[k];
    set_origin(c, source(c).graph.results()[k].node, r);
    const auto buffer = operand(c, value, r);
    auto& array = program_.results[k].emplace_back(source(c).graph.type(source(c).graph.results()[k]));
    builder_.copy(buffer, builder_.fixed_buffer(array.data(), array.size_bytes()), array.size_bytes());
  }

  // Each replica's small results, and whether it has input for the next step, go to all hosts. On one host it only makes sure
  // that every device has come this far before one of them changes a variable: a step that fails changes nothing.
  void emit_exchange() {
    builder_.set_origin(none, none, -1);
    auto& exchange = program_.exchange;
    exchange.block = sizeof(std::uint64_t);
    exchange.offsets.assign(program_.results.size(), 0);
    for (std::size_t k = 0; k < program_.results.size(); ++k) {
      const auto bytes = program_.results[k][0].size_bytes();
      if (!request_.several_hosts || program_.uniform_result[k] || bytes > ResultExchange::largest_result) continue;
      exchange.offsets[k] = exchange.block;
      exchange.block += (bytes + 7) / 8 * 8;
    }
    exchange.has_next.assign(static_cast<std::size_t>(local_), 1);
    exchange.collective = collectives_.add({CollectiveKind::all_gather, DType::uint8, Reduction::sum, static_cast<std::int64_t>(exchange.block), 0, false,
                                            "the exchange of the step's results", 0});
    auto& gather = *program_.collectives.back().collective;
    for (int r = 0; r < local_; ++r) {
      auto* flag = reinterpret_cast<std::byte*>(&exchange.has_next[static_cast<std::size_t>(r)]);
      builder_.copy(builder_.fixed_buffer(flag, sizeof(std::uint64_t)), builder_.fixed_buffer(gather.input(r), sizeof(std::uint64_t)), sizeof(std::uint64_t));
      for (std::size_t k = 0; k < program_.results.size(); ++k) {
        if (!exchange.offsets[k]) continue;
        auto& array = program_.results[k][static_cast<std::size_t>(r)];
        builder_.copy(builder_.fixed_buffer(array.data(), array.size_bytes()), builder_.fixed_buffer(gather.input(r) + exchange.offsets[k], array.size_bytes()), array.size_bytes());
      }
    }
    builder_.append_collective(Instruction::Kind::start, exchange.collective);
    collectives_.wait_for(exchange.collective);
  }

  // Values that are themselves a variable's memory are set aside first: an update may overwrite it.
  void emit_updates() {
    updates_begin_ = static_cast<std::uint32_t>(program_.code.size());
    note_mirrored_assignments(true);
    for (auto& assignment : assignments_) set_aside(assignment.buffer, assignment.bytes);
    for (const int c : used_classes_)
      for (std::uint32_t i = 0; i < lowered(c).nodes.size(); ++i)
        if (classes_[static_cast<std::size_t>(c)].update_only[i] && classes_[static_cast<std::size_t>(c)].here[i]) emit(c, lowered(c).nodes[i], -1);
    note_mirrored_assignments(false);
    builder_.set_origin(none, none, -1);
    std::vector<Assignment> copies;
    for (const auto& assignment : assignments_)
      if (!builder_.write_in_place(assignment.buffer, assignment.to, updates_begin_)) copies.push_back(assignment);
    for (const auto& assignment : copies) builder_.copy(assignment.buffer, builder_.fixed_buffer(assignment.to, assignment.bytes), assignment.bytes);
  }
  // Those of values that are there already, then those of the updates' own.
  void note_mirrored_assignments(bool only_those_there) {
    for (const auto& [c, value, variable] : pending_) {
      if (c != used_classes_[0] || (only_those_there && slot(c, value, -1) == none) || !noted_.insert(variable).second) continue;
      assignments_.push_back({variable_data(c, variable, -1), operand(c, value, -1), lowered(c).values[value].bytes});
    }
  }
  void set_aside(std::uint32_t& buffer, std::size_t bytes) {
    if (!builder_.memory(buffer).variable) return;
    const auto aside = builder_.arena_buffer(bytes);
    builder_.copy(buffer, aside, bytes);
    buffer = aside;
  }
  struct PendingAssignment {
    int class_index;
    std::uint32_t value;
    std::uint32_t variable;
  };

  const PlanRequest& request_;
  const Resolution& resolution_;
  const collectives::ReplicaBlocks blocks_;
  int begin_;  // this device's first replica
  int local_;  // how many it has
  ProgramBuilder builder_;
  Program& program_ = builder_.program();
  CollectivePlacer collectives_;
  HandoffPlacer handoffs_;
  std::set<Handoffs::Key> given_;  // of what collectives gave
  std::vector<ClassState> classes_;
  std::vector<int> used_classes_;
  std::vector<std::vector<std::uint32_t>> values_;  // [replica][value] -> buffer, of varying values
  std::map<Digest, std::pair<int, std::uint32_t>> shared_;
  std::vector<PendingAssignment> pending_;
  std::set<std::uint32_t> noted_;  // variables of pending_ that are in assignments_
  std::uint32_t updates_begin_ = 0;  // the first instruction that may write a variable
  std::vector<Assignment> assignments_;
  std::uint32_t last_segment_ = 0;
};

}  // namespace detail

// Collective: every device of the job calls it at the same time, since collectives allocate together.
inline Program plan(const PlanRequest& request) { return detail::Planner{request}.run(); }

}  // namespace replicator
