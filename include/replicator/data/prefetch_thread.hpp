// SPDX-License-Identifier: Apache-2.0
// The code of prefetch.hpp: the thread that reads ahead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
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
  PrefetchThread(const PrefetchStage& stage, std::function<bool(std::size_t)> fill)
      : depth_{static_cast<std::size_t>(stage.depth)}, late_{stage.late_ms}, fill_{std::move(fill)} {}
  PrefetchThread(const PrefetchThread&) = delete;
  PrefetchThread& operator=(const PrefetchThread&) = delete;
  ~PrefetchThread() { stop(); }

  std::size_t oldest() {
    std::unique_lock lock{mutex_};
    if (!thread_.joinable()) {
      stop_ = false;
      producing_ = true;
      thread_ = std::thread{[this] { produce(); }};
    }
    changed_.wait(lock, [this] { return full_ > 0; });
    return oldest_;
  }
  void free_oldest() {
    {
      const std::lock_guard lock{mutex_};
      oldest_ = (oldest_ + 1) % depth_;
      --full_;
    }
    changed_.notify_all();
  }
  void stop() {
    if (thread_.joinable()) {
      {
        std::unique_lock lock{mutex_};
        stop_ = true;
        changed_.notify_all();
        replicator::detail::DeadlineWait{{.late = late_}}.wait(
            changed_, lock, [this] { return !producing_; }, [] { std::fputs("replicator: a prefetch() that ends or seeks waits until its source has read the current element\n", stderr); });
      }
      thread_.join();
    }
    oldest_ = full_ = 0;
  }

 private:
  void produce() {
    fill_places();
    {
      const std::lock_guard lock{mutex_};
      producing_ = false;
    }
    changed_.notify_all();
  }
  void fill_places() {
    for (bool going = true; going;) {
      std::size_t place;
      {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [this] { return stop_ || full_ < depth_; });
        if (stop_) return;
        place = (oldest_ + full_) % depth_;
      }
      going = fill_(place);
      {
        const std::lock_guard lock{mutex_};
        ++full_;
      }
      changed_.notify_all();
    }
  }

  std::size_t depth_;
  std::chrono::milliseconds late_;
  std::function<bool(std::size_t)> fill_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t oldest_ = 0, full_ = 0;  // the full places begin at the oldest one
  bool stop_ = false;
  bool producing_ = false;
  std::thread thread_;
};

template <class>
std::shared_ptr<PrefetchThread> make_prefetch_thread(const PrefetchStage& stage, std::function<bool(std::size_t place)> fill) {
  return std::make_shared<PrefetchThread>(stage, std::move(fill));
}
template <class>
std::size_t oldest_place(PrefetchThread& thread) {
  return thread.oldest();
}
template <class>
void free_oldest_place(PrefetchThread& thread) {
  thread.free_oldest();
}
template <class>
void stop(PrefetchThread& thread) {
  thread.stop();
}

}  // namespace replicator::data::detail
