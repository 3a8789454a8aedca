// SPDX-License-Identifier: Apache-2.0
// The preflight check of a job: what the processes measure, and which problems are named.
#include <catch2/catch.hpp>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "../../tools/preflight.hpp"
#include "jobs.hpp"

namespace test_preflight {

using namespace replicator;
using namespace replicator::detail;
using namespace std::chrono_literals;
using tools::Preflight;

namespace {

// So many processes on a host each, with equal links.
Preflight healthy(int processes = 4) {
  Preflight found;
  for (int p = 0; p < processes; ++p)
    found.processes.push_back({"process " + std::to_string(p) + " on host-" + std::string(1, static_cast<char>('a' + p)), p, "abc", "avx2", 0.001, 0.0001});
  const auto count = static_cast<std::size_t>(processes);
  found.measured.between.assign(count, std::vector<collectives::Link>(count, {20, 1200}));
  found.measured.reduced.assign(count, 9000);
  return found;
}
void set_link(Preflight& found, std::size_t p, std::size_t q, collectives::Link link) { found.measured.between[p][q] = found.measured.between[q][p] = link; }

}  // namespace

TEST_CASE("processes that are alike have no problems") { CHECK(tools::problems_of(healthy()).empty()); }

TEST_CASE("a slow link is named with both of its ends") {
  auto found = healthy();
  set_link(found, 1, 3, {20, 500});
  CHECK(tools::problems_of(found) == std::vector<std::string>{"the link between process 1 on host-b and process 3 on host-d is slow: 500 MB/s, "
                                                              "20 us; a quarter of its kind has 1200 MB/s, 20 us or better"});
  set_link(found, 1, 3, {200, 1200});
  CHECK(tools::problems_of(found) == std::vector<std::string>{"the link between process 1 on host-b and process 3 on host-d is slow: 1200 MB/s, "
                                                              "200 us; a quarter of its kind has 1200 MB/s, 20 us or better"});
  set_link(found, 1, 3, {60, 700});
  CHECK(tools::problems_of(found).empty());
}

TEST_CASE("of three hosts a slow one shows in both of its links") {
  auto found = healthy(3);
  set_link(found, 0, 2, {20, 120}), set_link(found, 1, 2, {20, 120});
  const auto problems = tools::problems_of(found);
  REQUIRE(problems.size() == 2);
  CHECK_THAT(problems[0], Catch::StartsWith("the link between process 0 on host-a and process 2 on host-c is slow"));
  CHECK_THAT(problems[1], Catch::StartsWith("the link between process 1 on host-b and process 2 on host-c is slow"));
}

TEST_CASE("links between machines are not held against those inside a machine") {
  auto found = healthy();
  found.processes[1].host = 0;
  found.processes[3].host = 2;
  set_link(found, 0, 1, {0.5, 20000}), set_link(found, 2, 3, {0.5, 20000});
  CHECK(tools::problems_of(found).empty());
  set_link(found, 2, 3, {0.5, 5000});
  REQUIRE(tools::problems_of(found).size() == 1);
  CHECK_THAT(tools::problems_of(found)[0], Catch::StartsWith("the link between process 2 on host-c and process 3 on host-d is slow: 5000 MB/s"));
}

TEST_CASE("another program, other instructions and a wrong clock are named") {
  auto found = healthy();
  found.processes[2].program = "def";
  found.processes[3].instructions = "avx2 fma";
  found.processes[1].seconds_ahead = -2.5;
  const auto problems = tools::problems_of(found);
  REQUIRE(problems.size() == 3);
  CHECK(problems[0] == "the clock of process 1 on host-b is -2.500 s from that of process 0 on host-a: set them by NTP");
  CHECK(problems[1] == "process 2 on host-c has another program than process 0 on host-a (def, not abc): copy the same file to every host");
  CHECK(problems[2] ==
        "process 3 on host-d computes by other instructions than process 0 on host-a (avx2 fma, not avx2), which changes bits: "
        "use processors of one kind");
  CHECK_THAT(tools::json_of(found), Catch::Contains("\"problems\":[\"the clock of process 1 on host-b is"));
}

TEST_CASE("all processes find the same, and a process with another file is named by all") {
  for (const bool other : {false, true}) {
    const auto results = test::run_job(3, [&](transport::Job& job) {
      tools::PreflightOptions options;
      options.transport = "shared_memory";
      options.devices = 2;
      options.measure = {50ms, 10000ms};
      if (other && job.rank() == 1) options.program = "/proc/version";
      const auto found = tools::look_around(job, options);
      std::string programs;
      for (const auto& problem : tools::problems_of(found))
        if (problem.find(" has another program than ") != std::string::npos) programs += problem + "\n";
      return programs + "\n" + tools::table_of(found);
    });
    INFO(test::describe(results));
    for (const auto& result : results) {
      CHECK(result.exit_code == 0);
      CHECK(result.text == results[0].text);
    }
    CHECK_THAT(results[0].text, Catch::Contains("MB/s, and us of latency, between processes:\n") && Catch::Contains(", between its devices "));
    if (other) CHECK_THAT(results[0].text, Catch::StartsWith("process 1 (pid ") && Catch::Contains(" has another program than process 0 (pid "));
    else CHECK_THAT(results[0].text, Catch::StartsWith("\n"));
  }
}

TEST_CASE("clocks of processes of one machine agree") {
  const auto results = test::run_job(2, [](transport::Job& job) -> std::string {
    tools::PreflightOptions options;
    options.transport = "shared_memory";
    options.measure = {50ms, 10000ms};
    const auto found = tools::look_around(job, options);
    return std::abs(found.processes[1].seconds_ahead) < 0.1 ? "near" : "far";
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "near");
}

}  // namespace test_preflight
