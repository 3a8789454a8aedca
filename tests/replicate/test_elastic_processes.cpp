// SPDX-License-Identifier: Apache-2.0
// Jobs that lose processes and go on: the survivors end with the bits of the undisturbed run.
#include <catch2/catch.hpp>

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

#include <replicator/replicate/checkpoint.hpp>
#include <replicator/replicate/train_loop.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "checkpointed.hpp"
#include "deployments.hpp"

namespace test_elastic_processes {

using namespace replicator;
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

// Of a process: before it begins to read the element for this step (for the first of its replicas), after that step, or some
// microseconds after that step.
struct Death {
  int process;
  std::int64_t step;
  enum class When { reading, after, later } when = When::reading;
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
                            }, .validated = {{"one"}}, .validate_every = 1, .out = out.get()}};
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

}  // namespace test_elastic_processes
