// SPDX-License-Identifier: Apache-2.0
// Checkpoints of jobs of several processes, and processes that are killed while they write.
#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <replicator/engine/state/checkpoint.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "checkpointed.hpp"
#include "deployments.hpp"

namespace test_checkpoint_processes {

using namespace replicator;
using namespace replicator::detail;
using test::Experiment;
using test::files;
using test::kept;
using test::on_devices;

namespace {

// The digest that each process of a job of `count` finds; it is forked, so that this one keeps a single thread.
std::vector<test::ProcessResult> run_job(int count, const Experiment& e, int devices, std::int64_t steps, const std::string& folder = {},
                                         bool resume = false) {
  return test::run_as_job(count, [&](int) {
    auto where = on_devices(5, devices);
    where.bucket_bytes = 64;
    return test::run(e, folder.empty() ? where : kept(where, folder, resume), steps);
  });
}
std::string digest_of(const test::ProcessResult& result) { return result.text.substr(result.text.size() < 64 ? 0 : result.text.size() - 64); }

// The steps of the newest whole file, 0 where there is none.
std::int64_t newest_of(const std::string& folder) {
  std::int64_t newest = 0;
  for (const auto& name : files(folder))
    if (name.ends_with(".safetensors")) newest = std::stoll(name.substr(5, 10));
  return newest;
}

auto elements(const InputContext& ctx) {
  return data::from_generator([ctx](std::int64_t at) { return test::element(ctx.seed(), at, ctx.replica()); });
}

// Enough bytes that writing them takes a while.
const Experiment large{.hidden = 60'000};

// A process that writes a checkpoint before every step until it is killed. No destructor runs.
pid_t start_writing(const std::string& folder, bool resume, rlim_t largest_file = RLIM_INFINITY) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const rlimit limit{largest_file, RLIM_INFINITY}, no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  try {
    Replicator repl{kept(on_devices(2, 1), folder, resume, 1)};
    auto train = repl.replicate(elements, test::step_of(large));
    if (!resume) train.step(), train.step();  // there is a whole one
    ::setrlimit(RLIMIT_FSIZE, &limit);
    for (;;) train.step();
  } catch (...) {
    ::_exit(3);
  }
}
int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

}  // namespace

TEST_CASE("what one number of processes has begun, another number ends with the same bits") {
  const Experiment e{.source = test::Source::pipeline};
  const auto whole = run_job(1, e, 1, 6);
  INFO(test::describe(whole));
  REQUIRE(digest_of(whole[0]).size() == 64);
  for (const auto& [writers, readers] : std::vector<std::pair<int, int>>{{1, 3}, {2, 1}, {2, 3}, {3, 2}}) {
    const TemporaryFolder folder;
    const auto begun = run_job(writers, e, 1, 3, folder.path());
    INFO(test::describe(begun));
    CHECK(files(folder.path()) == std::vector<std::string>{"step-0000000003.safetensors"});
    const auto ended = run_job(readers, e, readers == 2 ? 2 : 1, 6, folder.path(), true);
    INFO(test::describe(ended));
    for (const auto& result : ended) CHECK(digest_of(result) == digest_of(whole[0]));
  }
}

TEST_CASE("checkpoints of any numbers of processes are the same file, bit for bit") {
  const TemporaryFolder one, three;
  run_job(1, {}, 2, 2, one.path());
  run_job(3, {}, 1, 2, three.path());
  std::vector<std::byte> a, b;
  io::read_file(one.path() + "/step-0000000002.safetensors", a);
  io::read_file(three.path() + "/step-0000000002.safetensors", b);
  CHECK(a == b);
}

TEST_CASE("every process of a job says why a checkpoint is refused") {
  const TemporaryFolder folder;
  run_job(2, {}, 1, 2, folder.path());
  for (const auto& result : run_job(2, {.third = true}, 1, 4, folder.path(), true))
    CHECK_THAT(result.text, Catch::Contains("declares the variable \"middle.bias\", there it does not"));
  const auto again = run_job(2, {}, 1, 4, folder.path());
  INFO(test::describe(again));
  CHECK_THAT(again[0].text, Catch::Contains("holds checkpoints already"));
  CHECK_THAT(again[1].text, Catch::Contains("process 0"));
  std::filesystem::resize_file(folder.path() + "/step-0000000002.safetensors", 500);
  for (const auto& result : run_job(2, {}, 1, 4, folder.path(), true))
    CHECK_THAT(result.text, Catch::Contains("step-0000000002.safetensors") && Catch::Contains("There is no other undamaged one"));
}

TEST_CASE("processes of which one alone keeps checkpoints are told so") {
  const TemporaryFolder folder;
  const auto results = test::run_as_job(2, [&](int rank) {
    return test::run({}, rank == 1 ? kept(on_devices(2, 1), folder.path(), false, 5) : on_devices(2, 1), 1);
  });
  for (const auto& result : results)
    CHECK_THAT(result.text, Catch::Contains("differ in --checkpoint, --every and --resume: process 1 (pid ") &&
                                Catch::Contains(") has --checkpoint --every 5, process 0 (pid ") && Catch::Contains(") has none of them"));
}

TEST_CASE("when the process that writes fails, the others are told, and the last checkpoint stays") {
  const TemporaryFolder folder;
  const auto results = test::run_as_job(2, [&](int) {
    Replicator repl{kept(on_devices(2, 1), folder.path(), false, 1)};
    auto train = repl.replicate(elements, test::step_of({}));
    train.step(), train.step();
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1024, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &small);
    train.step();
    return std::string{"no error"};
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::Contains("step-0000000002.safetensors") && Catch::Contains("cannot write"));
  CHECK_THAT(results[1].text, Catch::Contains("process 0") && Catch::Contains("cannot write"));
  CHECK(files(folder.path()) == std::vector<std::string>{"step-0000000001.safetensors"});
}

TEST_CASE("a process that is killed in the middle of writing leaves the last whole checkpoint") {
  const TemporaryFolder folder;
  CHECK(wait_for(start_writing(folder.path(), false, 100'000)) == SIGXFSZ);  // the kernel ends it at that byte
  const auto left = files(folder.path());
  REQUIRE(left.size() == 2);
  CHECK(left[0] == "step-0000000001.safetensors");
  CHECK_THAT(left[1], Catch::StartsWith("step-0000000002.safetensors.") && Catch::EndsWith(".partial"));
  CHECK(std::filesystem::file_size(folder.path() + "/" + left[1]) == 100'000);
  CHECK(read_checkpoint(folder.path() + "/" + left[0]).total() == 1);
}

TEST_CASE("processes that are killed at any moment leave whole checkpoints, from which the run goes on with the same bits") {
  const TemporaryFolder folder;
  int killed = 0;
  for (; killed < 8; ++killed) {
    const auto before = newest_of(folder.path());
    const pid_t child = start_writing(folder.path(), killed > 0);
    const auto began = std::chrono::steady_clock::now();
    while (newest_of(folder.path()) == before && std::chrono::steady_clock::now() - began < std::chrono::seconds{30})
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    std::this_thread::sleep_for(std::chrono::milliseconds{13 * killed});
    ::kill(child, SIGKILL);
    REQUIRE(wait_for(child) == SIGKILL);
    int whole = 0;
    for (const auto& name : files(folder.path()))
      if (name.ends_with(".safetensors")) {
        CHECK(read_checkpoint(folder.path() + "/" + name).total() > 0);
        ++whole;
      }
    CHECK(whole >= 1);
    CHECK(whole <= 4);  // the oldest goes when the newest is whole
  }
  const auto newest = newest_of(folder.path());
  const auto digest = [&](bool resume) {
    const auto results = test::run_processes(1, [&](int) {
      auto where = on_devices(2, resume ? 2 : 1);
      return test::run(large, resume ? kept(where, folder.path(), true) : where, newest + 1);
    });
    return digest_of(results[0]);
  };
  CHECK(digest(true) == digest(false));
}

}  // namespace test_checkpoint_processes
