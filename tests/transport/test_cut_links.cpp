// SPDX-License-Identifier: Apache-2.0
// Elastic jobs on hosts whose links are cut and heal.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <replicator/job/elastic/elastic_job.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../input/temporary_folder.hpp"
#include "../support/network_hosts.hpp"
#include "../support/programs.hpp"

namespace test_cut_links {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using transport::ElasticJob;
using transport::Job;

namespace {

constexpr int steps_after = 40;  // 4 s

// Does steps until it has done many in the next job. Says when all are at work.
std::string work(ElasticJob& elastic, int at_work) {
  auto job = elastic.job();
  const auto* const first = job.get();
  for (int step = 0, after = 0; after < steps_after; ++step) {
    try {
      job->barrier("a step");
      if (step == 5) static_cast<void>(!::write(at_work, "x", 1));
      after += job.get() != first;
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    } catch (const CommunicationError&) {
      if (!job->aborted()) throw;
      job = elastic.after(*job);
    }
    if (step > 400) return "nothing was lost";
  }
  const auto text = "went on as " + std::to_string(job->rank()) + " of " + std::to_string(job->size());
  job->leave();
  return text;
}

// A process on each host. The link of one is cut when all are at work, and heals after some time.
std::vector<ProcessResult> cut(int hosts, int victim, std::chrono::milliseconds time, const std::string& arbiter = {}) {
  const NetworkHosts network{hosts};
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  auto results = run_processes(hosts + 1, [&](int process) -> std::string {
    if (process == hosts) {
      for (int h = 0; h < hosts; ++h) {
        char nothing;
        static_cast<void>(!::read(ends[0], &nothing, 1));
      }
      network.cut(victim);
      std::this_thread::sleep_for(time);
      network.heal(victim);
      return {};
    }
    network.enter(process);
    transport::ProcessEnvironment environment;
    environment.rank = process;
    environment.world_size = hosts;
    environment.master_address = NetworkHosts::address(0);
    environment.master_port = 29511;
    environment.insecure = true;
    ElasticJob elastic{environment, {}, {}, arbiter};
    return work(elastic, ends[1]);
  });
  ::close(ends[0]);
  ::close(ends[1]);
  return results;
}

bool skipped() {
  const auto why = NetworkHosts::missing();
  if (!why.empty()) WARN("skipped: " << why);
  return !why.empty();
}

bool went_on(const ProcessResult& result) { return result.exit_code == 0 && result.text.find("went on as") != std::string::npos; }

}  // namespace

TEST_CASE("of three hosts the one with a link that was cut and has healed ends, and says how it is taken in again") {
  if (skipped()) return;
  for (const int victim : {2, 0}) {
    const auto results = cut(3, victim, std::chrono::milliseconds{victim == 2 ? 3600 : 4000});
    INFO(describe(results));
    for (int process = 0; process < 3; ++process) {
      const auto& result = results[static_cast<std::size_t>(process)];
      CHECK(went_on(result) == (process != victim));
      if (process != victim) CHECK(result.text.ends_with(" of 2"));
    }
    const auto& text = results[static_cast<std::size_t>(victim)].text;
    CHECK(results[static_cast<std::size_t>(victim)].exit_code == 1);
    CHECK((text.find("process " + std::to_string(victim) + " (pid ") != std::string::npos &&
           text.find(" ends: this part of the job has 1 of the 3 members of epoch 0, which is no majority") != std::string::npos) ==
          (text.find("the others go on without it") == std::string::npos));
    CHECK(text.find("Start it again with the same command and RANK") != std::string::npos);
  }
}

TEST_CASE("of two hosts neither goes on while the link between them is cut") {
  if (skipped()) return;
  const auto results = cut(2, 1, std::chrono::milliseconds{14000});
  INFO(describe(results));
  for (int process = 0; process < 2; ++process) {
    CHECK(results[static_cast<std::size_t>(process)].exit_code == 1);
    CHECK(results[static_cast<std::size_t>(process)].text.find("1 of the 2 members of epoch 0, which is no majority") != std::string::npos);
    CHECK(results[static_cast<std::size_t>(process)].text.find("--elastic-arbiter") != std::string::npos);
  }
}

TEST_CASE("two hosts whose link was cut and has healed meet again") {
  if (skipped()) return;
  const auto results = cut(2, 1, std::chrono::milliseconds{3600});
  INFO(describe(results));
  for (int process = 0; process < 2; ++process) CHECK(results[static_cast<std::size_t>(process)].text.ends_with("went on as " + std::to_string(process) + " of 2"));
}

TEST_CASE("of two hosts with an arbiter exactly one goes on after a cut, and the other names it") {
  if (skipped()) return;
  const TemporaryFolder folder;
  const auto results = cut(2, 1, std::chrono::milliseconds{12000}, folder.path());
  INFO(describe(results));
  const std::size_t winner = went_on(results[0]) ? 0 : 1;
  CHECK(went_on(results[winner]));
  CHECK(results[winner].text.ends_with("0 of 1"));
  CHECK(results[1 - winner].exit_code == 1);
  CHECK(results[1 - winner].text.find("process " + std::to_string(winner) + " (pid ") != std::string::npos);
  CHECK(results[1 - winner].text.find(" has taken epoch 1 of this job for process " + std::to_string(winner) + ". Start the processes") != std::string::npos);
}

}  // namespace test_cut_links
