// SPDX-License-Identifier: Apache-2.0
// Which part of the data one replica reads.
#pragma once

#include <cstdint>
#include <memory>
#include <replicator/data/worker_pool.hpp>

namespace replicator::data {

struct Shard {
  std::uint64_t seed = 0;  // of shuffling and augmentation
  int replica = 0;         // in [0, replicas)
  int replicas = 1;
  std::int64_t epoch_limit = -1;  // passes over the data; -1 goes on for ever
  // Where decoding is done; without a pool, in the thread that reads.
  std::shared_ptr<WorkerPool> pool = nullptr;
};

// The parts of a finite source when nothing is left over: how many elements this replica reads, and the most that any does.
// -1: without end.
struct Share {
  std::int64_t own = 0;
  std::int64_t most = 0;
};

}  // namespace replicator::data
