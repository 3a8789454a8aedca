// SPDX-License-Identifier: Apache-2.0
// The code of report_on_signal.hpp: the reports of a process, and the thread that writes them.
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
#include <replicator/replicate/report_on_signal.hpp>

namespace replicator {

namespace detail {

// The reports of this process. There is one object because signals belong to the whole process. Reporters register; the
// signal handler only wakes a thread, which calls them.
class ReportSignal {
 public:
  static ReportSignal& instance() {
    static ReportSignal& only = *new ReportSignal;  // never destroyed: its thread may still run while the program ends
    return only;
  }

  // `report` is called for every signal while the entry lives. **`report` must not destroy its own entry.**
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
    try {
      thread_without_signals([this] { serve(); }).detach();
    } catch (...) {
      descriptor.store(-1);
      ::close(made);
      throw;
    }
  }
  void serve() {
    for (std::uint64_t count = 0;;) {
      if (::read(descriptor.load(), &count, sizeof count) != sizeof count) continue;
      const std::lock_guard lock{mutex_};
      for (const auto& [number, report] : reports_) report();
    }
  }

  static inline constinit std::atomic<int> descriptor{-1};  // the handler uses nothing else
  std::mutex mutex_;
  std::map<std::uint64_t, std::function<void()>> reports_;
  std::uint64_t next_ = 0;
};

}  // namespace detail

template <class>
void report_on_signal(int signal) { detail::ReportSignal::instance().install(signal); }

}  // namespace replicator
