// SPDX-License-Identifier: Apache-2.0
// A thread pool for preparing input. One pool serves all pipelines of a process. It is passed along, never global.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <replicator/devices/usable_cores.hpp>
#include <thread>
#include <vector>

namespace replicator::data {

class WorkerPool {
 public:
  // Processes item `index` on worker `worker` in [0, threads()). Scratch memory may be kept per worker.
  using Work = std::function<void(std::int64_t index, int worker)>;

  // `threads` = 0 takes usable_cores() threads. They start with the first work.
  explicit WorkerPool(int threads = 0) : size_{threads > 0 ? threads : replicator::detail::usable_cores()} {}
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int threads() const { return size_; }

  // Runs work(0..count-1) on the pool's threads and returns when all is done. The calling thread only waits, so
  // pipelines never use more cores than the pool has. If work throws, rethrows the exception of the lowest index,
  // whatever the timing. Several threads may call this at once; work itself must not.
  void for_each(std::int64_t count, const Work& work) {
    if (count <= 0) return;
    Job job{count, work};
    std::unique_lock lock{mutex_};
    while (threads_.size() < static_cast<std::size_t>(size_))
      threads_.emplace_back([this, worker = static_cast<int>(threads_.size())] { serve(worker); });
    jobs_.push_back(&job);
    wake_.notify_all();
    done_.wait(lock, [&] { return job.finished == job.count; });
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  struct Job {
    std::int64_t count;
    const Work& work;
    std::int64_t next = 0;
    std::int64_t finished = 0;
    std::int64_t failed = 0;  // the lowest index that threw, if `error` is set
    std::exception_ptr error = nullptr;
  };

  void serve(int worker) {
    std::unique_lock lock{mutex_};
    while (true) {
      wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      Job& job = *jobs_.front();
      const std::int64_t index = job.next++;
      if (job.next == job.count) jobs_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        job.work(index, worker);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && (!job.error || index < job.failed)) {
        job.error = error;
        job.failed = index;
      }
      if (++job.finished == job.count) done_.notify_all();
    }
  }

  int size_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Job*> jobs_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

// Like WorkerPool::for_each; without a pool, in the calling thread.
inline void for_each_index(WorkerPool* pool, std::int64_t count, const WorkerPool::Work& work) {
  if (pool) return pool->for_each(count, work);
  for (std::int64_t index = 0; index < count; ++index) work(index, 0);
}

}  // namespace replicator::data
