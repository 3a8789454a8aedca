// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: a program is a function of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <replicator/core/array.hpp>

namespace replicator::detail {

struct ResultExchange {
  static constexpr std::size_t largest_result = 4096;
};

struct Program {
  std::vector<std::vector<AnyArray>> results{};
  std::vector<bool> uniform_result{};
  std::function<void(std::uint64_t step)> work{};
};

}  // namespace replicator::detail
