// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/runtime/device_threads.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/processes.hpp"

// Defined where a sanitizer is linked.
extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
}

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

TEST_CASE("where the system gives no thread, an error says which limit to raise") {
  const auto results = replicator::test::run_processes(1, [](int) {
    rlimit space{};
    ::getrlimit(RLIMIT_AS, &space);
    space.rlim_cur = 1;
    ::setrlimit(RLIMIT_AS, &space);
    std::atomic<bool> end{false};
    std::vector<std::thread> threads;
    threads.reserve(64);
    std::string found = "no error";
    try {  // the first ones may get the stacks of threads that have ended
      while (threads.size() < 64) threads.push_back(thread_without_signals([&end] { end.wait(false); }));
    } catch (const replicator::DeviceError& error) {
      found = error.what();
    }
    end = true;
    end.notify_all();
    for (auto& thread : threads) thread.join();
    return found;
  });
  CHECK_THAT(results[0].text, Catch::Contains("the system gives this process no thread (Resource temporarily unavailable): raise its limits"));
}

TEST_CASE("where the system gives fewer threads than there are devices, an error says so and the others end") {
  if (&__asan_init != nullptr || &__tsan_init != nullptr) {
    WARN("skipped: a sanitizer needs more address space than the limit of this test");
    return;
  }
  const auto results = replicator::test::run_processes(1, [](int) -> std::string {
    std::ifstream pages{"/proc/self/statm"};
    rlim_t used = 0;
    pages >> used;
    rlimit space{};
    ::getrlimit(RLIMIT_AS, &space);
    space.rlim_cur = used * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (std::size_t{64} << 20);  // stacks of some threads
    ::setrlimit(RLIMIT_AS, &space);
    try {
      const replicator::detail::DeviceThreads threads{2000};
      return "no error";
    } catch (const replicator::DeviceError& error) {
      return error.what();
    }
  });
  CHECK(results[0].exit_code == 0);
  CHECK_THAT(results[0].text, Catch::Contains("the system gives this process no thread"));
}

}  // namespace test_thread_without_signals
