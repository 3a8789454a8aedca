// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <signal.h>
#include <catch2/catch.hpp>

#include <replicator/devices/thread_without_signals.hpp>
#include <stdexcept>

namespace test_thread_without_signals {

using replicator::detail::thread_without_signals;

namespace {

bool blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

// Cannot be brought into a thread.
struct Stubborn {
  Stubborn() = default;
  Stubborn(const Stubborn&) { throw std::runtime_error{"no"}; }
  void operator()() const {}
};

}  // namespace

TEST_CASE("a thread of ours runs no handler of signals, and whoever starts it still does") {
  bool inside = false;
  thread_without_signals([&] { inside = blocked(SIGTERM) && blocked(SIGINT); }).join();
  CHECK(inside);
  CHECK_FALSE(blocked(SIGTERM));
}

TEST_CASE("a thread that cannot be started leaves the caller's signals as they were") {
  CHECK_THROWS_AS(thread_without_signals(Stubborn{}), std::runtime_error);
  CHECK_FALSE(blocked(SIGTERM));
}

}  // namespace test_thread_without_signals
