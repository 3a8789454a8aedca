// SPDX-License-Identifier: Apache-2.0
// The part of the data that one replica reads.
#pragma once

#include <cstdint>
#include <memory>
#include <replicator/data/worker_pool.hpp>

namespace replicator::data {

struct Shard {
  std::uint64_t seed = 0;  // of shuffling and augmentation
  int replica = 0;         // in [0, replicas)
  int replicas = 1;
  std::int64_t epoch_limit = -1;  // passes over the data; -1: endless
  // The threads that decode. Without a pool, the reading thread decodes.
  std::shared_ptr<WorkerPool> pool = nullptr;
};

// How a finite source is split if nothing is left over: the elements of this replica, and the maximum over all
// replicas. -1: endless.
struct Share {
  std::int64_t own = 0;
  std::int64_t most = 0;
};

}  // namespace replicator::data
