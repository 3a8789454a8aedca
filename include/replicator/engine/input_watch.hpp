// SPDX-License-Identifier: Apache-2.0
// InputWatch: knows for which input a process waits, and warns on stderr about one that takes long. It only warns: the
// input is the program's own code, so nothing else can end the wait.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/runtime/flight_record.hpp>
#include <replicator/runtime/see/quantity_text.hpp>

namespace replicator::detail {

class InputWatch {
 public:
  using Tell = std::function<void(const std::string&)>;

  // Warns once about each read that takes longer than `late`; the warning comes after at most twice that time. 0:
  // never. Only one thread may read at a time.
  explicit InputWatch(
      std::chrono::milliseconds late, Tell tell = [](const std::string& line) { std::fputs(line.c_str(), stderr); })
      : late_{late}, tell_{std::move(tell)} {
    if (late.count() > 0) thread_ = thread_without_signals([this] { watch(); });
  }
  InputWatch(const InputWatch&) = delete;
  InputWatch& operator=(const InputWatch&) = delete;
  ~InputWatch() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock{mutex_};
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Calls read(), which reads element number `element` of `replica`.
  template <class Read>
  auto during(int replica, std::uint64_t element, Read&& read) {
    replica_.store(replica, std::memory_order_relaxed);
    element_.store(element, std::memory_order_relaxed);
    since_.store(coarse_clock(), std::memory_order_relaxed);
    const Reading reading{reads_};
    return read();
  }
  // Calls call(), which calls the program's input_fn.
  template <class Call>
  auto during_input_fn(Call&& call) {
    return during(-1, 0, call);
  }

  // A read that goes on. Any thread may ask.
  struct Awaited {
    std::int64_t since = 0;  // as in FlightRecord
    std::string what;
  };
  std::optional<Awaited> awaited() const {
    const auto now = reads_.load(std::memory_order_acquire);
    if (now % 2 == 0) return {};
    Awaited result{since_.load(std::memory_order_relaxed), what_text()};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (reads_.load(std::memory_order_relaxed) != now) return {};
    return result;
  }
  static std::string element_text(int replica, std::uint64_t element) {
    return "element " + std::to_string(element) + " of the input of replica " + std::to_string(replica);
  }

 private:
  // What is read. Valid during a read.
  std::string what_text() const {
    const int replica = replica_.load(std::memory_order_relaxed);
    return replica < 0 ? "input_fn" : element_text(replica, element_.load(std::memory_order_relaxed));
  }
  // The count is odd during a read.
  struct Reading {
    explicit Reading(std::atomic<std::uint64_t>& reads) : count{reads} { count.fetch_add(1, std::memory_order_release); }
    ~Reading() { count.fetch_add(1, std::memory_order_release); }
    std::atomic<std::uint64_t>& count;
  };
  void watch() {
    std::uint64_t seen = 0, told = 0;
    std::unique_lock lock{mutex_};
    while (!changed_.wait_for(lock, late_, [this] { return ends_; })) {
      const auto now = reads_.load(std::memory_order_acquire);
      if (now % 2 == 1 && now == seen && now != told) {
        const int replica = replica_.load(std::memory_order_relaxed);
        tell_("replicator: " +
              (replica < 0 ? "input_fn has not returned"
                           : "the input of replica " + std::to_string(replica) + " has not given element " + std::to_string(element_.load(std::memory_order_relaxed))) +
              " for more than " + detail::seconds_text(0.001 * static_cast<double>(late_.count())) + "; the step waits for it\n");
        told = now;
      }
      seen = now;
    }
  }

  std::chrono::milliseconds late_;
  Tell tell_;
  std::atomic<std::uint64_t> reads_{0}, element_{0};
  std::atomic<std::int64_t> since_{0};
  std::atomic<int> replica_{0};  // negative: input_fn itself is called
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace replicator::detail
