// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: inputs of which only the length counts.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/engine/input_watch.hpp>

namespace replicator::detail {

class AsyncElements {
 public:
  // `lengths`: of the input of each replica of the job.
  explicit AsyncElements(std::vector<std::uint64_t> lengths) : lengths_{std::move(lengths)} {}
  std::span<const std::vector<AnyArray>> of(int, int) const { return {}; }
  bool read_next(int replica, int, std::uint64_t number, InputWatch&) { return number + 1 < lengths_[static_cast<std::size_t>(replica)]; }
  void advance(int, int) {}

 private:
  std::vector<std::uint64_t> lengths_;
};

}  // namespace replicator::detail
