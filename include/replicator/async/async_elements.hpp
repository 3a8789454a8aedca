// SPDX-License-Identifier: Apache-2.0
// AsyncElements: the input elements of this process's replicas in the asynchronous regime. Each replica reads at its
// own pace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/engine/input_watch.hpp>
#include <replicator/engine/replica_inputs.hpp>

namespace replicator::detail {

// Holds two elements of each replica: the current and the next one. The next one is read before the current step is
// computed, so a group knows whether it will make another step. Threads may use replicas of different devices at the
// same time.
class AsyncElements {
 public:
  // `current`: the first elements, which have already been read from the inputs.
  AsyncElements(ReplicaInputs inputs, std::vector<ReplicaInputs::Element> current)
      : inputs_{std::move(inputs)}, current_{std::move(current)}, next_(current_.size()) {}

  // The elements of the current step, by replica.
  std::span<const std::vector<AnyArray>> of(int replica, int count) const {
    return std::span{current_}.subspan(local(replica), static_cast<std::size_t>(count));
  }
  // Reads the elements for the step after step `number`. `watch` belongs to the calling thread. Returns false if the
  // input of one of the replicas has ended. Throws any error of an input, and BuildError for an element of another
  // shape.
  bool read_next(int replica, int count, std::uint64_t number, InputWatch& watch) {
    bool more = true;
    for (int r = replica; r < replica + count; ++r) more = read_next(r, number, watch) && more;
    return more;
  }
  // The elements that read_next() has read become the current ones.
  void advance(int replica, int count) {
    for (auto r = local(replica); r < local(replica + count); ++r) std::swap(current_[r], next_[r]);
  }

 private:
  std::size_t local(int replica) const { return static_cast<std::size_t>(replica - inputs_.replica(0)); }
  bool read_next(int replica, std::uint64_t number, InputWatch& watch) {
    const auto r = local(replica);
    auto element = inputs_.next(r, number + 1, watch);
    if (!element) return false;
    for (std::size_t i = 0; i < element->size(); ++i)
      if (const auto& type = (*element)[i].type(), &first = current_[r][i].type(); type != first)
        throw BuildError{"component " + std::to_string(i) + " of element " + std::to_string(number + 1) + " of replica " + std::to_string(replica) +
                         " is " + type.text() + ", that of the elements before is " + first.text() +
                         ": with --regime async all elements of a replica have the same shapes; pad them, or run with --regime sync"};
    next_[r] = std::move(*element);
    return true;
  }

  ReplicaInputs inputs_;
  std::vector<ReplicaInputs::Element> current_, next_;
};

}  // namespace replicator::detail
