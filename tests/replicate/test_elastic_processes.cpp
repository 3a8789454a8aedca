// SPDX-License-Identifier: Apache-2.0
// Jobs that lose processes, continue, and take in restarted ones: all end with the bits of the undisturbed run.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/engine/state/checkpoint.hpp>
#include <replicator/replicate/train_loop.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "checkpointed.hpp"
#include "deployments.hpp"

namespace test_elastic_processes {

using namespace replicator;
using namespace replicator::detail;
using test::Experiment;
using test::Source;

namespace {

constexpr std::int64_t steps = 5;

Deployment elastic(int devices = 1) {
  auto where = test::on_devices(7, devices);
  where.bucket_bytes = 64;
  where.elastic = true;
  return where;
}

// The moment of a process's death: before it begins to read the element of this step (for the first of its replicas),
// after that step, or some microseconds later.
struct Death {
  int process;
  std::int64_t step;
  enum class When {
    reading,
    after,
    later
  } when = When::reading;
  int microseconds = 0;
};
using When = Death::When;

// What a run does besides: `between` after each step.
std::string run_until_death(const Experiment& e, const Deployment& where, int self, const std::vector<Death>& deaths,
                            const std::function<void(Replicator&, std::int64_t)>& between = {}) {
  const auto die = [&](When when, std::int64_t step) {
    for (const auto& death : deaths) {
      if (death.process != self || death.when != when || death.step != step) continue;
      if (when != When::later) ::raise(SIGKILL);
      std::thread{[time = death.microseconds] {
        ::usleep(static_cast<useconds_t>(time));
        ::raise(SIGKILL);
      }}.detach();
    }
  };
  Replicator repl{where};
  return test::with_input(e, [&](auto input_fn) {
    // The step is traced when it is made, and its read-ahead is the first thing that a step does.
    auto train = repl.replicate(input_fn, test::step_of(e));
    for (std::int64_t step = 0; step < steps; ++step) {
      die(When::reading, step);
      train.step();
      if (between) between(repl, step);
      die(When::after, step);
      die(When::later, step);
    }
    return repl.digest();
  });
}

std::string undisturbed(const Experiment& e, const std::function<void(Replicator&, std::int64_t)>& between = {}) {
  auto where = elastic();
  where.elastic = false;
  return test::run_as_job(1, [&](int) { return run_until_death(e, where, -1, {}, between); })[0].text;
}

void check_survivors(int count, const Experiment& e, const std::vector<Death>& deaths, const std::string& digest, Deployment where = elastic(),
                     const std::function<void(Replicator&, std::int64_t)>& between = {}) {
  const auto results = test::run_as_job(count, [&](int rank) { return run_until_death(e, where, rank, deaths, between); });
  INFO(test::describe(results));
  REQUIRE(digest.size() == 64);
  for (int process = 0; process < count; ++process) {
    const auto& result = results[static_cast<std::size_t>(process)];
    bool dies = false;
    for (const auto& death : deaths) dies |= death.process == process;
    if (dies && result.signal == SIGKILL) continue;
    CHECK(result.exit_code == 0);
    CHECK(result.text.ends_with(digest));
  }
}

}  // namespace

TEST_CASE("survivors redo the step with the same bits, whoever died, whatever the input") {
  for (const auto& [source, process] : std::vector<std::pair<Source, int>>{
           {Source::position, 0}, {Source::position, 2}, {Source::state, 1}, {Source::pipeline, 0}, {Source::host, 2}}) {
    const Experiment e{.source = source};
    check_survivors(3, e, {{process, 2}}, undisturbed(e));
  }
}

TEST_CASE("a job survives several deaths, at once and one after another, down to one process") {
  const auto digest = undisturbed({});
  check_survivors(4, {}, {{0, 1, When::after}, {1, 1, When::after}, {3, 3}}, digest);
  check_survivors(2, {}, {{0, 0}}, digest, elastic(2));
}

TEST_CASE("a process may die at any moment of a step, when some have finished it and others have not") {
  const auto digest = undisturbed({});
  for (int i = 0; i < 4; ++i) check_survivors(3, {}, {{i % 3, i, When::later, 900 * i}}, digest);
}

TEST_CASE("processes that die when all is done, but not yet told, take nothing with them") {
  check_survivors(3, {}, {{0, steps - 1, When::after}}, undisturbed({}));
  check_survivors(3, {}, {{2, steps - 1, When::later, 500}}, undisturbed({}));
}

TEST_CASE("what a program sets between steps is set again where a step is done again") {
  const auto halve = [](Replicator& repl, std::int64_t step) {
    if (step != 1) return;
    auto value = repl.value("in.bias");
    for (auto& x : value.as<float>()) x = 0.5f * x + 0.25f;
    repl.set("in.bias", value);
  };
  const auto digest = undisturbed({}, halve);
  CHECK(digest != undisturbed({}));
  for (const int time : {0, 1500}) check_survivors(3, {}, {{1, 1, When::later, time}}, digest, elastic(), halve);
}

TEST_CASE("an elastic job refuses to set the variable of one replica, which may move to another process") {
  const auto results = test::run_as_job(2, [](int) -> std::string {
    Replicator repl{elastic()};
    repl.replicate([](ReplicaContext& replica) { return replica.variable<float>("s", {}, Initializer::zeros(), {.kind = VariableKind::replica_local}).read(); });
    try {
      repl.set("s", Array<float>{{}, {1}}, 0);
    } catch (const BuildError& error) {
      return error.what();
    }
    return "no error";
  });
  INFO(test::describe(results));
  for (const auto& result : results)
    CHECK_THAT(result.text, Catch::Contains("set at test_elastic_processes.cpp:") && Catch::Contains("an elastic job cannot set \"s\" of one replica"));
}

TEST_CASE("checkpoints of a job that lost a process are those of the undisturbed run") {
  const TemporaryFolder whole, disturbed;
  auto where = test::kept(elastic(), whole.path(), false, 2);
  where.elastic = false;
  test::run_as_job(1, [&](int) { return run_until_death({}, where, -1, {}); });
  check_survivors(3, {}, {{0, 3, When::after}}, undisturbed({}), test::kept(elastic(), disturbed.path(), false, 2));
  std::vector<std::byte> a, b;
  io::read_file(whole.path() + "/step-0000000004.safetensors", a);
  io::read_file(disturbed.path() + "/step-0000000004.safetensors", b);
  CHECK(a == b);
}

TEST_CASE("with an arbiter every epoch is claimed, and the bits are those of the undisturbed run") {
  const TemporaryFolder folder;
  auto where = elastic();
  where.elastic_arbiter = folder.path();
  check_survivors(3, {}, {{0, 1, When::after}, {2, 3}}, undisturbed({}), where);
  const auto claims = test::run_program("cat " + folder.path() + "/job-*-epoch-2.claim");
  INFO(claims.text);
  CHECK(claims.text.find("taken by process 1 (pid ") != std::string::npos);
  CHECK(claims.text.find("lives of its processes: - 0 -") != std::string::npos);
}

TEST_CASE("an arbiter without --elastic, and a folder that not all processes share, are refused with a sentence") {
  auto alone = elastic();
  alone.elastic = false;
  alone.elastic_arbiter = "somewhere";
  CHECK_THROWS_WITH(Replicator{alone}, Catch::Contains("--elastic-arbiter is \"somewhere\", but this job is not elastic"));
  const TemporaryFolder first, second;
  const auto results = test::run_as_job(2, [&](int rank) {
    auto where = elastic();
    where.elastic_arbiter = rank == 0 ? first.path() : second.path();
    return run_until_death({}, where, rank, {});
  });
  INFO(test::describe(results));
  CHECK(results[1].exit_code == 1);
  CHECK(results[1].text.find("process 1 does not find this job in the folder --elastic-arbiter " + second.path()) != std::string::npos);
}

TEST_CASE("of several processes that are lost at once all are named") {
  const auto results = test::run_as_job(4, [](int rank) {
    auto where = elastic();
    where.replicas = 4;
    Replicator repl{where};
    auto train = repl.replicate([](const InputContext& ctx) { return data::from_generator([ctx](std::int64_t at) { return test::element(ctx.seed(), at, ctx.replica()); }); }, test::step_of({}));
    train.step();
    if (rank == 1) ::raise(SIGKILL);
    if (rank == 2) ::raise(SIGSTOP);
    train.step();
    return "done as " + std::to_string(repl.process());
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::Contains("process 1 (pid ") && Catch::Contains("process 2 (pid ") && Catch::Contains("too; the 2 process(es) that are left") && Catch::EndsWith("done as 0"));
  CHECK_THAT(results[3].text, Catch::EndsWith("done as 1"));
}

TEST_CASE("steps that take turns, and one that is gone, survive the loss of a process") {
  const auto body = [](Deployment where, int victim, int self) {
    Replicator repl{std::move(where)};
    const auto elements = [](const InputContext& ctx) {
      return data::from_generator([ctx](std::int64_t at) { return test::element(ctx.seed(), at, ctx.replica()); });
    };
    auto first = repl.replicate(elements, test::step_of({}));
    {
      auto other = repl.replicate(elements, test::step_of({.optimizer = test::Optimizer::own}), {.checkpointed = false});
      for (int i = 0; i < 3; ++i) {
        first.step();
        if (i == 1 && self == victim) ::raise(SIGKILL);
        other.step();
      }
    }
    first.step();
    if (self == 2) ::raise(SIGKILL);
    first.step();
    return repl.digest();
  };
  auto where = elastic();
  where.elastic = false;
  const auto digest = test::run_as_job(1, [&](int) { return body(where, 0, -1); })[0].text;
  REQUIRE(digest.size() == 64);
  const auto results = test::run_as_job(3, [&](int rank) { return body(elastic(), 0, rank); });
  INFO(test::describe(results));
  CHECK(results[1].exit_code == 0);
  CHECK(results[1].text.ends_with(digest));
}

TEST_CASE("a training loop is told by whoever is the first of its processes") {
  const auto results = test::run_as_job(2, [](int self) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out{std::tmpfile(), std::fclose};
    Replicator repl{elastic()};
    return test::with_input({}, [&](auto input_fn) {
      auto train = repl.replicate(input_fn, test::step_of({}));
      TrainLoop loop{repl, {.steps = steps, .figures = {{"loss"}}, .validate = [&]() -> std::vector<double> {
                              if (self == 0 && train.steps_done() == 2) ::raise(SIGKILL);
                              return {1.0};
                            },
                            .validated = {{"one"}},
                            .validate_every = 1,
                            .out = out.get()}};
      loop.run(train);
      std::rewind(out.get());
      std::string text(4096, ' ');
      text.resize(std::fread(text.data(), 1, text.size(), out.get()));
      return text;
    });
  });
  INFO(test::describe(results));
  const auto& text = results[1].text;
  CHECK(text.find("step 1/5") == std::string::npos);
  CHECK(text.find("step 4/5") != std::string::npos);
  CHECK(text.find("validation after step 5: one") != std::string::npos);
}

namespace {

// Of three processes one dies after its second step. Who comes back does so some milliseconds later, after 0 while the others do not
// know of the death yet. Those who are left wait for it, as far as the steps go.
struct Return {
  int process = 0;
  int milliseconds = 0;
  int lost_later = -1;  // another process, once the first is back
  bool rounds = false;  // another step follows after each five
};
constexpr std::int64_t many_steps = 200;

// `death`: who dies says so there.
std::string run_with_return(const Experiment& e, const Deployment& where, int self, const Return& r, int death = -1) {
  Replicator repl{where};
  return test::with_input(e, [&](auto input_fn) {
    auto train = repl.replicate(input_fn, test::step_of(e));
    auto between = repl.replicate([](ReplicaContext& replica) {
      const auto v = replica.variable<float>("between", {}, Initializer::ones());
      v.assign(0.5f * v.read() + all_reduce(uniform<float>(replica, {}), Reduction::mean));
    });
    bool again = self < 0;
    std::uint64_t done_here = 0;
    const auto run_steps = [&](std::int64_t steps) {
      for (const auto& results : train.steps(steps)) {
        (void)results;
        ++done_here;
        if (death >= 0 && train.steps_done() == 2) {
          static_cast<void>(!::write(death, "x", 1));
          ::raise(SIGKILL);
        }
        again |= train.steps_done() > 2 && repl.processes() == 3;
        if (self >= 0 && self == r.lost_later && again && train.steps_done() > many_steps - 20) ::raise(SIGKILL);
        if (!again && train.steps_done() < 100) ::usleep(15000);
      }
    };
    if (!r.rounds) run_steps(many_steps);
    else
      for (int round = 0; round < many_steps / 5; ++round) {
        run_steps(5);
        for (const auto& results : between.steps(1)) (void)results;
      }
    const auto digest = repl.digest();
    return std::to_string(train.steps_done() - done_here) + " steps by others; " + std::to_string(repl.processes()) + " processes; " + digest;
  });
}

// The last one is who comes back.
std::vector<test::ProcessResult> run_return(const Experiment& e, const Deployment& where, const Return& r, const Deployment& back) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const int port = test::free_port();
  auto results = test::run_processes(4, [&](int child) {
    test::set_environment(child < 3 ? child : r.process, 3, port);
    if (child < 3) return run_with_return(e, where, child, r, child == r.process ? ends[1] : -1);
    char nothing;
    static_cast<void>(!::read(ends[0], &nothing, 1));  // until that process dies
    ::usleep(static_cast<useconds_t>(1000 * r.milliseconds));
    return run_with_return(e, back, r.process, r);
  });
  ::close(ends[0]);
  ::close(ends[1]);
  return results;
}

void check_return(const Experiment& e, const Deployment& where, const Return& r, const std::string& digest) {
  const auto results = run_return(e, where, r, where);
  INFO(test::describe(results));
  REQUIRE(digest.size() == 64);
  for (int child = 0; child < 4; ++child) {
    const auto& result = results[static_cast<std::size_t>(child)];
    if (child == r.process || child == r.lost_later) {
      CHECK(result.signal == SIGKILL);
      continue;
    }
    CHECK(result.exit_code == 0);
    CHECK(result.text.ends_with(digest));
    CHECK(result.text.find(r.lost_later < 0 ? "3 processes; " : "2 processes; ") != std::string::npos);
  }
  CHECK(results[3].text.find("\n0 steps by others") == std::string::npos);
  CHECK(!results[3].text.starts_with("0 steps by others"));
}

std::string undisturbed_for_long(const Experiment& e, const Return& r = {}) {
  auto where = elastic();
  where.elastic = false;
  const auto text = test::run_as_job(1, [&](int) { return run_with_return(e, where, -1, r); })[0].text;
  return text.substr(text.size() - 64);
}

}  // namespace

