// SPDX-License-Identifier: Apache-2.0
// Threads of ours leave the program's signals to the program's threads.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace replicator {

// A thread that runs `work`, and no signal handler.
template <class Work>
std::thread thread_without_signals(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  std::thread result{std::move(work)};
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

}  // namespace replicator
