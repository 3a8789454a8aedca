// SPDX-License-Identifier: Apache-2.0
// InputContext and HostContext: the arguments of an input function, for one replica or for one host.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/data/shard.hpp>

namespace replicator {

namespace detail {
template <class = void>
[[noreturn]] void refuse_batch(std::int64_t global_batch, int replicas) {
  const std::string asked = "a batch of " + std::to_string(global_batch) + " over all replicas was asked for";
  if (global_batch <= 0) throw BuildError{asked + ": it must be positive, a multiple of the " + std::to_string(replicas) + " replicas"};
  throw BuildError{asked + ", but " + std::to_string(replicas) + " replicas do not divide it: use a multiple of " + std::to_string(replicas)};
}
}  // namespace detail

class InputContext {
 public:
  template <class = void>
  InputContext(int replica, int replicas, std::uint64_t seed, std::shared_ptr<data::WorkerPool> pool)
      : replica_{replica}, replicas_{replicas}, seed_{seed}, pool_{std::move(pool)} {}

  int replica() const {
    *tells_replicas_apart_ = true;
    return replica_;
  }
  int replicas() const { return replicas_; }
  std::uint64_t seed() const { return seed_; }
  // Says that all replicas are meant to read the same elements. Without this call, an input function that asks neither for
  // its replica nor for its shard gets a warning on stderr, if there are several replicas.
  void same_on_all_replicas() const { *tells_replicas_apart_ = true; }
  // The worker threads of this process, which decode input.
  const std::shared_ptr<data::WorkerPool>& pool() const { return pool_; }

  // This replica's part of a global batch. Throws BuildError unless the batch is a positive multiple of the number of
  // replicas.
  std::int64_t replica_batch(std::int64_t global_batch) const {
    if (global_batch <= 0 || global_batch % replicas_ != 0) detail::refuse_batch(global_batch, replicas_);
    return global_batch / replicas_;
  }

  // The argument of `rp::data::shard` and similar stages.
  operator data::Shard() const { return {seed_, replica(), replicas_, -1, pool_}; }  // NOLINT: implicit on purpose

  // Whether this context or a copy of it was asked for its replica, or a copy may still be. Otherwise all replicas read
  // the same elements.
  bool tells_replicas_apart() const { return *tells_replicas_apart_ || tells_replicas_apart_.use_count() > 1; }

 private:
  int replica_;
  int replicas_;
  std::uint64_t seed_;
  std::shared_ptr<data::WorkerPool> pool_;
  std::shared_ptr<std::atomic<bool>> tells_replicas_apart_ = std::make_shared<std::atomic<bool>>(false);  // copies share it
};

// For sources that cannot be split: the argument of an input function that is called once per host. Its elements are
// dealt to the host's replicas in turn: element i goes to replica first_replica() + i % local_replicas(). A finite
// source may end with an incomplete round, which is not used.
//
// **The bits then depend on which replicas share a host**, because they share a reader. They are the same on any
// devices of the same hosts. They are the same on other numbers of hosts only if the function gives each replica the
// same elements for any set of neighbours.
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
  // One replica's part of a global batch: the size of one element. Throws BuildError as InputContext::replica_batch
  // does.
  std::int64_t replica_batch(std::int64_t global_batch) const { return first_.replica_batch(global_batch); }

 private:
  int process_;
  int processes_;
  int first_replica_;
  int end_replica_;
  InputContext first_;
};

}  // namespace replicator
