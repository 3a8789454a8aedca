// SPDX-License-Identifier: Apache-2.0
// PlanPlaces: finds the memory to which a pointer of a device's program belongs, for plan_json().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <replicator/io/json/json_writer.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/variable_store.hpp>

namespace replicator::detail {

class PlanPlaces {
 public:
  // All arguments outlive this object.
  PlanPlaces(const Program& program, const Resolution& resolution, const VariableStore& variables) { find(program, resolution, variables); }

  // Adds members to an object: "memory", the members that identify it among others of its kind, and the "offset" in it.
  void describe(const std::byte* address, JsonWriter& json) const {
    auto found = places_.upper_bound(address);
    if (found == places_.begin() || address >= (--found)->first + std::max<std::size_t>(found->second.bytes, 1))
      return json.member("memory", "other");  // memory that this process cannot name
    found->second.describe(json);
    json.member("offset", address - found->first);
  }

 private:
  struct Place {
    std::size_t bytes;
    std::function<void(JsonWriter&)> describe;
  };

  void add(const void* begin, std::size_t bytes, std::function<void(JsonWriter&)> describe) {
    if (begin && bytes) places_[static_cast<const std::byte*>(begin)] = {bytes, std::move(describe)};
  }
  void find(const Program& program, const Resolution& resolution, const VariableStore& variables) {
    const auto named = [](std::string memory) { return [memory](JsonWriter& json) { json.member("memory", memory); }; };
    add(program.arena.data(), program.arena_bytes, named("arena"));
    for (const auto& place : program.stage.places())
      add(place.place, place.bytes, [&program, place](JsonWriter& json) {
        json.member("memory", "input");
        json.member("replica", program.replica_ids[place.replica]);
        json.member("element", place.element);
      });
    add(program.words.step(), sizeof(std::uint64_t), named("step"));
    add(program.words.replica_id(0), program.replica_ids.size() * sizeof(std::int32_t), named("replica_ids"));
    add(program.exchange.upcoming.data(), program.exchange.upcoming.size() * sizeof(std::uint64_t), named("upcoming"));
    add(program.constants, program.constant_bytes, named("constant"));
    for (const auto& one : resolution.classes)
      for (const auto& node : one.graph.nodes())
        if (const auto* constant = node.get<Constant>()) add(constant->array->data(), constant->array->size_bytes(), named("constant"));
    for (std::size_t k = 0; k < program.results.size(); ++k)
      for (const auto& array : program.results[k])
        add(array.data(), array.size_bytes(), [k](JsonWriter& json) {
          json.member("memory", "result");
          json.member("result", k);
        });
    for (const auto& name : variables.names())
      for (int copy = 0; copy < variables.copies(name); ++copy) {
        const auto& value = variables.at(name, copy);
        const auto describe = [name, copy](JsonWriter& json) {
          json.member("memory", "variable");
          json.member("variable", name);
          json.member("copy", copy);
        };
        add(value.host_memory(), value.bytes(), describe);
        value.for_each_resident([&](const std::byte* at) { add(at, value.bytes(), describe); });
      }
    for (std::uint32_t c = 0; c < program.collectives.size(); ++c) find_of_collective(program, c);
    for (std::uint32_t place = 0; program.handoffs && place < program.handoffs->size(); ++place)
      add(program.handoffs->data(place), program.handoffs->bytes(place), [place](JsonWriter& json) {
        json.member("memory", "handoff");
        json.member("place", place);
      });
  }
  void find_of_collective(const Program& program, std::uint32_t index) {
    const auto& use = program.collectives[index];
    const auto block = static_cast<std::size_t>(use.spec.elements) * size_of(use.spec.dtype);
    const auto describe = [index](const char* memory, int input) {
      return [=](JsonWriter& json) {
        json.member("memory", memory);
        json.member("collective", index);
        if (input >= 0) json.member("input", input);
      };
    };
    for (int i = 0; i < use.collective->inputs(); ++i)
      add(use.collective->input(i), block * static_cast<std::size_t>(use.schedule.input_blocks()), describe("collective input", i));
    const auto blocks = static_cast<std::size_t>(use.schedule.output_blocks(program.communicator->rank()));
    add(use.collective->output(), block * blocks, describe("collective output", -1));
  }

  std::map<const std::byte*, Place> places_;
};

}  // namespace replicator::detail
