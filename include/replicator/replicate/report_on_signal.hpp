// SPDX-License-Identifier: Apache-2.0
// Asking a running program where it stands: `kill -USR1 <pid>`.
#pragma once

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/devices/thread_without_signals.hpp>

namespace replicator {

namespace detail {

// A signal is for the whole process: so is this. Whoever can report enters; the signal's handler only wakes a thread.
class ReportSignal {
 public:
  static ReportSignal& instance() {
    static ReportSignal& only = *new ReportSignal;  // never destroyed: its thread may be at work while the program ends
    return only;
  }

  // `report` is called for every signal, as long as the entry lives, which must not end in `report` itself.
  class Entry {
   public:
    Entry(ReportSignal& owner, std::function<void()> report) : owner_{owner} {
      const std::lock_guard lock{owner_.mutex_};
      number_ = owner_.next_++;
      owner_.reports_.emplace(number_, std::move(report));
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      const std::lock_guard lock{owner_.mutex_};
      owner_.reports_.erase(number_);
    }

   private:
    ReportSignal& owner_;
    std::uint64_t number_ = 0;
  };

  void install(int signal) {
    const std::lock_guard lock{mutex_};
    start();
    struct sigaction action {};
    action.sa_handler = [](int) {
      const int before = errno;
      const std::uint64_t one = 1;
      static_cast<void>(!::write(descriptor.load(std::memory_order_relaxed), &one, sizeof one));
      errno = before;
    };
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    if (::sigaction(signal, &action, nullptr) != 0)
      throw BuildError{"report_on_signal(" + std::to_string(signal) + "): " + std::strerror(errno) +
                       ": choose a signal that a program may handle, as SIGUSR1"};
  }

 private:
  ReportSignal() = default;

  void start() {
    if (descriptor.load() >= 0) return;
    const int made = ::eventfd(0, EFD_CLOEXEC);
    if (made < 0) throw BuildError{std::string{"report_on_signal: no eventfd: "} + std::strerror(errno)};
    descriptor.store(made);
    thread_without_signals([this] { serve(); }).detach();
  }
  void serve() {
    for (std::uint64_t count = 0;;) {
      if (::read(descriptor.load(), &count, sizeof count) != sizeof count) continue;
      const std::lock_guard lock{mutex_};
      for (const auto& [number, report] : reports_) report();
    }
  }

  static inline constinit std::atomic<int> descriptor{-1};  // all that the handler touches
  std::mutex mutex_;
  std::map<std::uint64_t, std::function<void()>> reports_;
  std::uint64_t next_ = 0;
};

}  // namespace detail

// From now on, and until the program ends, this signal makes every Replicator of the process write to stderr where each of its
// devices stands: the step, the node or collective with its line, since when, and what it waits for. Nothing else changes: the program
// runs on. The handler does nothing but wake a thread, so the signal may come at any moment. May be called before or after
// a Replicator is made, for several signals. Throws BuildError for a signal that cannot be handled.
inline void report_on_signal(int signal) { detail::ReportSignal::instance().install(signal); }

}  // namespace replicator
