// SPDX-License-Identifier: Apache-2.0
// Plans a device's program: order, folds, waits, lifetimes, memory. A device runs segment k of its replicas in ascending
// order, then segment k + 1; what is uniform runs once per segment; what only updates variables runs last, when no
// collective can fail any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/communicator.hpp>
#include <replicator/collectives/cost.hpp>
#include <replicator/collectives/resolve.hpp>
#include <replicator/collectives/tree.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/runtime/program_builder.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator {

// What a device's plan is made from. Everything outlives the program.
struct PlanRequest {
  const Resolution& resolution;
  const std::vector<LoweredGraph>& lowered;  // by class
  VariableStore& variables;
  collectives::Communicator& communicator;
  int device = 0;         // counted on this host: which mirrored copies are its own
  int first_replica = 0;  // of this host: replica-local variables are counted from here
  std::uint32_t first_collective = 0;  // ids of earlier programs on the same communicator lie below
  bool several_hosts = false;          // then small results travel to all of them
  DeviceKind kind = DeviceKind::cpu;   // of the device, and its index among those of the kind
  int index = 0;
};

namespace detail {

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_{request}, resolution_{request.resolution}, blocks_{request.communicator.blocks()},
        begin_{blocks_.begin(request.communicator.rank())}, local_{blocks_.count(request.communicator.rank())},
        fold_{blocks_.replicas(), begin_, begin_ + local_}, builder_{support_of(request.kind), request.index} {
    for (int r = 0; r < local_; ++r) program_.replica_ids.push_back(begin_ + r);
  }

  Program run() && {
    prepare_collectives();
    prepare_classes();
    for (std::uint32_t segment = 0; segment <= last_segment_; ++segment) emit_segment(segment);
    emit_results();
    if (blocks_.ranks() > 1) emit_exchange();
    for (std::uint32_t b = 0; b < resolution_.buckets.size(); ++b) wait_for(b);
    emit_updates();
    return std::move(builder_).finish();
  }

 private:
  static constexpr std::uint32_t none = ProgramBuilder::none;
  using Memory = ProgramBuilder::Memory;

  struct ClassState {
    std::vector<bool> update_only;            // by lowered node
    std::vector<std::uint32_t> uses;          // of each value
    std::vector<std::uint32_t> uniform;       // value -> buffer
    std::vector<std::uint32_t> from_bucket;   // value -> bucket whose output it is, or none
  };
  struct Assignment {
    std::byte* to;
    std::uint32_t buffer;
    std::size_t bytes;
  };

  int class_of(int r) const { return static_cast<int>(resolution_.class_of[static_cast<std::size_t>(begin_ + r - request_.first_replica)]); }
  const GraphClass& source(int c) const { return resolution_.classes[static_cast<std::size_t>(c)]; }
  const LoweredGraph& lowered(int c) const { return request_.lowered[static_cast<std::size_t>(c)]; }

