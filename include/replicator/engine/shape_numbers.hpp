// SPDX-License-Identifier: Apache-2.0
// ShapeNumbers: gives the shapes of a replica's elements a number, which the replica sends to the others.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include <replicator/core/array.hpp>
#include <replicator/core/hash.hpp>

namespace replicator::detail {

// For one replica. Its first shapes get number 0, so nothing need be sent before the first step. New shapes are
// numbered in order of appearance. Only the replica's own process assigns its numbers, and all processes learn them, so
// they are equal everywhere.
class ShapeNumbers {
 public:
  std::uint64_t operator()(std::span<const AnyArray> element) {
    Hasher hasher;
    for (const auto& array : element) {
      hasher.word(static_cast<std::uint64_t>(array.dtype()));
      hasher.word(array.shape().rank());
      for (const auto extent : array.shape()) hasher.word(static_cast<std::uint64_t>(extent));
    }
    return numbers_.try_emplace(hasher.result(), numbers_.size()).first->second;
  }

 private:
  std::unordered_map<Digest, std::uint64_t, DigestHash> numbers_;
};

}  // namespace replicator::detail
