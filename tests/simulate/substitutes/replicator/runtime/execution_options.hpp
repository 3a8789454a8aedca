// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include <replicator/runtime/program.hpp>

namespace replicator::detail {

struct ExecutionOptions {
  std::uint64_t seed = 0, step = 0;
  std::chrono::seconds deadline{};
  bool capture = true;
};

inline void execute(const Program& program, std::span<const std::vector<AnyArray>>, const ExecutionOptions& options) { program.work(options.step); }

}  // namespace replicator::detail
