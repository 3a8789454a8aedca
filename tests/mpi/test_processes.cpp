// SPDX-License-Identifier: Apache-2.0
// Jobs inside of programs that have called MPI_Init.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <replicator/job/mpi.hpp>
#include <replicator/world/world.hpp>
#include <string>

#include "../support/programs.hpp"

namespace test_processes {

using namespace replicator;
using Catch::Matchers::Contains;

namespace {

// The test case with this tag of this program, as so many processes of mpirun.
test::ProgramResult under_mpirun(int processes, const std::string& tag) {
  char path[4096] = {};
  static_cast<void>(!::readlink("/proc/self/exe", path, sizeof path - 1));
  return test::run_program("MPI_TEST_CHILD=1 timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n " + std::to_string(processes) + " '" + path + "' '" + tag + "'");
}
// Whether this process was started by under_mpirun. A filter by file names also chooses the hidden test cases.
bool child() { return std::getenv("MPI_TEST_CHILD") != nullptr; }
bool has_mpirun() {
  if (std::system("command -v mpirun > /dev/null 2>&1") == 0) return true;
  WARN("skipped: mpirun (openmpi-bin) is not installed");
  return false;
}

}  // namespace

// Not tests by themselves: what each process does that the tests below start.
TEST_CASE("a process of MPI adds up with all, and with those of its own parity", "[.sums]") {
  if (!child()) return;
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm parity;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &parity);  // in the opposite order
  std::string line = "rank " + std::to_string(rank) + ":";
  for (MPI_Comm comm : {MPI_COMM_WORLD, parity, MPI_COMM_SELF}) {
    World world{processes_of(comm)};
    float sum = 0;
    const auto mine = static_cast<float>(rank + 1);
    world.all_reduce(&mine, &sum, 1);
    line += " " + std::to_string(static_cast<int>(sum)) + " as " + std::to_string(world.rank()) + " of " + std::to_string(world.size()) + ",";
    world.finish();
  }
  std::cout << line + "\n"
            << std::flush;
  MPI_Finalize();
}
TEST_CASE("a process of MPI waits for one that does not come", "[.alone]") {
  if (!child()) return;
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    try {
      static_cast<void>(processes_of(MPI_COMM_WORLD, {}, std::chrono::milliseconds{500}));
    } catch (const CommunicationError& error) {
      std::cout << std::string{"rank 0 has: "} + error.what() + "\n"
                << std::flush;
    }
  } else {
    std::this_thread::sleep_for(std::chrono::seconds{2});
  }
  std::_Exit(0);  // MPI_Finalize would wait for the call. mpirun ends the other process
}

TEST_CASE("the collectives work on a communicator of MPI and on a part of it, with the ranks of the communicator") {
  if (!has_mpirun()) return;
  const auto result = under_mpirun(4, "[.sums]");
  INFO(result.text);
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.text, Contains("rank 0: 10 as 0 of 4, 4 as 1 of 2, 1 as 0 of 1,\n") && Contains("rank 1: 10 as 1 of 4, 6 as 1 of 2, 2 as 0 of 1,\n") &&
                              Contains("rank 2: 10 as 2 of 4, 4 as 0 of 2, 3 as 0 of 1,\n") && Contains("rank 3: 10 as 3 of 4, 6 as 0 of 2, 4 as 0 of 1,\n"));
}

TEST_CASE("a process of the communicator that does not come is waited for until the deadline") {
  if (!has_mpirun()) return;
  const auto result = under_mpirun(2, "[.alone]");
  INFO(result.text);
  CHECK_THAT(result.text, Contains("rank 0 has: rank 0 waits for the other 1 process(es) of its MPI communicator; not all have called processes_of within 0.5 s: it is collective"));
}

TEST_CASE("without MPI_Init the mistake is named") {
  CHECK_THROWS_WITH(processes_of(MPI_COMM_WORLD), "processes_of was called before MPI_Init: initialise MPI first");
}

}  // namespace test_processes
