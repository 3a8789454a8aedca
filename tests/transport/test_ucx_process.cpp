// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <replicator/collectives/connect/ucx_transport.hpp>
#include <string>

#include "../support/processes.hpp"
#include "../support/programs.hpp"

namespace test_ucx_process {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("what UCX complains of goes to stderr, nothing to standard output") {
  const bool output = GENERATE(false, true);
  const auto results = test::run_processes(1, [output](int) {
    if (output) ::dup2(STDERR_FILENO, STDOUT_FILENO);
    if (output) ::close(STDERR_FILENO);
    ucs_error("connection %d refused", 7);
    std::fflush(stdout);
    return std::string{};
  });
  CHECK(results[0].text == (output ? "" : "ucx: ERROR: connection 7 refused\n"));
}

TEST_CASE("raises SIGHUP where the next test asks for it", "[hangup]") {
  if (std::getenv("REPLICATOR_RAISE_HANGUP")) ::raise(SIGHUP);
}

TEST_CASE("a closed terminal ends a program that links UCX, but for one that nohup has started") {
  char program[PATH_MAX] = {};
  REQUIRE(::readlink("/proc/self/exe", program, sizeof program - 1) > 0);
  const auto status = [&](const std::string& before) {
    return test::run_program(before + "REPLICATOR_RAISE_HANGUP=1 '" + program + "' '[hangup]'; echo status $?").text;
  };
  CHECK_THAT(status(""), Catch::Contains("status 129"));  // 128 + SIGHUP
  CHECK_THAT(status("trap '' HUP; "), Catch::Contains("status 0"));
}

}  // namespace test_ucx_process
