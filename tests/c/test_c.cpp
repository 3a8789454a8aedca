// SPDX-License-Identifier: Apache-2.0
// The C interface: a C99 program as 1, 2 and 3 processes, and its error messages.
#include <unistd.h>
#include <catch2/catch.hpp>

#include <replicator/replicator_c.h>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

#include "../support/folders.hpp"
#include "../support/programs.hpp"

namespace test_c {

namespace {

namespace test = replicator::test;

std::string program() { return test::test_program("raw_collectives"); }

// Of a world of one process.
struct Alone {
  replicator_world* world = nullptr;
  Alone() { REQUIRE(replicator_init(&world) == REPLICATOR_OK); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() { replicator_free(world); }
  std::string error() const { return replicator_last_error(world); }
};

}  // namespace

TEST_CASE("a program in C prints one digest as one, two and three processes") {
  const auto alone = test::run_program(program());
  INFO(alone.text);
  REQUIRE(alone.exit_code == 0);
  const auto digest = test::line_of(alone.text, "digest: ");
  CHECK(digest.size() == 16);
  CHECK(test::line_of(alone.text, "barrier after finish: ") ==
        "1 barrier was called after finish(): make another World for it");
  for (const int count : {2, 3})
    for (const std::string transport : {"shared_memory", "ucx"}) {
      const auto results = test::run_as_processes(count, program() + " " + transport);
      INFO(transport << "\n"
                     << test::describe(results));
      if (results[0].text.find("was built without UCX") != std::string::npos) continue;
      for (const auto& result : results) CHECK(test::line_of(result.text, "digest: ") == digest);
    }
}

TEST_CASE("a process that dies or stops is a status, a sentence and a number for the others, soon") {
  for (const std::string fate : {"kill", "exit", "stop"}) {
    // exec: the process that stops is the one that the test sees.
    const auto results = test::run_as_job(
        3,
        [&](int rank) {
          if (rank == 1) ::execl(program().c_str(), program().c_str(), "auto", fate.c_str(), nullptr);
          return test::run_program(program() + " auto " + fate).text;
        },
        std::chrono::seconds{20});
    INFO(fate << "\n"
              << test::describe(results));
    for (const int rank : {0, 2}) {
      const auto& result = results[static_cast<std::size_t>(rank)];
      CHECK_FALSE(result.timed_out);
      CHECK_THAT(result.text, Catch::StartsWith("status 2, culprit 1: process 1 (pid "));
    }
  }
}

TEST_CASE("mistakes in C are a status and a sentence, and the world goes on") {
  Alone alone;
  CHECK(alone.error().empty());
  float values[4] = {1, 2, 3, 4};
  CHECK(replicator_all_reduce(alone.world, values, values, 4, 17, REPLICATOR_SUM) == REPLICATOR_MISTAKE);
  CHECK(alone.error() == "there is no dtype 17: take one of enum replicator_dtype");
  CHECK(replicator_all_reduce(alone.world, values, values, 4, REPLICATOR_FLOAT32, 9) == REPLICATOR_MISTAKE);
  CHECK(alone.error() == "there is no reduction 9: take one of enum replicator_reduction");
  CHECK(replicator_reduce_scatter(alone.world, values, values, 4, REPLICATOR_FLOAT32, 256) == REPLICATOR_MISTAKE);
  CHECK_THAT(alone.error(), Catch::EndsWith("; REPLICATOR_ANY_ORDER is for all_reduce"));
  CHECK(replicator_all_reduce(alone.world, nullptr, values, 4, REPLICATOR_FLOAT32, REPLICATOR_SUM) ==
        REPLICATOR_MISTAKE);
  CHECK(alone.error() == "all_reduce (sum) of float32[4]: input is a null pointer");
  const int any_order = REPLICATOR_SUM | REPLICATOR_ANY_ORDER;
  CHECK(replicator_all_reduce(alone.world, values, values, 4, REPLICATOR_FLOAT32, any_order) == REPLICATOR_OK);
  CHECK(values[3] == 4);
  CHECK(replicator_culprit(alone.world) == -1);
  CHECK(replicator_barrier(nullptr) == REPLICATOR_MISTAKE);
  CHECK(std::string{replicator_last_error(nullptr)} == "the handle is a null pointer");
}

TEST_CASE("memory that a world allocates is zero and can be reduced in place") {
  Alone alone;
  void* memory = nullptr;
  REQUIRE(replicator_allocate(alone.world, 64, &memory) == REPLICATOR_OK);
  auto* values = static_cast<float*>(memory);
  CHECK(values[15] == 0);
  values[15] = 3;
  CHECK(replicator_all_reduce(alone.world, values, values, 16, REPLICATOR_FLOAT32, REPLICATOR_MEAN) == REPLICATOR_OK);
  CHECK(values[15] == 3);
  CHECK(replicator_allocate(alone.world, 64, nullptr) == REPLICATOR_MISTAKE);
  CHECK(alone.error() == "replicator_allocate: memory is a null pointer");
}

TEST_CASE("a world that cannot begin is a handle that says why") {
  replicator_options options{};
  replicator_world* world = nullptr;
  CHECK(replicator_init_with(&world, &options) == REPLICATOR_MISTAKE);
  CHECK_THAT(std::string{replicator_last_error(world)}, Catch::StartsWith("replicator_options: size must be"));
  CHECK(replicator_barrier(world) == REPLICATOR_MISTAKE);
  CHECK(std::string{replicator_last_error(world)} == "this world has not begun: replicator_init failed");
  CHECK(replicator_rank(world) == -1);
  replicator_free(world);
  options.size = sizeof options;
  options.world_size = 2;
  options.rank = 2;
  CHECK(replicator_init_with(&world, &options) == REPLICATOR_MISTAKE);
  CHECK(std::string{replicator_last_error(world)} ==
        "replicator_options: rank is 2 and world_size 2: ranks count from 0 to world_size - 1");
  replicator_free(world);
  options = {};
  options.size = sizeof options;
  options.transport = "pigeon";
  CHECK(replicator_init_with(&world, &options) == REPLICATOR_MISTAKE);
  CHECK_THAT(std::string{replicator_last_error(world)}, Catch::Contains("is \"pigeon\": choose auto, shared_memory or ucx"));
  replicator_free(world);
}

TEST_CASE("a deadline without end is none, and one that is no number is a mistake") {
  replicator_options options{};
  options.size = sizeof options;
  replicator_world* world = nullptr;
  for (const double deadline : {std::numeric_limits<double>::infinity(), 1e300, -1.0}) {
    options.deadline = deadline;
    CHECK(replicator_init_with(&world, &options) == REPLICATOR_OK);
    CHECK(std::string{replicator_last_error(world)}.empty());
    replicator_free(world);
  }
  options.deadline = std::numeric_limits<double>::quiet_NaN();
  CHECK(replicator_init_with(&world, &options) == REPLICATOR_MISTAKE);
  CHECK_THAT(std::string{replicator_last_error(world)}, Catch::StartsWith("replicator_options: deadline is not a number"));
  replicator_free(world);
}

TEST_CASE("who gives the addresses in options keeps the job token of the environment") {
  replicator_options options{};
  options.size = sizeof options;
  options.world_size = 2;
  options.master_address = "127.0.0.1";
  options.master_port = 1;
  ::setenv("REPLICATOR_JOB_TOKEN", "short", 1);
  replicator_world* world = nullptr;
  CHECK(replicator_init_with(&world, &options) == REPLICATOR_MISTAKE);
  ::unsetenv("REPLICATOR_JOB_TOKEN");
  CHECK_THAT(std::string{replicator_last_error(world)}, Catch::StartsWith("the variable REPLICATOR_JOB_TOKEN has 5"));
  replicator_free(world);
}

}  // namespace test_c
