// SPDX-License-Identifier: Apache-2.0
// A thread pool for preparing input. One pool serves all pipelines of a process. It is passed along, never global.
// <replicator/replicator.hpp>, or worker_threads.hpp, brings the code.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace replicator::data {

namespace detail {
class WorkerThreads;
}

class WorkerPool {
 public:
  // Processes item `index` on worker `worker` in [0, threads()). Scratch memory may be kept per worker.
  using Work = std::function<void(std::int64_t index, int worker)>;

  // `threads` = 0 takes usable_cores() threads. They start with the first work.
  template <class = void>
  explicit WorkerPool(int threads = 0);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return size_; }

  // Runs work(0..count-1) on the pool's threads and returns when all is done. The calling thread only waits, so
  // pipelines never use more cores than the pool has. If work throws, rethrows the exception of the lowest index,
  // whatever the timing. Several threads may call this at once; work itself must not.
  template <class = void>
  void for_each(std::int64_t count, const Work& work);

 private:
  std::shared_ptr<detail::WorkerThreads> threads_;
  int size_;
};

// Like WorkerPool::for_each; without a pool, in the calling thread.
inline void for_each_index(WorkerPool* pool, std::int64_t count, const WorkerPool::Work& work) {
  if (pool) return pool->for_each(count, work);
  for (std::int64_t index = 0; index < count; ++index) work(index, 0);
}

}  // namespace replicator::data
