// SPDX-License-Identifier: Apache-2.0
// AssignmentPlacer: places a step's assignments to variables at the very end of its program, because a failed step must
// change nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <replicator/runtime/plan/plan_request.hpp>
#include <replicator/runtime/plan/program_builder.hpp>
#include <replicator/runtime/plan/value_buffers.hpp>
#include <replicator/runtime/plan/variable_placer.hpp>

namespace replicator::detail {

// Order of use: note() for all assignments; begin(); then place the kernels that only update variables; finish().
class AssignmentPlacer {
 public:
  AssignmentPlacer(const PlanRequest& request, ProgramBuilder& builder, VariablePlacer& variables, ValueBuffers& values)
      : request_{request}, builder_{builder}, variables_{variables}, values_{values} {}

  // The replica's graph assigns this value. For a mirrored variable it need not be computed yet.
  void note(int c, std::uint32_t value, std::uint32_t variable, int r) {
    if (request_.source(c).graph.variables()[variable].kind == VariableKind::mirrored) mirrored_.push_back({c, value, variable});
    else add({c, value, variable}, r);
  }
  template <class F>
  void for_each_mirrored(F f) const {
    for (const auto& [c, value, variable] : mirrored_) f(c, value);
  }

  // From here on instructions may write variables. A value that is itself a variable's memory is copied first, because
  // an update may overwrite it.
  void begin() {
    builder_.program().updates_begin = static_cast<std::uint32_t>(builder_.program().code.size());
    add_mirrored([this](const Noted& noted) { return values_.of(noted.c, noted.value, -1) != ValueBuffers::none; });
    for (auto& copy : copies_) set_aside(copy);
  }
  // All assigned values are computed.
  void finish() {
    add_mirrored([](const Noted&) { return true; });
    builder_.set_origin(ProgramBuilder::none, ProgramBuilder::none, -1);
    std::erase_if(copies_, [this](const Copy& copy) { return builder_.write_in_place(copy.from, copy.to, builder_.program().updates_begin); });
    for (const auto& copy : copies_) builder_.copy(copy.from, builder_.fixed_buffer(copy.to, copy.bytes), copy.bytes);
  }

 private:
  struct Noted {
    int c;
    std::uint32_t value;
    std::uint32_t variable;
  };
  struct Copy {
    std::byte* to;
    std::uint32_t from;  // buffer
    std::size_t bytes;
  };

  void add(const Noted& noted, int r) {
    const auto from = values_.operand(noted.c, noted.value, r);
    copies_.push_back({variables_.assigned(noted.c, noted.variable, r), from, request_.value(noted.c, noted.value).bytes});
  }
  // All classes assign the same values to mirrored variables, so those of the first class are enough.
  template <class Predicate>
  void add_mirrored(Predicate now) {
    const int first = request_.class_of(0);
    std::vector<Noted> later;
    for (const auto& noted : mirrored_)
      if (noted.c == first && now(noted)) add(noted, -1);
      else later.push_back(noted);
    mirrored_ = std::move(later);
  }
  void set_aside(Copy& copy) {
    if (!builder_.memory(copy.from).variable) return;
    const auto aside = builder_.arena_buffer(copy.bytes);
    builder_.copy(copy.from, aside, copy.bytes);
    copy.from = aside;
  }

  const PlanRequest& request_;
  ProgramBuilder& builder_;
  VariablePlacer& variables_;
  ValueBuffers& values_;
  std::vector<Noted> mirrored_;  // in program order
  std::vector<Copy> copies_;
};

}  // namespace replicator::detail