TEST_CASE("a process that was killed and started again is given replicas, whoever it is, whatever the input") {
  for (const auto& [source, back] : std::vector<std::pair<Source, Return>>{{Source::host, {0, 300}}, {Source::state, {2}}}) {
    const Experiment e{.source = source};
    const TemporaryFolder claims;
    auto where = elastic();
    if (back.process == 2) where.elastic_arbiter = claims.path();
    check_return(e, where, back, undisturbed_for_long(e));
  }
}

TEST_CASE("who comes back leaves out the rounds that the others have done, and goes on in the middle of one") {
  const Return back{.process = 1, .milliseconds = 300, .rounds = true};
  check_return({}, elastic(), back, undisturbed_for_long({}, back));
}

TEST_CASE("process 0 may be started again before the others know of its death, and what it was given survives the next loss") {
  const TemporaryFolder whole, disturbed;
  auto where = test::kept(elastic(), whole.path(), false, 50);
  where.elastic = false;
  const auto text = test::run_as_job(1, [&](int) { return run_with_return({}, where, -1, {}); })[0].text;
  check_return({}, test::kept(elastic(), disturbed.path(), false, 50), {0, 0, 2}, text.substr(text.size() - 64));
  std::vector<std::byte> a, b;
  io::read_file(whole.path() + "/step-0000000150.safetensors", a);
  io::read_file(disturbed.path() + "/step-0000000150.safetensors", b);
  CHECK(a == b);
}

TEST_CASE("who comes back as another program is refused with a sentence, and the job goes on without it") {
  auto back = elastic();
  back.remaining = {"--learning-rate", "2"};
  const auto results = run_return({}, elastic(), {1, 300}, back);
  INFO(test::describe(results));
  CHECK(results[3].exit_code == 1);
  CHECK(results[3].text.find("differ in the arguments of the program: process 1") != std::string::npos);
  for (const int child : {0, 2}) {
    CHECK(results[static_cast<std::size_t>(child)].exit_code == 0);
    CHECK(results[static_cast<std::size_t>(child)].text.find("2 processes; ") != std::string::npos);
  }
}

}  // namespace test_elastic_processes
