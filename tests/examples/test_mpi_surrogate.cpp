// SPDX-License-Identifier: Apache-2.0
// The solver under MPI that trains a surrogate of itself.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>

#include "examples.hpp"

namespace test_mpi_surrogate {

namespace test = replicator::test;

TEST_CASE("the surrogate learns the solver, with the same lines on one process of MPI and on two") {
  if (std::system("command -v mpirun > /dev/null 2>&1") != 0) {
    WARN("skipped: mpirun (openmpi-bin) is not installed");
    return;
  }
  const auto run = [](int processes) {
    const auto result = test::run_program("timeout 200 mpirun --allow-run-as-root --oversubscribe --bind-to none -n " + std::to_string(processes) + " " + test::example("surrogate") + " --replicas 4");
    INFO(result.text);
    CHECK(result.exit_code == 0);
    return result.text;
  };
  const auto alone = run(1);
  const auto missed = [&](int step) { return std::stod(test::line_of(alone, "big step " + std::to_string(step) + ": the surrogate misses ")); };
  CHECK(missed(400) < 8);
  CHECK(missed(400) < missed(100) / 2);
  CHECK(run(2) == alone);
}

}  // namespace test_mpi_surrogate
