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
    if (global_batch <= 0)
      throw BuildError{"a batch of " + std::to_string(global_batch) + " over all replicas was asked for: it must be positive, a multiple of the " +
                       std::to_string(replicas_) + " replicas"};
    if (global_batch % replicas_ != 0)
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

// What an input function knows that is called once for a host, and whose elements are dealt to the host's replicas in turn: for
// sources that cannot be split. Element i of the host goes to replica first_replica() + i % local_replicas(); the elements behind the
// last whole round of a finite source are not used.
// The bits then depend on which replicas share a host, for those share a reader: they are the same on any devices of the same hosts,
// and over other numbers of hosts only where the function gives each replica the same elements whoever its neighbours are.
class HostContext {
 public:
  HostContext(int process, int processes, int first_replica, int end_replica, const InputContext& first)
      : process_{process}, processes_{processes}, first_replica_{first_replica}, end_replica_{end_replica}, first_{first} {}

  int process() const { return process_; }
  int processes() const { return processes_; }
  int first_replica() const { return first_replica_; }
  int local_replicas() const { return end_replica_ - first_replica_; }
  int replicas() const { return first_.replicas(); }  // of all hosts
  std::uint64_t seed() const { return first_.seed(); }
  const std::shared_ptr<data::WorkerPool>& pool() const { return first_.pool(); }
  // One replica's part of a batch over all replicas: what an element to be dealt holds. Throws BuildError as InputContext does.
  std::int64_t replica_batch(std::int64_t global_batch) const { return first_.replica_batch(global_batch); }

 private:
  int process_;
  int processes_;
  int first_replica_;
  int end_replica_;
  InputContext first_;
};

}  // namespace replicator
