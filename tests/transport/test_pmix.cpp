// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <replicator/job/job.hpp>
#include <replicator/job/job_inline.hpp>
#include <replicator/job/pmix.hpp>
#include <span>
#include <string>

namespace test_pmix {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::detail::transport;
using Catch::Matchers::Contains;

namespace {

std::string own_program() {
  char path[4096] = {};
  static_cast<void>(!::readlink("/proc/self/exe", path, sizeof path - 1));
  return path;
}

// What the command prints; `status` becomes its exit status.
std::string output_of(const std::string& command, int& status) {
  std::string result;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char chunk[4096];
  while (const auto n = std::fread(chunk, 1, sizeof chunk, pipe)) result.append(chunk, n);
  status = WEXITSTATUS(::pclose(pipe));
  return result;
}

}  // namespace

// Not a test by itself: what each process does that the test below starts.
TEST_CASE("a process under mpirun meets the others", "[.child]") {
  const auto environment = find_environment();
  Job job{environment};
  const std::string mine = std::to_string(job.rank() * 10);
  std::string heard;
  for (const auto& blob : job.exchange(std::as_bytes(std::span{mine.data(), mine.size()})))
    heard += " " + std::string(reinterpret_cast<const char*>(blob.data()), blob.size());
  job.leave();
  std::cout << "process " + std::to_string(job.rank()) + " of " + std::to_string(job.size()) + " heard" + heard + " with a token of " +
                   std::to_string(environment.job_token.size()) + "\n"
            << std::flush;
}

// Nor this.
TEST_CASE("a process under mpirun beside one that never comes", "[.alone]") {
  try {
    (void)find_environment({.job_token_file = {}, .interface = {}, .connect_deadline = std::chrono::seconds{4}});
  } catch (const CommunicationError& error) {
    std::cout << error.what() << std::endl;
  }
}

namespace {
bool has_mpirun() {
  if (std::system("command -v mpirun > /dev/null 2>&1") == 0) return true;
  WARN("skipped: mpirun (openmpi-bin) is not installed");
  return false;
}
}  // namespace

TEST_CASE("who waits for a process of mpirun that never comes says so, and stops at the deadline") {
  if (!has_mpirun()) return;
  int status = 0;
  const auto text = output_of("timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 1 '" + own_program() + "' '[.alone]' : -n 1 sleep 6", status);
  INFO(text);
  CHECK(status != 124);
  const std::string waits = "rank 0 waits for the other 1 process(es) that the launcher (PMIx) started: each must make a Replicator, too";
  CHECK_THAT(text, Contains("replicator: " + waits + "\n") && Contains(waits + "; not all have done so within 4 s (--connect-deadline)"));
}

TEST_CASE("processes that mpirun starts find each other through PMIx") {
  if (!has_mpirun()) return;
  int status = 0;
  const auto text = output_of(
      "timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 '" + own_program() + "' '[.child]'",
      status);
  INFO(text);
  CHECK(status == 0);
  for (const std::string rank : {"0", "1", "2"}) CHECK_THAT(text, Contains("process " + rank + " of 3 heard 0 10 20 with a token of 64"));
}

TEST_CASE("processes that mpirun starts have a token of their own, so they meet where other machines could come too") {
  if (!has_mpirun()) return;
  std::string outer;
  for (const auto& entry : transport::detail::interface_addresses())
    if (!entry.loopback && entry.address.family() == AF_INET) outer = entry.address.text();
  if (outer.empty()) {
    WARN("skipped: this machine has no address beside the loopback");
    return;
  }
  int status = 0;
  const auto text = output_of("REPLICATOR_INTERFACE=" + outer + " timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 '" + own_program() + "' '[.child]'", status);
  INFO(text);
  CHECK(status == 0);
  for (const std::string rank : {"0", "1"}) CHECK_THAT(text, Contains("process " + rank + " of 2 heard 0 10 with a token of 64"));
}

TEST_CASE("including pmix.hpp is enough to make the launcher known, and variables still win") {
  CHECK(launcher_slot.load() == &pmix_launcher);
  ::setenv("WORLD_SIZE", "1", 1);
  CHECK(find_environment().world_size == 1);
  ::unsetenv("WORLD_SIZE");
}

}  // namespace test_pmix
