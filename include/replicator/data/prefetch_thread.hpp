// SPDX-License-Identifier: Apache-2.0
// The code of prefetch.hpp: the thread that reads ahead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/data/prefetch.hpp>
#include <thread>
#include <utility>

namespace replicator::data::detail {

class PrefetchThread {
 public:
  PrefetchThread(const PrefetchStage& stage, std::function<std::unique_ptr<Prefetch>()> read)
      : depth_{static_cast<std::size_t>(stage.depth)}, late_{stage.late_ms}, read_{std::move(read)} {}
  PrefetchThread(const PrefetchThread&) = delete;
  PrefetchThread& operator=(const PrefetchThread&) = delete;
  ~PrefetchThread() { stop(); }

  std::unique_ptr<Prefetch> take_oldest() {
    std::unique_lock lock{mutex_};
    if (!thread_.joinable()) {
      stop_ = false;
      reading_ = true;
      thread_ = std::thread{[this] { run(); }};
    }
    changed_.wait(lock, [this] { return !ready_.empty(); });
    auto result = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return result;
  }
  void stop() {
    if (thread_.joinable()) {
      {
        std::unique_lock lock{mutex_};
        stop_ = true;
        changed_.notify_all();
        replicator::detail::DeadlineWait{{.late = late_}}.wait(
            changed_, lock, [this] { return !reading_; }, [] { std::fputs("replicator: a prefetch() that ends or seeks waits until its source has read the current element\n", stderr); });
      }
      thread_.join();
    }
    ready_.clear();
  }

 private:
  void run() {
    read_ahead();
    {
      const std::lock_guard lock{mutex_};
      reading_ = false;
    }
    changed_.notify_all();
  }
  void read_ahead() {
    for (bool going = true; going;) {
      {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [this] { return stop_ || ready_.size() < depth_; });
        if (stop_) return;
      }
      auto next = read_();
      going = next->element;
      {
        const std::lock_guard lock{mutex_};
        ready_.push_back(std::move(next));
      }
      changed_.notify_all();
    }
  }

  std::size_t depth_;
  std::chrono::milliseconds late_;
  std::function<std::unique_ptr<Prefetch>()> read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Prefetch>> ready_;
  bool stop_ = false;
  bool reading_ = false;
  std::thread thread_;
};

template <class>
std::shared_ptr<PrefetchThread> make_prefetch_thread(const PrefetchStage& stage, std::function<std::unique_ptr<Prefetch>()> read) {
  return std::make_shared<PrefetchThread>(stage, std::move(read));
}
template <class>
std::unique_ptr<Prefetch> take_oldest(PrefetchThread& thread) {
  return thread.take_oldest();
}
template <class>
void stop(PrefetchThread& thread) {
  thread.stop();
}

}  // namespace replicator::data::detail
