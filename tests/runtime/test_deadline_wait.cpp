// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include <replicator/core/deadline_wait.hpp>

namespace test_deadline_wait {

using namespace replicator;
using namespace replicator::detail;
using namespace std::chrono_literals;

namespace {

using Time = DeadlineWait::Time;
const Time begin{100h};

// What happens in a wait on a clock that nobody winds: "late at 3, there at 5". What is waited for comes `comes` seconds after the beginning.
std::string story(const WaitLimits& limits, std::chrono::seconds comes) {
  std::string text;
  Time now = begin;
  const auto seconds = [&] { return std::to_string((now - begin) / 1s); };
  DeadlineWait wait{limits, begin};
  const auto sleep = [&](Time until) {
    now = std::min(until, begin + comes);
    return begin + comes <= until;
  };
  const bool there = wait.wait(sleep, [&] { text += "late at " + seconds() + ", "; });
  return text + (there ? "there at " : "failed at ") + seconds();
}

}  // namespace

TEST_CASE("who comes in time is not spoken of") { CHECK(story({.deadline = 20s, .late = 10s}, 9s) == "there at 9"); }

TEST_CASE("who is late is spoken of once, however long the wait goes on") {
  CHECK(story({.deadline = 20s, .late = 10s}, 19s) == "late at 10, there at 19");
}

TEST_CASE("at the deadline the wait fails") { CHECK(story({.deadline = 20s, .late = 10s}, 21s) == "late at 10, failed at 20"); }

TEST_CASE("where the deadline comes first, or with it, nothing is said before") {
  CHECK(story({.deadline = 10s, .late = 20s}, 30s) == "failed at 10");
  CHECK(story({.deadline = 10s, .late = 10s}, 30s) == "failed at 10");
}

TEST_CASE("zero means none") {
  CHECK(story({.deadline = 0s, .late = 10s}, 1000000s) == "late at 10, there at 1000000");
  CHECK(story({.deadline = 20s, .late = 0s}, 21s) == "failed at 20");
  CHECK(story({}, 1000000s) == "there at 1000000");
  CHECK(DeadlineWait{{}, begin}.next() == Time::max());
  CHECK(DeadlineWait{{}, begin}.deadline() == Time::max());
}

TEST_CASE("who looks by itself finds the same: late once, over from the deadline on") {
  DeadlineWait wait{{.deadline = 20s, .late = 10s}, begin};
  CHECK(wait.next() == begin + 10s);
  CHECK_FALSE(wait.becomes_late(begin + 9s));
  CHECK(wait.becomes_late(begin + 11s));
  CHECK_FALSE(wait.becomes_late(begin + 12s));
  CHECK(wait.next() == begin + 20s);
  CHECK_FALSE(wait.is_over(begin + 19s));
  CHECK(wait.is_over(begin + 20s));
}

TEST_CASE("a wait that is restarted has its whole time again, and speaks only where it has not") {
  DeadlineWait wait{{.deadline = 20s, .late = 10s}, begin};
  wait.restart(begin + 5s);
  CHECK(wait.next() == begin + 15s);
  CHECK(wait.deadline() == begin + 25s);
  CHECK(wait.becomes_late(begin + 15s));
  wait.restart(begin + 24s);
  CHECK(wait.next() == begin + 44s);
  CHECK_FALSE(wait.becomes_late(begin + 40s));
}

TEST_CASE("on a condition variable the lock is held wherever the caller's code runs") {
  std::mutex mutex;
  std::condition_variable changed;
  bool there = false;
  std::unique_lock lock{mutex};
  int told = 0;
  std::thread other;
  DeadlineWait wait{{.deadline = 60s, .late = 1ms}};
  CHECK(wait.wait(
      changed, lock, [&] { return there; }, [&] {
    ++told;
    CHECK(lock.owns_lock());
    other = std::thread{[&] {
      {
        const std::lock_guard other_lock{mutex};
        there = true;
      }
      changed.notify_all();
    }}; }));
  CHECK(told == 1);
  CHECK(lock.owns_lock());
  lock.unlock();
  other.join();
  lock.lock();
  there = false;
  CHECK_FALSE(DeadlineWait{{.deadline = 1ms}}.wait(
      changed, lock, [&] { return there; }, [] {}));
}

}  // namespace test_deadline_wait
