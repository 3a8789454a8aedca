// SPDX-License-Identifier: Apache-2.0
// Watches: a list of watches that acts as one.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/runtime/watch.hpp>

namespace replicator::detail {

// The watches of one device, called in order.
class Watches final : public Watch {
 public:
  void add(std::shared_ptr<Watch> watch) { all_.push_back(std::move(watch)); }
  bool empty() const { return all_.empty(); }

  void begin(const Program& program, std::uint64_t step) override {
    for (const auto& each : all_) each->begin(program, step);
  }
  bool looks() const override {
    return std::any_of(all_.begin(), all_.end(), [](const auto& each) { return each->looks(); });
  }
  void before(std::uint32_t instruction) override {
    for (const auto& each : all_) each->before(instruction);
  }
  void after(std::uint32_t instruction) override {
    for (const auto& each : all_) each->after(instruction);
  }
  void finished(std::uint32_t collective) override {
    for (const auto& each : all_) each->finished(collective);
  }
  void end() override {
    for (const auto& each : all_) each->end();
  }

 private:
  std::vector<std::shared_ptr<Watch>> all_;
};

}  // namespace replicator::detail
