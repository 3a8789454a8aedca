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

}  // namespace replicator::data
