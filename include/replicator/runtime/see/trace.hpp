// SPDX-License-Identifier: Apache-2.0
// DeviceTrace: records when a device's instructions and collectives ran. Its memory is allocated before the first step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <replicator/runtime/see/instruction_text.hpp>
#include <replicator/runtime/see/trace_ring.hpp>
#include <replicator/runtime/watch.hpp>

namespace replicator::detail {

class DeviceTrace final : public Watch {
 public:
  // The time of an instruction, or of a whole step.
  struct Span {
    static constexpr std::uint32_t whole_step = ~0u;
    std::int64_t begin = 0, end = 0;
    std::uint64_t step = 0;
    std::uint32_t instruction = whole_step;
  };
  // `asked`: the device's first contribution was ready; for the exchange of results: all contributions were. `waited`:
  // the first wait began. `finished` is noticed only between two instructions.
  struct Communication {
    std::int64_t asked = 0, started = 0, waited = 0, finished = 0;
    std::uint64_t step = 0;
    std::uint32_t collective = 0;
  };
  // The description of an instruction.
  struct Label {
    std::string name, formula, where;
    Instruction::Kind kind = Instruction::Kind::run;
    std::int32_t replica = -1;
  };
  struct CollectiveLabel {
    std::string name, schedule;
    std::int64_t bytes = 0;
    int members = 1;
  };

  // Copies only names from the program. A recorded step allocates nothing.
  DeviceTrace(const Resolution& resolution, const Program& program, TraceWindow window)
      : window_{window},
        spans_(window.steps() * (program.code.size() + 1)),
        communications_(window.steps() * program.collectives.size()),
        now_(program.collectives.size()) {
    for (const auto& instruction : program.code) {
      auto& label = labels_.emplace_back();
      label.name = text_of(resolution, program, instruction);
      label.kind = instruction.kind;
      label.replica = instruction.replica;
      waits_for_.push_back(instruction.kind == Instruction::Kind::wait ? instruction.collective : Instruction::none);
      starts_.push_back(instruction.kind == Instruction::Kind::start ? instruction.collective : Instruction::none);
      if (const auto* node = node_of(resolution, instruction)) {
        label.where = node->where.text();
        if (instruction.kind == Instruction::Kind::run && !instruction.relayout) label.formula = formula_of(*node);
      }
    }
    for (std::uint32_t c = 0; c < program.collectives.size(); ++c) {
      const auto& use = program.collectives[c];
      collectives_.push_back({use.text, use.schedule.name, use.bytes, use.members});
      order_.push_back(c);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return program.collectives[a].asked < program.collectives[b].asked; });
    for (const auto c : order_) asked_at_.push_back(program.collectives[c].asked);
  }

  void begin(const Program&, std::uint64_t step) override {
    recording_ = window_.contains(step);
    if (!recording_) return;
    step_ = step;
    next_asked_ = 0;
    for (auto& communication : now_) communication = {};
    step_began_ = trace_clock();
  }
  bool looks() const override { return recording_; }
  void before(std::uint32_t instruction) override {
    if (!recording_) return;
    began_ = trace_clock();
    for (; next_asked_ < order_.size() && asked_at_[next_asked_] <= instruction; ++next_asked_) now_[order_[next_asked_]].asked = began_;
    if (waits_for_[instruction] != Instruction::none) now_[waits_for_[instruction]].waited = began_;
    if (starts_[instruction] != Instruction::none) now_[starts_[instruction]].started = began_;
  }
  void after(std::uint32_t instruction) override {
    if (recording_) spans_.push({began_, trace_clock(), step_, instruction});
  }
  void finished(std::uint32_t collective) override {
    if (recording_) now_[collective].finished = trace_clock();
  }
  void end() override {
    if (!recording_) return;
    spans_.push({step_began_, trace_clock(), step_, Span::whole_step});
    for (std::uint32_t c = 0; c < now_.size(); ++c) {
      auto& record = now_[c];
      record.step = step_;
      record.collective = c;
      if (record.started) communications_.push(record);
    }
    recording_ = false;
  }

  const TraceRing<Span>& spans() const { return spans_; }
  const TraceRing<Communication>& communications() const { return communications_; }
  const Label& label(std::uint32_t instruction) const { return labels_[instruction]; }
  const CollectiveLabel& collective(std::uint32_t index) const { return collectives_[index]; }
  std::size_t instructions() const { return labels_.size(); }

 private:
  TraceWindow window_;
  std::vector<Label> labels_;
  std::vector<CollectiveLabel> collectives_;
  std::vector<std::uint32_t> waits_for_, starts_;  // by instruction: the collective, or none
  std::vector<std::uint32_t> order_, asked_at_;    // collectives in the order in which they are asked for, and the instruction of that
  TraceRing<Span> spans_;
  TraceRing<Communication> communications_;
  std::vector<Communication> now_;  // by collective, in the present step
  std::size_t next_asked_ = 0;
  std::int64_t step_began_ = 0, began_ = 0;
  std::uint64_t step_ = 0;
  bool recording_ = false;
};

}  // namespace replicator::detail