  void prepare_collectives() {
    leaves_.resize(resolution_.buckets.size());
    program_.in_flight.reserve(resolution_.buckets.size());
    waited_.resize(resolution_.buckets.size());
    for (std::uint32_t b = 0; b < resolution_.buckets.size(); ++b) {
      const auto& bucket = resolution_.buckets[b];
      const auto& first = resolution_.collectives[bucket.members[0]];
      const auto kind = first.what.kind;
      collectives::CollectiveSpec spec{kind, first.type.dtype, first.what.reduction, first.type.shape.elements(), first.what.root,
                                       first.what.any_order, first.text, request_.first_collective + b};
      if (kind == CollectiveKind::all_reduce) spec.elements = bucket.elements;
      if (kind == CollectiveKind::reduce_scatter) spec.elements /= blocks_.replicas();
      if (bucket.members.size() > 1) spec.name += " and " + std::to_string(bucket.members.size() - 1) + " more";
      const auto bytes = static_cast<std::int64_t>(size_of(spec.dtype)) * spec.elements;
      auto choice = collectives::choose(kind, bytes, blocks_, first.what.root, first.what.any_order);
      program_.collectives.push_back({request_.communicator.prepare(spec, choice.schedule), spec.name, std::move(choice.reason), bytes,
                                      static_cast<int>(bucket.members.size())});
    }
  }

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
      state.from_bucket.assign(lowered(c).values.size(), none);
      state.uses.assign(lowered(c).values.size(), 0);
      for (const auto& node : lowered(c).nodes) {
        last_segment_ = std::max(last_segment_, node.segment);
        for (const auto input : node.inputs) ++state.uses[input];
      }
      for (const auto result : lowered(c).results) ++state.uses[result];
      find_updates(c, state);
    }
  }

  const Node& graph_node(int c, const LoweredNode& node) const { return source(c).graph.node(node.node); }
  bool is_placeholder(int c, const LoweredNode& node) const { return !node.executable && graph_node(c, node).get<Placeholder>(); }

  // A uniform node that neither a replica, a collective nor a result needs only updates variables.
  void find_updates(int c, ClassState& state) const {
    const auto& nodes = lowered(c).nodes;
    std::vector<bool> needed(lowered(c).values.size());
    for (const auto result : lowered(c).results) needed[result] = true;
    state.update_only.assign(nodes.size(), false);
    for (std::size_t i = nodes.size(); i-- > 0;) {
      const auto& node = nodes[i];
      if (!node.executable && graph_node(c, node).get<Assign>()) continue;
      const bool anchored = !node.uniform || is_placeholder(c, node) ||
                            std::any_of(node.outputs.begin(), node.outputs.end(), [&](auto o) { return needed[o]; });
      if (!anchored && node.executable) {
        state.update_only[i] = true;
        continue;
      }
      for (const auto input : node.inputs) needed[input] = true;
    }
  }

  void emit_segment(std::uint32_t segment) {
    for (const int c : used_classes_) {
      const auto& nodes = lowered(c).nodes;
      for (std::uint32_t i = 0; i < nodes.size(); ++i)
        if (nodes[i].segment == segment && nodes[i].uniform && !is_placeholder(c, nodes[i]) && !classes_[static_cast<std::size_t>(c)].update_only[i])
          emit(c, nodes[i], -1);
    }
    for (int r = 0; r < local_; ++r) {
      const int c = class_of(r);
      for (const auto& node : lowered(c).nodes) {
        if (node.segment != segment) continue;
        if (is_placeholder(c, node)) emit_placeholder(c, node, r);
        else if (!node.uniform) emit(c, node, r);
      }
    }
  }

  // The buffer of a value; `r` is the replica for varying ones.
  std::uint32_t& slot(int c, std::uint32_t value, int r) {
    return lowered(c).values[value].uniform ? classes_[static_cast<std::size_t>(c)].uniform[value] : values_[static_cast<std::size_t>(r)][value];
  }
  void emit(int c, const LoweredNode& node, int r) {
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
    return request_.variables.data(declaration.name, mirrored ? request_.device : begin_ + r - request_.first_replica);
  }
  // Of two assignments to one place the later counts.
  void note_assignment(int c, const LoweredNode& node, std::uint32_t variable, int r) {
    const auto bytes = lowered(c).values[node.inputs[0]].bytes;
    if (source(c).graph.variables()[variable].kind == VariableKind::mirrored) pending_.push_back({c, node.inputs[0], variable});
    else assignments_.push_back({variable_data(c, variable, r), slot(c, node.inputs[0], r), bytes});
  }

  void wait_for_value(int c, std::uint32_t value) {
    const auto bucket = classes_[static_cast<std::size_t>(c)].from_bucket[value];
    if (bucket != none) wait_for(bucket);
  }
  void wait_for(std::uint32_t bucket) {
    if (waited_[bucket]) return;
    waited_[bucket] = true;
    builder_.append_collective(Instruction::Kind::wait, bucket);
  }

  void emit_run(int c, const LoweredNode& node, int r) {
    if (node.uniform && reuse_uniform(c, node)) return;
    Instruction run;
    run.executable = node.executable;
    run.inputs = static_cast<std::uint32_t>(node.inputs.size());
    run.replica = r < 0 ? -1 : begin_ + r;
    run.node = node.node;
    std::vector<std::uint32_t> operands;
    for (const auto input : node.inputs) {
      wait_for_value(c, input);
      operands.push_back(builder_.on_device(slot(c, input, r)));
    }
    for (const auto output : node.outputs) {
      slot(c, output, r) = builder_.arena_buffer(lowered(c).values[output].bytes);
      operands.push_back(slot(c, output, r));
    }
    builder_.append(run, operands);
    program_.scratch_bytes = std::max(program_.scratch_bytes, node.executable->scratch_bytes);
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
    const auto bucket = resolution_.bucket_of[placeholder.ordinal];
    const auto offset = static_cast<std::size_t>(resolution_.buckets[bucket].offsets[resolution_.member_of[placeholder.ordinal]]) *
                        size_of(resolution_.collectives[placeholder.ordinal].type.dtype);
    const auto input = node.inputs[0];
    wait_for_value(c, input);
    if (placeholder.kind == CollectiveKind::all_reduce || placeholder.kind == CollectiveKind::reduce_scatter)
      contribute_leaf(c, placeholder, bucket, offset, input, r);
    else
      contribute_to(c, input, r, program_.collectives[bucket].collective->input(r));
    if (++leaves_[bucket] == resolution_.buckets[bucket].members.size() * static_cast<std::size_t>(local_)) {
      send_partials(bucket);
      builder_.append_collective(Instruction::Kind::start, bucket);
    }
    bind_output(c, node, placeholder, bucket, offset, r);
  }
  // Can this replica's value live where the collective wants it? Only if nobody else looks at it.
  bool movable(int c, std::uint32_t value, int r) {
    return !lowered(c).values[value].uniform && classes_[static_cast<std::size_t>(c)].uses[value] == 1 && builder_.memory(slot(c, value, r)).in_arena();
  }
  void contribute_to(int c, std::uint32_t value, int r, std::byte* destination) {
    const auto buffer = slot(c, value, r);
    if (builder_.support().runs_on_host() && movable(c, value, r)) builder_.memory(buffer).fixed = destination;
    else builder_.copy(buffer, builder_.fixed_buffer(destination, builder_.memory(buffer).bytes), builder_.memory(buffer).bytes);
  }
  void contribute_leaf(int c, const Placeholder& placeholder, std::uint32_t bucket, std::size_t offset, std::uint32_t value, int r) {
    const auto& leaf = fold_.leaves()[static_cast<std::size_t>(r)];
    // A device with memory of its own folds there and sends the partials when they are whole.
    const auto partials = builder_.support().runs_on_host() ? static_cast<int>(fold_.partials().size()) : 0;
    const auto bytes = lowered(c).values[value].bytes;
    const auto where = [&](int buffer) -> std::uint32_t {
      if (buffer < partials) return builder_.fixed_buffer(program_.collectives[bucket].collective->input(buffer) + offset, bytes);
      return temporaries_.at({placeholder.ordinal, buffer});
    };
    if (leaf.buffer < partials) {
      contribute_to(c, value, r, program_.collectives[bucket].collective->input(leaf.buffer) + offset);
    } else if (movable(c, value, r)) {
      temporaries_[{placeholder.ordinal, leaf.buffer}] = slot(c, value, r);
    } else {
      const auto temporary = builder_.arena_buffer(bytes);
      builder_.copy(slot(c, value, r), temporary, bytes);
      temporaries_[{placeholder.ordinal, leaf.buffer}] = temporary;
    }
    const auto& type = resolution_.collectives[placeholder.ordinal].type;
    for (const auto& step : leaf.folds) {
      Instruction fold;
      fold.kind = Instruction::Kind::fold;
      fold.dtype = type.dtype;
      fold.reduction = placeholder.reduction;
      fold.elements = type.shape.elements();
      fold.collective = bucket;
      builder_.append(fold, {where(step.into), where(step.from)});
    }
  }
  void send_partials(std::uint32_t bucket) {
    const auto kind = resolution_.collectives[resolution_.buckets[bucket].members[0]].what.kind;
    if (builder_.support().runs_on_host() || (kind != CollectiveKind::all_reduce && kind != CollectiveKind::reduce_scatter)) return;
    auto& collective = *program_.collectives[bucket].collective;
    for (std::size_t m = 0; m < resolution_.buckets[bucket].members.size(); ++m) {
      const auto ordinal = resolution_.buckets[bucket].members[m];
      const auto& type = resolution_.collectives[ordinal].type;
      const auto offset = static_cast<std::size_t>(resolution_.buckets[bucket].offsets[m]) * size_of(type.dtype);
      for (int p = 0; p < static_cast<int>(fold_.partials().size()); ++p)
        builder_.copy(temporaries_.at({ordinal, p}), builder_.fixed_buffer(collective.input(p) + offset, type.bytes()), type.bytes());
    }
  }
  void bind_output(int c, const LoweredNode& node, const Placeholder& placeholder, std::uint32_t bucket, std::size_t offset, int r) {
    const auto value = node.outputs[0];
    const auto bytes = lowered(c).values[value].bytes;
    std::byte* output = program_.collectives[bucket].collective->output() + offset;
    if (placeholder.kind == CollectiveKind::reduce_scatter) output += static_cast<std::size_t>(r) * bytes;
    classes_[static_cast<std::size_t>(c)].from_bucket[value] = bucket;
    slot(c, value, r) = builder_.fixed_buffer(output, bytes);
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
    wait_for_value(c, value);
    auto& array = program_.results[k].emplace_back(source(c).graph.type(source(c).graph.results()[k]));
    builder_.copy(slot(c, value, r), builder_.fixed_buffer(array.data(), array.size_bytes()), array.size_bytes());
  }

  // Each replica's small results, and whether it has input for the next step, go to all hosts. On one host it only makes sure
  // that every device has come this far before one of them changes a variable: a step that fails changes nothing.
  void emit_exchange() {
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
    exchange.collective = static_cast<std::uint32_t>(program_.collectives.size());
    collectives::CollectiveSpec spec{CollectiveKind::all_gather, DType::uint8, Reduction::sum, static_cast<std::int64_t>(exchange.block), 0, false,
                                     "the exchange of the step's results", request_.first_collective + exchange.collective};
    auto choice = collectives::choose(spec.kind, spec.elements, blocks_);
    program_.collectives.push_back({request_.communicator.prepare(spec, choice.schedule), spec.name, std::move(choice.reason), spec.elements, 1});
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
    waited_.push_back(false);
    wait_for(exchange.collective);
  }

  // Values that are themselves a variable's memory are set aside first: an update may overwrite it.
  void emit_updates() {
    updates_begin_ = static_cast<std::uint32_t>(program_.code.size());
    note_mirrored_assignments(true);
    for (auto& assignment : assignments_) set_aside(assignment.buffer, assignment.bytes);
    for (const int c : used_classes_)
      for (std::uint32_t i = 0; i < lowered(c).nodes.size(); ++i)
        if (classes_[static_cast<std::size_t>(c)].update_only[i]) emit(c, lowered(c).nodes[i], -1);
    note_mirrored_assignments(false);
    std::vector<Assignment> copies;
    for (const auto& assignment : assignments_)
      if (!builder_.write_in_place(assignment.buffer, assignment.to, updates_begin_)) copies.push_back(assignment);
    for (const auto& assignment : copies) builder_.copy(assignment.buffer, builder_.fixed_buffer(assignment.to, assignment.bytes), assignment.bytes);
  }
  // Those of values that are there already, then those of the updates' own.
  void note_mirrored_assignments(bool only_those_there) {
    for (const auto& [c, value, variable] : pending_) {
      if (c != used_classes_[0] || (only_those_there && slot(c, value, -1) == none) || !noted_.insert(variable).second) continue;
      wait_for_value(c, value);
      assignments_.push_back({variable_data(c, variable, -1), slot(c, value, -1), lowered(c).values[value].bytes});
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
  collectives::LocalFold fold_;
  ProgramBuilder builder_;
  Program& program_ = builder_.program();
  std::vector<ClassState> classes_;
  std::vector<int> used_classes_;
  std::vector<std::vector<std::uint32_t>> values_;  // [replica][value] -> buffer, of varying values
  std::map<Digest, std::pair<int, std::uint32_t>> shared_;
  std::map<std::pair<std::uint32_t, int>, std::uint32_t> temporaries_;  // (ordinal, buffer of the fold) -> buffer
  std::vector<std::size_t> leaves_;
  std::vector<bool> waited_;
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
