// SPDX-License-Identifier: Apache-2.0
// Trail: a mark of everything that a device's program writes in one step before it changes variables, by instruction. Two
// devices that run the same program on the same inputs leave the same trail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <replicator/core/content_mark.hpp>
#include <replicator/resolve/resolution.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/watch.hpp>

namespace replicator::detail {

class Trail final : public Watch {
 public:
  // Keeps references to both.
  Trail(const Resolution& resolution, const Program& program) : resolution_{resolution}, program_{program}, marks_(program.updates_begin) {}

  // By instruction. An instruction that writes nothing of its own has the mark 0.
  const std::vector<std::uint64_t>& marks() const { return marks_; }

  void begin(const Program&, std::uint64_t) override { marks_.assign(marks_.size(), 0); }
  void before(std::uint32_t) override {}
  void after(std::uint32_t position) override {
    if (position >= marks_.size()) return;
    const auto& instruction = program_.code[position];
    auto& mark = marks_[position];
    switch (instruction.kind) {
      case Instruction::Kind::run:
        for (std::size_t o = 0; o < instruction.executable->output_layouts.size(); ++o) {
          const auto pointer = instruction.pointers + instruction.inputs + static_cast<std::uint32_t>(o);
          add(mark, program_.pointers[pointer], program_.pointer_bytes[pointer]);
        }
        break;
      case Instruction::Kind::fold:
        add(mark, program_.pointers[instruction.pointers], static_cast<std::size_t>(instruction.elements) * size_of(instruction.dtype));
        break;
      case Instruction::Kind::copy: add(mark, program_.pointers[instruction.pointers + 1], instruction.bytes); break;
      case Instruction::Kind::wait: add_results(mark, program_.collectives[instruction.collective]); break;
      case Instruction::Kind::take: add(mark, program_.handoffs->data(instruction.place), program_.handoffs->bytes(instruction.place)); break;
      default: break;
    }
  }
  void finished(std::uint32_t) override {}
  void end() override {}

 private:
  // What a collective of the user gave to the device's replicas.
  void add_results(std::uint64_t& mark, const CollectiveUse& use) {
    if (use.bucket == CollectiveUse::none) return;
    const auto& any = resolution_.classes[0];  // all have the same collectives
    for (const auto& collected : program_.collected)
      if (resolution_.bucket_of[collected.ordinal] == use.bucket)
        add(mark, collected.data, any.graph.node(any.collective[collected.ordinal]).outputs[0].bytes());
  }
  void add(std::uint64_t& mark, const std::byte* data, std::size_t bytes) {
    if (program_.queue.handle() && bytes > 0 && on_device(program_, data)) {
      host_.resize(bytes);
      program_.queue.copy(host_.data(), data, bytes);
      program_.queue.synchronise();
      data = host_.data();
    }
    mark = mark * 0x9E3779B97F4A7C15u + content_mark({data, bytes}) + 1;  // the factor is odd: no difference is lost
  }

  const Resolution& resolution_;
  const Program& program_;
  std::vector<std::uint64_t> marks_;
  std::vector<std::byte> host_;  // on devices with their own memory
};

}  // namespace replicator::detail
