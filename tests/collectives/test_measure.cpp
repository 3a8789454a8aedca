// SPDX-License-Identifier: Apache-2.0
// Measuring links: the pairing of processes, plausible figures that are the same on every process, and missing
// partners.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <replicator/collectives/connect/measure_topology.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../transport/jobs.hpp"
#include "ranks.hpp"

namespace test_measure {

namespace rc = replicator::detail::collectives;
namespace rt = replicator::detail::transport;
using namespace std::chrono_literals;
using replicator::Groups;
using replicator::test::describe;

namespace {

const rc::MeasureOptions quick{50ms, 10000ms};

bool sensible(const rc::Link& link) {
  return link.microseconds > 0 && link.microseconds < 1e6 && link.bytes_per_microsecond > 0 && link.bytes_per_microsecond < 1e7;
}

// All figures, to be compared.
std::string text_of(const rc::MeasuredJob& measured) {
  std::string text;
  const auto add = [&](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%a ", value);
    text += digits;
  };
  for (const auto& row : measured.between)
    for (const auto& link : row) add(link.microseconds), add(link.bytes_per_microsecond);
  for (const auto& link : measured.inside) add(link.microseconds), add(link.bytes_per_microsecond);
  for (const double reduced : measured.reduced) add(reduced);
  return text;
}

}  // namespace

TEST_CASE("in a tournament everybody meets everybody once, all at the same time") {
  for (int ranks = 2; ranks <= 20; ranks += 2) {
    const auto rounds = rc::tournament(ranks);
    CHECK(static_cast<int>(rounds.size()) == ranks - 1);
    std::set<std::pair<int, int>> met;
    for (const auto& round : rounds) {
      REQUIRE(round.fault(ranks) == "");
      for (int group = 0; group < round.count(); ++group) {
        REQUIRE(round.size(group) == 2);
        CHECK(met.insert({round.members(group)[0], round.members(group)[1]}).second);
      }
    }
  }
  CHECK_THROWS_WITH(rc::tournament(3), "a tournament of 3 ranks was asked for: an even number can be paired");
}

TEST_CASE("ranks in one process find a latency and a bandwidth for each partner, with messages and with loads") {
  constexpr int ranks = 4;
  const auto rounds = rc::tournament(ranks);
  const auto measure = [&](auto make) {
    rt::InProcessGroup group{ranks};
    std::vector<std::vector<rc::Link>> links(ranks);
    replicator::test::run_ranks(group, [&](int rank) {
      const auto communicator = make(group, rank);
      links[static_cast<std::size_t>(rank)] = rc::measure_links(*communicator, rounds, 10000, ranks, quick);
    });
    for (const auto& mine : links) {
      REQUIRE(mine.size() == rounds.size());
      for (const auto& link : mine) CHECK(sensible(link));
    }
  };
  measure([&](rt::InProcessGroup& group, int rank) { return rc::make_communicator(rt::InProcess{group, rank}, {ranks, ranks}); });
  measure([&](rt::InProcessGroup& group, int rank) { return rc::make_communicator(replicator::test::MessagesOnly{group, rank}, {ranks, ranks}); });
}

TEST_CASE("with a rank that only makes their number even, few bytes are swapped") {
  rt::InProcessGroup group{2};
  std::vector<std::vector<rc::Link>> links(2);
  replicator::test::run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(rt::InProcess{group, rank}, {2, 2});
    links[static_cast<std::size_t>(rank)] = rc::measure_links(*communicator, rc::tournament(2), 10000, 1, quick);
  });
  for (const auto& mine : links) {
    REQUIRE(mine.size() == 1);
    CHECK(mine[0].bytes_per_microsecond == rc::Link{}.bytes_per_microsecond);
  }
}

TEST_CASE("a partner that does not come is named at the deadline") {
  rt::InProcessGroup group{2};
  std::string text;
  {
    std::atomic<bool> measured{false};
    std::vector<std::jthread> threads;
    threads.emplace_back([&] {
      const auto communicator = rc::make_communicator(rt::InProcess{group, 0}, {2, 2});
      try {
        rc::measure_links(*communicator, rc::tournament(2), 10000, 2, {50ms, 200ms});
      } catch (const replicator::CommunicationError& error) {
        text = error.what();
      }
      measured = true;
    });
    threads.emplace_back([&] {  // prepares what the other one prepares, but never starts it
      const auto communicator = rc::make_communicator(rt::InProcess{group, 1}, {2, 2});
      const rc::detail::Swap few{*communicator, rc::tournament(2)[0], 64, 0, 200ms}, many{*communicator, rc::tournament(2)[0], 1 << 20, 1, 200ms};
      while (!measured) std::this_thread::sleep_for(1ms);
    });
  }
  CHECK_THAT(text, Catch::Contains("the measurement of links, with rank 1"));
}

TEST_CASE("every process of a job has the same figures, of every pair, of even and odd numbers of processes") {
  for (const int processes : {2, 3}) {
    const auto results = replicator::test::run_job(processes, [&](rt::Job& job) -> std::string {
      const auto measured = rc::measure_job(job, "shared_memory", 2, quick);
      for (int p = 0; p < processes; ++p)
        for (int q = 0; q < processes; ++q)
          if (p != q && !sensible(measured.between[static_cast<std::size_t>(p)][static_cast<std::size_t>(q)])) return "no figures";
      const auto topology = rc::topology_of(measured, 2);
      topology.require();
      if (topology.text() != "2x" + std::to_string(processes) || topology.reduced_bytes_per_microsecond <= 0) return "no topology";
      return text_of(measured);
    });
    INFO(describe(results));
    for (const auto& result : results) CHECK(result.exit_code == 0);
    CHECK(results[0].text.size() > 20);
    for (const auto& result : results) CHECK(result.text == results[0].text);
  }
}

TEST_CASE("a process alone measures between its devices, and nothing where it has one") {
  rt::Job job;
  const auto measured = rc::measure_job(job, "auto", 3, quick);
  REQUIRE(measured.inside.size() == 1);
  CHECK(sensible(measured.inside[0]));
  CHECK(rc::topology_of(measured, 3).text() == "3");
  CHECK(rc::topology_of(rc::measure_job(job, "auto", 1, quick), 1).dimensions.empty());
}

TEST_CASE("the topology of a job has the medians of its pairs") {
  rc::MeasuredJob measured;
  measured.between.assign(3, std::vector<rc::Link>(3));
  const auto pair = [&](std::size_t p, std::size_t q, rc::Link link) { measured.between[p][q] = measured.between[q][p] = link; };
  pair(0, 1, {10, 1000}), pair(0, 2, {12, 900}), pair(1, 2, {90, 10});
  measured.inside = {{1, 5000}, {2, 6000}, {3, 4000}};
  measured.reduced = {7000, 9000, 8000};
  const auto topology = rc::topology_of(measured, 2);
  REQUIRE(topology.dimensions.size() == 2);
  CHECK(topology.dimensions[0].size == 2);
  CHECK(topology.dimensions[0].link.microseconds == 2);
  CHECK(topology.dimensions[0].link.bytes_per_microsecond == 5000);
  CHECK(topology.dimensions[1].size == 3);
  CHECK(topology.dimensions[1].link.microseconds == 12);
  CHECK(topology.dimensions[1].link.bytes_per_microsecond == 900);
  CHECK(topology.reduced_bytes_per_microsecond == 8000);
}

}  // namespace test_measure
