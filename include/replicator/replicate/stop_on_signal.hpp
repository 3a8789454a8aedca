// SPDX-License-Identifier: Apache-2.0
// StopOnSignal: lets a program end cleanly on Ctrl-C and SIGTERM. The running step is finished first, so the program
// can write a checkpoint.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>

namespace replicator {

// While it lives, the first signal only sets a flag. All processes of the job finish the running step, whichever of
// them received the signal. Then Step::steps() ends and Replicator::stop_signal() returns the signal. The program does
// the rest:
//
//   const rp::StopOnSignal stop;
//   for (auto [loss] : train.steps(10000)) ...
//   repl.save_checkpoint();
//   if (const int signal = repl.stop_signal()) return std::cerr << "stopped by " << rp::signal_name(signal) << '\n', 128 + signal;
//
// - A second signal ends the process at once, by the default action.
// - Signals that the process ignores stay ignored, such as SIGINT behind a shell's `&`.
// - The destructor restores the earlier handlers. Two objects must be destroyed in reverse order.
// - Signal handlers belong to the process, so use this in main(). A library that receives a Replicator leaves it to the
//   program.
class StopOnSignal {
 public:
  // Throws BuildError for a signal that cannot be handled.
  explicit StopOnSignal(std::initializer_list<int> signals = {SIGINT, SIGTERM}) {
    if (living_.fetch_add(1) == 0) received_.store(0);
    for (const int signal : signals) replace(signal);
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal() { restore(); }

  // The first signal that this process received; 0 if none. For the decision of all processes see
  // Replicator::stop_signal().
  static int received() { return received_.load(); }

 private:
  struct Replaced {
    int signal;
    struct sigaction before;
  };

  void replace(int signal) {
    struct sigaction action {};
    action.sa_handler = &StopOnSignal::handle;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    Replaced replaced{signal, {}};
    if (::sigaction(signal, nullptr, &replaced.before) == 0 && replaced.before.sa_handler == SIG_IGN) return;
    if (::sigaction(signal, &action, nullptr) != 0) {
      const std::string reason = std::strerror(errno);
      restore();
      throw BuildError{"StopOnSignal(" + std::to_string(signal) + "): " + reason + ": choose a signal that a program may handle, as SIGINT"};
    }
    replaced_.push_back(replaced);
  }
  void restore() {
    for (; !replaced_.empty(); replaced_.pop_back()) ::sigaction(replaced_.back().signal, &replaced_.back().before, nullptr);
    if (living_.fetch_sub(1) == 1) received_.store(0);
  }

  // Async-signal-safe: it may interrupt anything.
  static void handle(int signal) {
    const int before = errno;
    int none = 0;
    if (received_.compare_exchange_strong(none, signal)) {
      constexpr char sentence[] = "\nreplicator: asked to stop: the step at work is finished first; a second signal ends the program at once\n";
      static_cast<void>(!::write(STDERR_FILENO, sentence, sizeof sentence - 1));
    } else {
      ::signal(signal, SIG_DFL);
      ::raise(signal);
    }
    errno = before;
  }

  static inline constinit std::atomic<int> received_{0};
  static inline constinit std::atomic<int> living_{0};
  std::vector<Replaced> replaced_;  // in order
};

// "SIGINT"
inline std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string{"SIG"} + name : "signal " + std::to_string(signal);
}

}  // namespace replicator
