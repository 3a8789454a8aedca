// SPDX-License-Identifier: Apache-2.0
// What a replica tells the others of the shapes of its elements: a number.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include <replicator/core/array.hpp>
#include <replicator/core/hash.hpp>

namespace replicator::detail {

// Of one replica. Its first shapes have number 0, so before the first step nobody needs to be told; others are numbered in the order in
// which they come. Each replica's own process numbers them, and all processes know all numbers: so they are equal everywhere.
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
