// SPDX-License-Identifier: Apache-2.0
// What an input function knows of the replica it makes data for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/data/shard.hpp>

namespace replicator {

class InputContext {
 public:
  InputContext(int replica, int replicas, std::uint64_t seed, std::shared_ptr<data::WorkerPool> pool)
      : replica_{replica}, replicas_{replicas}, seed_{seed}, pool_{std::move(pool)} {}

  int replica() const { return replica_; }
  int replicas() const { return replicas_; }
  std::uint64_t seed() const { return seed_; }
  // The threads of this process that decode.
  const std::shared_ptr<data::WorkerPool>& pool() const { return pool_; }

  // This replica's part of a batch over all replicas. Throws BuildError where the replicas do not divide it.
  std::int64_t replica_batch(std::int64_t global_batch) const {
    if (global_batch <= 0 || global_batch % replicas_ != 0)
      throw BuildError{"a batch of " + std::to_string(global_batch) + " over all replicas was asked for, but " + std::to_string(replicas_) +
                       " replicas do not divide it: use a multiple of " + std::to_string(replicas_)};
    return global_batch / replicas_;
  }

  // What `rp::data::shard` and its neighbours take.
  operator data::Shard() const { return {seed_, replica_, replicas_, -1, pool_}; }  // NOLINT: implicit on purpose

 private:
  int replica_;
  int replicas_;
  std::uint64_t seed_;
  std::shared_ptr<data::WorkerPool> pool_;
};

}  // namespace replicator
