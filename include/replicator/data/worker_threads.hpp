// SPDX-License-Identifier: Apache-2.0
// The code of worker_pool.hpp: the threads of a pool.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <replicator/data/worker_pool.hpp>
#include <replicator/devices/usable_cores.hpp>
#include <thread>
#include <vector>

namespace replicator::data {

namespace detail {

class WorkerThreads {
 public:
  explicit WorkerThreads(int size) : size_{static_cast<std::size_t>(size)} {}
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;
  ~WorkerThreads() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void for_each(std::int64_t count, const WorkerPool::Work& work) {
    if (count <= 0) return;
    Job job{count, work};
    std::unique_lock lock{mutex_};
    while (threads_.size() < size_) threads_.emplace_back([this, worker = static_cast<int>(threads_.size())] { serve(worker); });
    jobs_.push_back(&job);
    wake_.notify_all();
    done_.wait(lock, [&] { return job.finished == job.count; });
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  struct Job {
    std::int64_t count;
    const WorkerPool::Work& work;
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

  std::size_t size_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Job*> jobs_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace detail

template <class>
WorkerPool::WorkerPool(int threads) : size_{threads > 0 ? threads : replicator::detail::usable_cores()} {
  threads_ = std::make_shared<detail::WorkerThreads>(size_);
}

template <class>
void WorkerPool::for_each(std::int64_t count, const Work& work) {
  threads_->for_each(count, work);
}

}  // namespace replicator::data
