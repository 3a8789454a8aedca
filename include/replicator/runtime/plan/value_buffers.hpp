// SPDX-License-Identifier: Apache-2.0
// ValueBuffers: the buffers of a device's program that hold the values of its replicas' graphs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <replicator/runtime/plan/collective_placer.hpp>
#include <replicator/runtime/plan/handoff_placer.hpp>
#include <replicator/runtime/plan/plan_request.hpp>
#include <replicator/runtime/plan/program_builder.hpp>
#include <replicator/runtime/plan/variable_placer.hpp>

namespace replicator::detail {

// A value is given by (c, value, r): the class of its graph, its number in that graph, and the device's replica. Uniform
// values ignore r.
class ValueBuffers {
 public:
  static constexpr std::uint32_t none = ProgramBuilder::none;

  ValueBuffers(const PlanRequest& request, ProgramBuilder& builder, CollectivePlacer& collectives, HandoffPlacer& handoffs, VariablePlacer& variables)
      : request_{request}, builder_{builder}, collectives_{collectives}, handoffs_{handoffs}, variables_{variables}, uniform_(request.lowered.size()), collected_(request.lowered.size()) {
    for (std::size_t c = 0; c < request.lowered.size(); ++c) {
      uniform_[c].assign(request.lowered[c].values.size(), none);
      collected_[c].assign(request.lowered[c].values.size(), none);
    }
    for (int r = 0; r < request.replicas(); ++r) varying_.emplace_back(request.lowered_graph(request.class_of(r)).values.size(), none);
  }

  // The buffer of a value; none until it has been made or taken.
  std::uint32_t& of(int c, std::uint32_t value, int r) {
    return request_.value(c, value).uniform ? uniform_[static_cast<std::size_t>(c)][value] : varying_[static_cast<std::size_t>(r)][value];
  }
  // Makes a new buffer, which a kernel is about to write.
  std::uint32_t make(int c, std::uint32_t value, int r) {
    ProgramBuilder::Memory memory;
    memory.bytes = request_.value(c, value).bytes;
    memory.graph = static_cast<std::uint32_t>(c);
    memory.value = value;
    memory.owner = r < 0 ? -1 : request_.begin() + r;
    return of(c, value, r) = builder_.new_buffer(memory);
  }
  // The buffer of a value that an instruction is about to read. Waits for the collective that makes the value. Takes
  // the value, the first time, if another device makes it.
  std::uint32_t operand(int c, std::uint32_t value, int r) {
    wait_for(c, value);
    if (of(c, value, r) == none) of(c, value, r) = take(c, value, r);
    return of(c, value, r);
  }

  // The value is the result of this collective of the program.
  void set_collected(int c, std::uint32_t value, std::uint32_t collective) { collected_[static_cast<std::size_t>(c)][value] = collective; }
  // The value has been made. Gives it to the other devices, if they need it.
  void give(int c, std::uint32_t value, int r) {
    if (request_.value(c, value).crosses) handoffs_.give(key(c, value, r), of(c, value, r), request_.value(c, value).bytes);
  }
  // Gives the result of a collective to the other devices, once. It is called when all replicas may need it.
  void give_collected(int c, std::uint32_t value, int r) {
    if (!request_.value(c, value).crosses || !given_.insert(key(c, value, r)).second) return;
    wait_for(c, value);
    give(c, value, r);
  }

  // Returns true if another class has computed the same uniform node: its outputs are used. Else this class must
  // compute it.
  bool share(int c, const LoweredNode& node) {
    const auto digest = [&](std::uint32_t output) { return request_.value(c, output).digest; };
    if (!std::all_of(node.outputs.begin(), node.outputs.end(), [&](auto output) { return shared_.contains(digest(output)); })) {
      for (const auto output : node.outputs) shared_.try_emplace(digest(output), c, output);
      return false;
    }
    for (const auto output : node.outputs) {
      const auto& [owner, value] = shared_.at(digest(output));
      of(c, output, -1) = of(owner, value, -1);
    }
    return true;
  }

 private:
  Handoffs::Key key(int c, std::uint32_t value, int r) const {
    return {static_cast<std::uint32_t>(c), value, request_.value(c, value).uniform ? -1 : r};
  }
  void wait_for(int c, std::uint32_t value) {
    const auto collective = collected_[static_cast<std::size_t>(c)][value];
    if (collective != none) collectives_.wait_for(collective);
  }
  // A variable may be written as soon as all devices have met, so a device that needs one of another device copies it.
  std::uint32_t take(int c, std::uint32_t value, int r) {
    const auto& wanted = request_.value(c, value);
    if (!wanted.variable) return handoffs_.take(key(c, value, r), wanted.bytes);
    const auto& read = *request_.source(c).graph.node(wanted.node).get<Read>();
    const auto copy = builder_.arena_buffer(wanted.bytes);
    builder_.copy(variables_.buffer(c, read.variable, r), copy, wanted.bytes);
    return copy;
  }

  const PlanRequest& request_;
  ProgramBuilder& builder_;
  CollectivePlacer& collectives_;
  HandoffPlacer& handoffs_;
  VariablePlacer& variables_;
  std::vector<std::vector<std::uint32_t>> uniform_;         // buffers, by class and value
  std::vector<std::vector<std::uint32_t>> varying_;         // buffers, by replica and value
  std::vector<std::vector<std::uint32_t>> collected_;       // by class and value: the collective of the program, or none
  std::map<Digest, std::pair<int, std::uint32_t>> shared_;  // results of uniform nodes: the class and value that hold them
  std::set<Handoffs::Key> given_;                           // results of collectives that have been given
};

}  // namespace replicator::detail
