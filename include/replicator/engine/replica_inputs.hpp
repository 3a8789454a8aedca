// SPDX-License-Identifier: Apache-2.0
// ReplicaInputs: the inputs of this process's replicas, one source for each, for the steps of every regime. It reports
// inputs that are empty, end early, or cannot seek.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/engine/input_watch.hpp>
#include <replicator/replicate/input_source.hpp>

namespace replicator::detail {

class ReplicaInputs {
 public:
  using Element = std::vector<AnyArray>;

  // sources[0] belongs to `first_replica`, the others to the replicas after it.
  ReplicaInputs(std::vector<std::unique_ptr<InputSource>> sources, int first_replica)
      : sources_{std::move(sources)}, first_replica_{first_replica} {}

  std::size_t size() const { return sources_.size(); }
  // The replica of sources[r], counted over all processes.
  int replica(std::size_t r) const { return first_replica_ + static_cast<int>(r); }

  // Reads the next element of sources[r], which is element `number` of that input; nothing at its end. Threads may read
  // different sources at the same time, each with its own watch. Throws any error of the input.
  std::optional<Element> next(std::size_t r, std::uint64_t number, InputWatch& watch) {
    return watch.during(replica(r), number, [&] { return sources_[r]->next(); });
  }
  // Reads the element with which a step begins. Throws DataError if there is none.
  Element first(std::size_t r, std::uint64_t number, InputWatch& watch) {
    if (auto element = next(r, number, watch)) return std::move(*element);
    throw ended_before(r, number);
  }
  // The number of the first element of a recorded input; nothing for other inputs.
  std::optional<std::uint64_t> recorded_from(std::size_t r) const { return sources_[r]->recorded_from(); }
  // Makes element `position` the next one of each source that can seek. Returns the sources that cannot.
  std::vector<std::size_t> seek(std::int64_t position) {
    std::vector<std::size_t> others;
    for (std::size_t r = 0; r < size(); ++r)
      if (!sources_[r]->seek(position)) others.push_back(r);
    return others;
  }
  // Reads and drops the first `count` elements of these sources. Takes the sources in turn, because they may share a
  // reader.
  void skip(std::span<const std::size_t> sources, std::int64_t count, InputWatch& watch) {
    for (std::int64_t i = 0; i < count; ++i)
      for (const auto r : sources)
        if (!next(r, static_cast<std::uint64_t>(i), watch)) throw ended_before(r, static_cast<std::uint64_t>(count));
  }

 private:
  DataError ended_before(std::size_t r, std::uint64_t number) const {
    const Location where = sources_[r]->where();
    const auto input = "the input of replica " + std::to_string(replica(r)) + (*where.file ? ", given to replicate at " + where.text() + "," : "");
    if (number == 0)
      return DataError{input +
                       " is empty: input_fn must give every replica at least one element. Check that its source has items, and with shard() and "
                       "epochs() at least as many as there are replicas"};
    return DataError{input + " has ended before element " + std::to_string(number) +
                     ", at which the resumed checkpoint continues: it must give the same elements as before"};
  }

  std::vector<std::unique_ptr<InputSource>> sources_;
  int first_replica_;
};

}  // namespace replicator::detail
