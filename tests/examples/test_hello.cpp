// SPDX-License-Identifier: Apache-2.0
// The smallest complete program: one digest on any placement of its replicas.
#include <signal.h>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "examples.hpp"

namespace test_hello {

using namespace replicator;

namespace {

std::string hello(const std::string& flags) { return test::example("hello") + " --replicas 8 " + flags; }

// Of one process, and printed completely: 20 losses, then the digest.
std::string digest(const std::string& flags) { return test::digits_of(hello(flags), "digest: "); }

void check_processes(int count, const std::string& flags, const std::string& expected) {
  const auto results = test::run_as_processes(count, hello(flags));
  INFO(flags + "\n" + test::describe(results));
  if (results[0].text.find("was built without UCX") != std::string::npos) {
    WARN("skipped: hello was built without UCX");
    return;
  }
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(test::line_of(result.text, "digest: ") == expected);
  }
}

}  // namespace

TEST_CASE("hello prints one digest on any number of devices, with buckets of any size") {
  const auto serial = digest("--serial");
  for (const char* devices : {"cpu:0", "cpu:0-1", "cpu:0-2", "cpu:0-7"})
    CHECK(digest(std::string{"--devices "} + devices) == serial);
  CHECK(digest("--devices cpu:0-2 --bucket-bytes 1") == serial);
  CHECK(digest("--serial --seed 1") != serial);
  CHECK(digest("--serial --replicas 4") != serial);
}

TEST_CASE("output that cannot be written gives an exit code") {
  for (const char* flags : {"", "--help"}) CHECK(test::run_program(hello(flags) + " > /dev/full").exit_code == 1);
  const auto larger = test::run_program("(" + test::example("transformer") + " --help > /dev/full)");
  CHECK(larger.exit_code == 1);
  CHECK(larger.text == "transformer: the standard output could not be written completely: is the disk full?\n");
}

TEST_CASE("hello prints the same digest as two and three processes over shared memory and over UCX") {
  const auto serial = digest("--serial");
  for (const char* transport : {"shared_memory", "ucx"})
    for (const int count : {2, 3}) check_processes(count, std::string{"--transport "} + transport, serial);
  check_processes(2, "--devices cpu:0-1", serial);
}

TEST_CASE("hello prints the same digest as processes that mpirun starts") {
  if (test::run_program("command -v mpirun").exit_code != 0) {
    WARN("skipped: mpirun is not installed");
    return;
  }
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  // Too few replicas for two devices: so it shows whether the processes have found each other.
  if (test::run_program("mpirun --oversubscribe -n 2 " + hello("--replicas 1")).exit_code == 0) {
    WARN("skipped: hello was built without PMIx");
    return;
  }
  const auto serial = digest("--serial");
  const auto result = test::run_program("mpirun --oversubscribe -n 2 " + hello(""));
  INFO(result.text);
  CHECK(result.exit_code == 0);
  const auto first = result.text.find("digest: " + serial);
  CHECK(first != std::string::npos);
  CHECK(result.text.find("digest: " + serial, first + 1) != std::string::npos);
}

TEST_CASE("a crash ends the program at once: none of the libraries catches it") {
  const auto job = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(test::free_port());
  const auto result = test::run_program(job + " " + hello("--connect-deadline 30") +
                                        " & sleep 1; grep SigCgt /proc/$!/status; kill -KILL $!");
  INFO(result.text);
  const auto caught = std::stoull(test::line_of(result.text, "SigCgt:"), nullptr, 16);
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) CHECK((caught >> (signal - 1) & 1) == 0);
}

TEST_CASE("hello says what is wrong with its arguments and exits with 1") {
  const auto result = test::run_program(test::example("hello") + " --replicas 2 --devices cpu:0-3");
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.text, Catch::Contains("asked for --replicas 2 on 4 devices"));
  CHECK_THAT(test::run_program(test::example("hello") + " --replicas 3").text,
             Catch::Contains("a batch of 64 over all replicas was asked for, but 3 replicas"));
}

TEST_CASE("README shows hello as it is") {
  const auto text_of = [](const std::string& file) {
    std::ifstream stream{test::script("../" + file)};
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  };
  const auto source = text_of("examples/hello.cpp");
  const auto begin = source.find("#include");
  REQUIRE(begin != std::string::npos);
  CHECK(text_of("README.md").find("```cpp\n" + source.substr(begin) + "```\n") != std::string::npos);
}

TEST_CASE("hello refuses flags that it does not know, and says which may have been meant") {
  const auto wrong = test::run_program(test::example("hello") + " --replicas 2 --device cpu:0-1");
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.text, Catch::Contains("this program has no flag --device: was --devices meant? --help lists all"));
  CHECK_THAT(test::run_program(test::example("hello") + " --banana=3").text, Catch::Contains("this program has no flag --banana: --help lists all"));
  CHECK_THAT(test::run_program(test::example("hello") + " banana").text, Catch::Contains("this program takes no argument banana: --help lists all"));
  const auto help = test::run_program(test::example("hello") + " --help");
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.text, Catch::StartsWith("Where it runs") && Catch::Contains("--replicas N"));
}

TEST_CASE("files that could not be written in the end are refused before the first step") {
  const std::string a_folder = std::filesystem::temp_directory_path().string();
  for (const std::string flag : {"--trace ", "--hang-report ", "--plan ", "--dot ", "--record replica=0,steps=0:2,file="})
    for (const std::string& path : {std::string{"/nowhere/file"}, a_folder}) {
      const auto result = test::run_program(hello(flag + path));
      INFO(flag << "\n"
                << result.text);
      CHECK(result.exit_code == 1);
      CHECK_THAT(result.text, Catch::Contains(path) && !Catch::Contains("loss"));
      if (path == a_folder) CHECK_THAT(result.text, Catch::Contains("is a folder"));
    }
}

TEST_CASE("what is written about steps can be sent to stdout, to which the program goes on printing") {
  const auto result = test::run_program(hello("--dot /proc/self/fd/1"));
  CHECK(result.exit_code == 0);
  const auto drawn = result.text.find("digraph"), resolved = result.text.find("digraph", drawn + 1);
  REQUIRE(resolved != std::string::npos);
  CHECK(result.text.find("digest: ") > resolved);
}

TEST_CASE("a folder for the token of the job is an error that names it") {
  const auto result = test::run_program(hello("--job-token-file /"));
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.text, Catch::Contains("--job-token-file is \"/\", which cannot be read: Is a directory"));
}

TEST_CASE("processes that were started differently are told in what they differ") {
  const auto differ = [](const std::string& flag, const std::string& first, const std::string& second) {
    const auto results = test::run_as_job(2, [&](int rank) {
      return test::run_program(hello(flag + " " + (rank == 0 ? first : second))).text;
    });
    INFO(test::describe(results));
    for (const auto& result : results)
      CHECK_THAT(result.text,
                 Catch::Contains("differ in " + flag + ": process 1 (pid ") && Catch::Contains(") has " + second + ", process 0 (pid ") &&
                     Catch::Contains(") has " + first + ": start the same program"));
  };
  differ("--seed", "0", "1");
  differ("--schedule", "auto", "naive");
  differ("--transport", "ucx", "shared_memory");
}

}  // namespace test_hello
