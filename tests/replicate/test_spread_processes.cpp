// SPDX-License-Identifier: Apache-2.0
// Model parallelism in jobs of several processes: all devices of a replica belong to one process.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"
#include "run_random.hpp"

namespace test_spread_processes {

using namespace replicator;
using namespace replicator::detail;

namespace {

// Every instruction several times, on every device.
test::RandomProgram everything() {
  test::RandomProgram program;
  for (unsigned i = 0; i < 4 * test::random_instructions; ++i)
    program.push_back({i % test::random_instructions, i % 5, 61 + i % 7, 3 * i, i % 4, i % 6});
  return program;
}

// What each process of a job of `count` finds.
std::vector<test::ProcessResult> run_job(int count, int replicas, const std::vector<int>& devices, int logical) {
  return test::run_as_job(count, [&](int rank) {
    auto where = test::on_devices(replicas, devices[static_cast<std::size_t>(rank)]);
    where.logical_devices = logical;
    where.bucket_bytes = 64;
    where.deadline = std::chrono::seconds{20};
    const auto outcome = test::run(everything(), where);
    Hasher hasher;
    hasher.text(outcome.outputs);
    return outcome.digest + " " + hasher.result().text();
  });
}

}  // namespace

TEST_CASE("replicas spread over the devices of each of two processes have the bits of those that are not") {
  for (const int replicas : {2, 5}) {
    const auto alone = run_job(1, replicas, {1}, 1);
    INFO(test::describe(alone));
    REQUIRE(alone[0].exit_code == 0);
    for (const int logical : {2, 3})
      for (const int groups : {1, 2}) {
        if (2 * groups > replicas) continue;
        const auto results = run_job(2, replicas, {groups * logical, logical}, logical);
        INFO(test::describe(results));
        for (const auto& result : results) CHECK(result.text == alone[0].text);
      }
    const auto shared = run_job(2, replicas, {1, 1}, 3);
    INFO(test::describe(shared));
    for (const auto& result : shared) CHECK(result.text == alone[0].text);
  }
}

TEST_CASE("processes whose replicas have different numbers of devices are told") {
  const auto results = run_job(2, 2, {2, 1}, 2);
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.text, Catch::Contains("the processes of this job differ in the devices of a replica: process ") &&
                                Catch::Contains("name as many --devices with the same --logical-devices on every host"));
  }
}

}  // namespace test_spread_processes
