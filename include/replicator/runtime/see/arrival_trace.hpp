// SPDX-License-Identifier: Apache-2.0
// ArrivalTrace: records when the devices of a process start collectives, for the straggler report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/runtime/program.hpp>
#include <replicator/runtime/see/trace_ring.hpp>
#include <replicator/runtime/watch.hpp>

namespace replicator::detail {

// The start of a collective by a device of a process.
struct Arrival {
  std::uint64_t collective = 0;  // digest of its text and the number of the compiled step
  std::uint64_t step = 0;
  std::int64_t time = 0;  // nanoseconds
  std::uint32_t process = 0, device = 0;
};

// The arrivals of one device in one compiled step, for the last 512 steps. Allocates nothing in a step.
class ArrivalTrace final : public Watch {
 public:
  ArrivalTrace(const Program& program, std::uint32_t compiled, std::uint32_t process, std::uint32_t device)
      : arrivals_{512 * program.collectives.size()}, process_{process}, device_{device} {
    for (const auto& use : program.collectives) {
      Hasher hasher;
      hasher.word(compiled);
      hasher.text(use.text);
      names_.emplace_back(hasher.result().low, use.text);
    }
    for (const auto& instruction : program.code)
      starts_.push_back(instruction.kind == Instruction::Kind::start ? instruction.collective : Instruction::none);
  }

  void begin(const Program&, std::uint64_t step) override { step_ = step; }
  void before(std::uint32_t instruction) override {
    if (const auto collective = starts_[instruction]; collective != Instruction::none)
      arrivals_.push({names_[collective].first, step_, trace_clock(), process_, device_});
  }
  void after(std::uint32_t) override {}
  void finished(std::uint32_t) override {}
  void end() override {}

  const TraceRing<Arrival>& arrivals() const { return arrivals_; }
  // For each collective, its number in arrivals and its text.
  const std::vector<std::pair<std::uint64_t, std::string>>& names() const { return names_; }

 private:
  TraceRing<Arrival> arrivals_;
  std::vector<std::pair<std::uint64_t, std::string>> names_;
  std::vector<std::uint32_t> starts_;  // by instruction
  std::uint32_t process_, device_;
  std::uint64_t step_ = 0;
};

}  // namespace replicator::detail
