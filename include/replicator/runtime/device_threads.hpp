// SPDX-License-Identifier: Apache-2.0
// DeviceThreads: one thread for each device of this process. The calling thread serves device 0.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <replicator/devices/thread_without_signals.hpp>
#include <thread>
#include <vector>

namespace replicator::detail {

class DeviceThreads {
 public:
  // Throws DeviceError where the system gives no more threads.
  explicit DeviceThreads(int devices) {
    try {
      for (int device = 1; device < devices; ++device) threads_.push_back(start_thread([this, device] { serve(device); }));
    } catch (...) {
      end();
      throw;
    }
  }
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;
  ~DeviceThreads() { end(); }

  int devices() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(device) in every device's thread at the same time, and waits for all. The thread whose work throws first
  // calls `on_error` at once, so that the others can be released. When all threads are back, that first error is
  // thrown.
  void run(const std::function<void(int)>& work, const std::function<void(const std::exception_ptr&)>& on_error) {
    first_error_ = nullptr;
    {
      const std::lock_guard lock{mutex_};
      work_ = &work;
      on_error_ = &on_error;
      running_ = static_cast<int>(threads_.size());
      ++generation_;
    }
    wake_.notify_all();
    attempt(0);
    std::unique_lock lock{mutex_};
    done_.wait(lock, [&] { return running_ == 0; });
    if (first_error_) std::rethrow_exception(first_error_);
  }

 private:
  void end() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  void attempt(int device) {
    try {
      (*work_)(device);
    } catch (...) {
      {
        const std::lock_guard lock{mutex_};
        if (first_error_) return;
        first_error_ = std::current_exception();
      }
      (*on_error_)(std::current_exception());
    }
  }
  void serve(int device) {
    std::uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock{mutex_};
        wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
        if (stop_) return;
        seen = generation_;
      }
      attempt(device);
      {
        const std::lock_guard lock{mutex_};
        --running_;
      }
      done_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int)>* work_ = nullptr;
  const std::function<void(const std::exception_ptr&)>* on_error_ = nullptr;
  std::exception_ptr first_error_;
  std::uint64_t generation_ = 0;
  int running_ = 0;
  bool stop_ = false;
};

}  // namespace replicator::detail
