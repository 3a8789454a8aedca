// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <replicator/devices/usable_cores.hpp>
#include <replicator/transport/in_process.hpp>
#include <replicator/transport/shared_memory.hpp>
#include <replicator/transport/spin.hpp>
#include <string>
#include <thread>

#include "jobs.hpp"

namespace test_spin {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using transport::Clock;
using transport::Latency;
using transport::Spin;

namespace {

// Leaves the calling thread one of its cores, counted from 0.
void keep_one_core(int which = 0) {
  cpu_set_t cores = usable_core_set();
  int core = 0;
  for (; !CPU_ISSET(core, &cores) || which-- > 0; ++core) continue;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

}  // namespace

TEST_CASE("the cores that count are those that a thread may use, and more threads than that are a crowd") {
  const int all = usable_cores();
  CHECK(all >= 1);
  CHECK_FALSE(Spin{all}.crowded());
  CHECK(Spin{all + 1}.crowded());
  int cores = 0, inherited = 0;
  bool two_are_a_crowd = false;
  std::thread{[&] {
    keep_one_core();
    cores = usable_cores();
    two_are_a_crowd = Spin{2}.crowded();
    std::thread{[&] { inherited = usable_cores(); }}.join();
  }}.join();
  CHECK(cores == 1);
  CHECK(inherited == 1);
  CHECK(two_are_a_crowd);
  CHECK(usable_cores() == all);
}

TEST_CASE("a wait looks at least once, again while there is time, and no more once it has seen what it waits for") {
  for (const Spin& spin : {Spin{1}, Spin{1 << 20}, Spin{1 << 20, 1, Spin::Crowded::sleep}}) {
    int looks = 0;
    CHECK(spin([&] { return ++looks == 1; }, Clock::time_point::max()));
    CHECK(looks == 1);
    CHECK_FALSE(spin([&] { return ++looks < 0; }, Clock::now()));
    CHECK(looks == 2);
  }
  int looks = 0;
  CHECK_FALSE(Spin{1 << 20, 1, Spin::Crowded::sleep}([&] { return ++looks < 0; }, Clock::time_point::max()));
  CHECK(looks == 1);
}

TEST_CASE("two threads of a crowd pass a word to and fro on one core") {
  std::atomic<int> turn{0};
  constexpr int turns = 2000;
  const auto play = [&](int me) {
    keep_one_core();
    const Spin spin{2};
    for (int mine = me; mine < turns; mine += 2) {
      while (!spin([&] { return turn == mine; }, Clock::time_point::max())) continue;
      ++turn;
    }
  };
  std::thread one{[&] { play(0); }}, other{[&] { play(1); }};
  one.join();
  other.join();
  CHECK(turn == turns);
}

TEST_CASE("ranks have the latency of memory while there is a core for each") {
  transport::InProcessGroup few{1}, many{usable_cores() + 1};
  CHECK(transport::InProcess{few, 0}.latency() == Latency::memory);
  CHECK(transport::InProcess{many, 0}.latency() == Latency::crowded_memory);
}

namespace {

// That the ranks of two processes find, one in each; `pin` is done in each before.
template <class Pin>
void check_latency(Latency expected, Pin pin) {
  const auto results = run_job(2, [&](transport::Job& job) -> std::string {
    pin(job.rank());
    const auto endpoints = transport::SharedMemory::create(job, {0, 1});
    return endpoints.front()->latency() == expected ? "" : "process " + std::to_string(job.rank()) + " finds another latency";
  });
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.text.empty());
  }
}

}  // namespace

TEST_CASE("processes count the cores that they have together, and all say the same") {
  check_latency(Latency::crowded_memory, [](int) { keep_one_core(); });  // the same one
  if (usable_cores() < 2) {
    WARN("one core: it cannot be seen that two processes with a core each are no crowd");
    return;
  }
  check_latency(Latency::memory, [](int rank) {
    if (rank == 1) keep_one_core();
  });
  check_latency(Latency::memory, [](int rank) { keep_one_core(rank); });  // as launchers give them
}

}  // namespace test_spin
