// SPDX-License-Identifier: Apache-2.0
// Starts threads. Those that run no code of the program take no signals.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <replicator/core/error.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace replicator::detail {

// While it lives, the calling thread takes no signal. Threads that it starts inherit that.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Starts a thread that runs `work`. Throws DeviceError where the system gives no more threads.
template <class Work>
std::thread start_thread(Work work) try {
  return std::thread{std::move(work)};
} catch (const std::system_error& error) {
  throw DeviceError{std::string{"the system gives this process no thread ("} + error.code().message() +
                    "): raise its limits, for instance by `ulimit -u unlimited` or `ulimit -v unlimited`"};
}

// The same, for a thread that runs no signal handler.
template <class Work>
std::thread thread_without_signals(Work work) {
  const detail::SignalsBlocked blocked;
  return start_thread(std::move(work));
}

}  // namespace replicator::detail
