// SPDX-License-Identifier: Apache-2.0
// The input elements of this process's replicas in the asynchronous regime, where each replica reads its next element at its own pace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/engine/input_watch.hpp>
#include <replicator/replicate/input_source.hpp>

namespace replicator {

// Holds two elements of each replica: that of its current step, and the next one. The next one is read before the current step is computed, so that a
// group knows whether it makes another step. Threads may use replicas of different devices at the same time.
class AsyncElements {
 public:
  // `first`: the replica of the job to which inputs[0] belongs. `current`: the first element of each input.
  AsyncElements(int first, std::vector<std::unique_ptr<InputSource>> inputs, std::vector<std::vector<AnyArray>> current)
      : first_{first}, inputs_{std::move(inputs)}, current_{std::move(current)}, next_(current_.size()) {}

  // The elements of the current step, by replica.
  std::span<const std::vector<AnyArray>> of(int replica, int count) const {
    return std::span{current_}.subspan(local(replica), static_cast<std::size_t>(count));
  }
  // Reads the elements for the step after step `number`. `watch` is that of the calling thread. False if the input of one of the replicas has ended.
  // Throws what an input throws, and BuildError for an element of other shapes.
  bool read_next(int replica, int count, std::uint64_t number, InputWatch& watch) {
    bool more = true;
    for (int r = replica; r < replica + count; ++r) more = read_next(r, number, watch) && more;
    return more;
  }
  // Makes the elements that read_next read the current ones.
  void advance(int replica, int count) {
    for (auto r = local(replica); r < local(replica + count); ++r) std::swap(current_[r], next_[r]);
  }

 private:
  std::size_t local(int replica) const { return static_cast<std::size_t>(replica - first_); }
  bool read_next(int replica, std::uint64_t number, InputWatch& watch) {
    const auto r = local(replica);
    auto element = watch.during(replica, number + 1, [&] { return inputs_[r]->next(); });
    if (!element) return false;
    for (std::size_t i = 0; i < element->size(); ++i)
      if (const auto &type = (*element)[i].type(), &first = current_[r][i].type(); type != first)
        throw BuildError{"component " + std::to_string(i) + " of element " + std::to_string(number + 1) + " of replica " + std::to_string(replica) +
                         " is " + type.text() + ", that of the elements before is " + first.text() +
                         ": with --regime async all elements of a replica have the same shapes; pad them, or run with --regime sync"};
    next_[r] = std::move(*element);
    return true;
  }

  int first_;
  std::vector<std::unique_ptr<InputSource>> inputs_;
  std::vector<std::vector<AnyArray>> current_, next_;
};

}  // namespace replicator
