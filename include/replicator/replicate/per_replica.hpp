// SPDX-License-Identifier: Apache-2.0
// A step's result on every replica.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>

namespace replicator {

// Whole and equal on every host where a replica's value has at most 4 KiB; larger ones are there for this host's replicas only.
template <class V>
class PerReplica {
 public:
  // `first`: the replica of values[0]; `replicas`: how many there are over all hosts.
  PerReplica(std::vector<V> values, int first, int replicas) : values_{std::move(values)}, first_{first}, replicas_{replicas} {}

  int replicas() const { return replicas_; }
  bool whole() const { return static_cast<int>(values_.size()) == replicas_; }
  int first() const { return first_; }
  // The value of a replica. Throws BuildError where there is no such replica, or its value lives on another host.
  const V& operator[](int replica) const {
    if (replica < 0 || replica >= replicas_)
      throw BuildError{"asked for the value of replica " + std::to_string(replica) + ": there are " + std::to_string(replicas_) +
                       ", counted from 0"};
    const int index = replica - first_;
    if (index < 0 || index >= static_cast<int>(values_.size()))
      throw BuildError{"the value of replica " + std::to_string(replica) + " is on another host: this one has those of replicas " +
                       std::to_string(first_) + " to " + std::to_string(first_ + static_cast<int>(values_.size()) - 1) +
                       "; results above 4 KiB stay where they were made: all_gather them in the step, or return something smaller"};
    return values_[static_cast<std::size_t>(index)];
  }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::vector<V> values_;
  int first_;
  int replicas_;
};

// Copies the values that are here, one behind the other in the order of the replicas, into memory of the caller's: for `first()`
// and the replicas behind it. Throws BuildError unless `out` has exactly as many elements.
// A copy, because a step has no business in memory that others read: devices write results while the step may still fail or wait
// for a peer, and a step that fails must leave what the last one gave; programs, of which there is one for each set of shapes,
// have the addresses of their buffers fixed when they are planned; and memory of GPUs is not the caller's. So a result is written
// into the program's own array, copied out of it once the whole step has succeeded, and here a second time.
template <Element T>
void copy_to(const PerReplica<Array<T>>& values, std::span<T> out) {
  std::size_t count = 0;
  for (const auto& value : values) count += static_cast<std::size_t>(value.size());
  if (count != out.size())
    throw BuildError{"copy_to: the results have " + std::to_string(count) + " elements on this host, and the memory given has room for " +
                     std::to_string(out.size())};
  T* to = out.data();
  for (const auto& value : values) {
    if (value.size() > 0) std::memcpy(to, value.data(), static_cast<std::size_t>(value.size()) * sizeof(T));
    to += value.size();
  }
}

// The mean over all elements of all replicas, in the order of the replicas. Throws BuildError where some live on another host.
template <FloatingElement T>
T mean(const PerReplica<Array<T>>& values) {
  double sum = 0;
  std::int64_t count = 0;
  for (int replica = 0; replica < values.replicas(); ++replica)
    for (const T value : values[replica]) {
      sum += static_cast<double>(value);
      ++count;
    }
  return count ? static_cast<T>(sum / static_cast<double>(count)) : T{};
}

}  // namespace replicator
