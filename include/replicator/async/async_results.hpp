// SPDX-License-Identifier: Apache-2.0
// AsyncResults: packs the small results of a group's step into the message in which a process reports the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/runtime/program.hpp>

namespace replicator::detail {

class AsyncResults {
 public:
  using Values = std::vector<std::vector<AnyArray>>;  // [result][replica of the group]

  AsyncResults() = default;
  // `types`: of each result, the same on all replicas. `replicas`: the number of replicas of a group.
  AsyncResults(std::vector<TensorType> types, int replicas) : types_{std::move(types)}, replicas_{static_cast<std::size_t>(replicas)} {}

  std::size_t size() const { return types_.size(); }
  bool travels(std::size_t result) const { return types_[result].bytes() <= ResultExchange::largest_result; }
  // The size of a group's packed results.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (std::size_t k = 0; k < size(); ++k)
      if (travels(k)) sum += types_[k].bytes() * replicas_;
    return sum;
  }
  std::vector<std::byte> pack(const Values& values) const {
    std::vector<std::byte> packed;
    packed.reserve(bytes());
    for (std::size_t k = 0; k < size(); ++k)
      for (std::size_t r = 0; travels(k) && r < replicas_; ++r) {
        const auto one = values[k][r].bytes();
        packed.insert(packed.end(), one.begin(), one.end());
      }
    return packed;
  }
  // A result that is too large to be packed gets no values.
  Values unpack(std::span<const std::byte> packed) const {
    Values values(size());
    for (std::size_t k = 0; k < size(); ++k)
      for (std::size_t r = 0; travels(k) && r < replicas_; ++r) {
        auto& array = values[k].emplace_back(types_[k]);
        std::copy_n(packed.begin(), array.size_bytes(), array.data());
        packed = packed.subspan(array.size_bytes());
      }
    return values;
  }

 private:
  std::vector<TensorType> types_;
  std::size_t replicas_ = 0;
};

}  // namespace replicator::detail
