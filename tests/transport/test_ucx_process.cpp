// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <replicator/collectives/connect/ucx_transport.hpp>
#include <string>

#include "../support/processes.hpp"

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

}  // namespace test_ucx_process
