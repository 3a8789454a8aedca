// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <replicator/transport/elastic_job.hpp>
#include <string>
#include <thread>
#include <vector>

#include "jobs.hpp"

namespace test_elastic_job {

using namespace replicator;
using namespace replicator::test;
using transport::ElasticJob;
using transport::Job;

namespace {

std::vector<ProcessResult> run_elastic(int count, const std::function<std::string(int, ElasticJob&)>& body) {
  auto all = environments(count);
  return run_processes(count, [&](int rank) {
    const auto environment = all[static_cast<std::size_t>(rank)];
    all.clear();  // process 0 alone keeps the listener
    ElasticJob job{environment, quick_options()};
    return body(rank, job);
  });
}

// Whoever was to be lost may be so before the others know that all were here.
void meet(Job& job) {
  try {
    job.barrier();
  } catch (const CommunicationError&) {
  }
}

// "rank of size" after each loss of the process that is meant to be lost; those of a round are lost at once.
std::string lose(int self, ElasticJob& elastic, const std::vector<std::vector<int>>& rounds) {
  std::string text;
  auto job = elastic.job();
  for (const auto& victims : rounds) {
    meet(*job);
    if (std::find(victims.begin(), victims.end(), self) != victims.end()) ::raise(SIGKILL);
    for (std::size_t lost = 0; lost < victims.size();) {
      const int before = job->size();
      while (!job->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
      job = elastic.after(*job);
      lost += static_cast<std::size_t>(before - job->size());
    }
    text += std::to_string(job->rank()) + " of " + std::to_string(job->size()) + "; ";
  }
  job->leave();
  return text;
}

}  // namespace

TEST_CASE("what is left of a job meets again, whoever dies, down to one") {
  const auto results = run_elastic(4, [](int self, ElasticJob& job) { return lose(self, job, {{0}, {2}, {1}}); });
  INFO(describe(results));
  for (const int victim : {0, 1, 2}) CHECK(results[static_cast<std::size_t>(victim)].signal == SIGKILL);
  CHECK(results[3].exit_code == 0);
  CHECK(results[3].text.ends_with("2 of 3; 1 of 2; 0 of 1; "));
}

TEST_CASE("a job survives several deaths at once, that of process 0 among them") {
  const auto results = run_elastic(5, [](int self, ElasticJob& job) { return lose(self, job, {{0, 1, 3}}); });
  INFO(describe(results));
  CHECK(results[2].exit_code == 0);
  CHECK(results[2].text.ends_with("0 of 2; "));
  CHECK(results[4].text.ends_with("1 of 2; "));
}

TEST_CASE("a process that was stopped is told that the others went on without it") {
  for (const int victim : {0, 1}) {
    const auto results = run_elastic(3, [victim](int self, ElasticJob& elastic) {
      auto job = elastic.job();
      meet(*job);
      if (self == victim) ::raise(SIGSTOP);
      const auto pid = static_cast<pid_t>(job->process(victim).pid);
      while (!job->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
      job = elastic.after(*job);
      if (job->rank() == 0) ::kill(pid, SIGCONT);
      for (int i = 0; i < 1000 && ::kill(pid, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{5});
      job->leave();
      return std::to_string(job->rank()) + " of " + std::to_string(job->size());
    });
    INFO(describe(results));
    CHECK(results[static_cast<std::size_t>(victim)].exit_code == 1);
    CHECK(results[static_cast<std::size_t>(victim)].text.find("the others go on without it") != std::string::npos);
    CHECK(results[static_cast<std::size_t>(1 - victim)].text.ends_with("0 of 2"));
    CHECK(results[2].text.ends_with("1 of 2"));
  }
}

TEST_CASE("a process that fails by itself is not of what is left") {
  const auto results = run_elastic(2, [](int self, ElasticJob& elastic) -> std::string {
    const auto job = elastic.job();
    job->barrier();
    if (self == 1) throw DataError{"an error of its own"};
    while (!job->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    return std::to_string(elastic.after(*job)->size());
  });
  INFO(describe(results));
  CHECK(results[0].text.ends_with("1"));
  CHECK(results[1].exit_code == 1);
}

}  // namespace test_elastic_job
