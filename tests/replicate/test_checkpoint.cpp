// SPDX-License-Identifier: Apache-2.0
// Checkpoints in one process: a resumed run has the bits of an uninterrupted one.
#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/take.hpp>
#include <replicator/engine/state/checkpoint.hpp>
#include <replicator/engine/state/checkpoint_folder.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/cases.hpp"
#include "../support/told.hpp"
#include "checkpointed.hpp"
#include "deployments.hpp"

namespace test_checkpoint {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::Experiment;
using test::files;
using test::kept;
using test::on_devices;

namespace {

std::string named(int steps) {
  auto digits = std::to_string(steps);
  return "step-" + std::string(10 - digits.size(), '0') + digits + ".safetensors";
}
std::vector<std::string> named(std::initializer_list<int> steps) {
  std::vector<std::string> result;
  for (const int step : steps) result.push_back(named(step));
  return result;
}

auto elements(const InputContext& ctx) {
  return data::from_generator([ctx](std::int64_t at) { return test::element(ctx.seed(), at, ctx.replica()); });
}

auto numbers(const InputContext& ctx) {
  return data::from_generator([ctx](std::int64_t at) { return Array<float>{{}, {static_cast<float>(at + ctx.replica())}}; });
}

std::string bytes_of(const std::string& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}
void write_bytes(const std::string& file, const std::string& bytes) { std::ofstream{file, std::ios::binary} << bytes; }

// A folder in which a run of 5 replicas, stopped after `steps`, left a checkpoint.
struct Stopped {
  explicit Stopped(Experiment e = {}, Deployment where = on_devices(5, 2), std::int64_t steps = 3) : experiment{e} {
    test::run(e, kept(std::move(where), path()), steps);
  }
  std::string path() const { return folder.path() + "/runs/a"; }
  std::string file(int steps = 3) const { return path() + "/" + named(steps); }
  std::string error(Experiment e, Deployment where = on_devices(5, 1)) const {
    return error_of([&] { test::run(e, kept(std::move(where), path(), true), 5); });
  }
  TemporaryFolder folder;
  Experiment experiment;
};

}  // namespace

TEST_CASE("every optimizer goes on, on any devices, with the bits of the run that was never stopped") {
  for (const auto optimizer : {test::Optimizer::sgd, test::Optimizer::momentum, test::Optimizer::nesterov, test::Optimizer::own}) {
    const Experiment e{.optimizer = optimizer};
    const auto whole = test::run(e, on_devices(5, 1), 7);
    for (const int writer : test::cases({1, 2, 3}, {2}))
      for (const int reader : test::cases({1, 3}, {3})) {
        const Stopped stopped{e, on_devices(5, writer)};
        CHECK(test::run(e, kept(on_devices(5, reader), stopped.path(), true), 7) == whole);
      }
    CHECK(test::run(e, on_devices(5, 1), 6) != whole);
  }
}

TEST_CASE("a checkpoint of replicas on one device each goes on where replicas have two devices") {
  const auto program = [](Deployment where, int steps) {
    Replicator repl{std::move(where)};
    test::RandomProgram all;
    for (unsigned i = 0; i < 4 * test::random_instructions; ++i)
      all.push_back({i % test::random_instructions, i % 5, 61 + i % 7, 3 * i, i % 4, i % 6});
    const auto input = [](const InputContext& ctx) {
      return data::from_generator([ctx](std::int64_t at) {
        PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(at), static_cast<std::uint32_t>(ctx.replica())};
        auto big = test::random_rows(2 * ctx.replicas(), random);
        return std::tuple{std::move(big), test::random_rows(2, random)};
      });
    };
    const auto step = [&](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) { return test::RandomTrace{replica, x, y}.run(all); };
    auto train = repl.replicate(input, step);
    for (const auto& results : train.steps(steps)) (void)results;
    repl.save_checkpoint();
    return repl.digest();
  };
  auto spread = on_devices(5, 4);
  spread.logical_devices = 2;
  const auto whole = program(on_devices(5, 1), 4);
  const TemporaryFolder a, b;
  program(kept(on_devices(5, 1), a.path()), 2);
  CHECK(program(kept(spread, a.path(), true), 4) == whole);
  program(kept(spread, b.path()), 3);
  CHECK(program(kept(on_devices(5, 3), b.path(), true), 4) == whole);
}

TEST_CASE("input goes on where it was: pipelines seek, generators without position and readers of a host are read again") {
  for (const auto source : {test::Source::state, test::Source::pipeline, test::Source::host}) {
    const Experiment e{.source = source};
    const Stopped stopped{e};
    CHECK(test::run(e, kept(on_devices(5, 3), stopped.path(), true), 6) == test::run(e, on_devices(5, 1), 6));
  }
}

TEST_CASE("input that seeks is not read again, and its last element stands for one that has ended") {
  const TemporaryFolder folder;
  std::vector<std::int64_t> read;
  const auto program = [&](bool resume, std::int64_t steps) {
    read.clear();
    Replicator repl{kept(on_devices(1, 1), folder.path() + "/c", resume)};
    auto train = repl.replicate(
        [&](const InputContext&) {
          return data::from_generator([&](std::int64_t at) -> std::optional<Array<float>> {
            if (at >= 7) return std::nullopt;
            read.push_back(at);
            return Array<float>{{}, {static_cast<float>(at)}};
          });
        },
        [](ReplicaContext& replica, Tensor<float> x) {
          const auto sum = replica.variable<float>("sum", {}, Initializer::zeros());
          sum.assign(sum.read() + all_reduce(x, Reduction::sum));
          return sum.read();
        });
    for (const auto& [sum] : train.steps(steps)) (void)sum;
    repl.save_checkpoint();
    return std::tuple{train.steps_done(), train.finished(), repl.value("sum").as<float>()[0]};
  };
  CHECK(program(false, 4) == std::tuple{4u, false, 6.0f});
  CHECK(program(true, 5) == std::tuple{5u, false, 10.0f});
  CHECK(read == std::vector<std::int64_t>{4, 5});
  CHECK(program(true, 100) == std::tuple{7u, true, 21.0f});
  CHECK(program(true, 100) == std::tuple{7u, true, 21.0f});
  CHECK(read == std::vector<std::int64_t>{6});
}

TEST_CASE("input that has become shorter than the run that is resumed is an error") {
  const TemporaryFolder folder;
  const auto program = [&](bool resume, std::int64_t elements) {
    Replicator repl{kept(on_devices(2, 1), folder.path(), resume)};
    auto train = repl.replicate(
        [&](const InputContext& ctx) { return numbers(ctx) | data::take(elements); },
        [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); });
    for (const auto& [sum] : train.steps(3)) (void)sum;
    repl.save_checkpoint();
  };
  program(false, 9);
  CHECK_THAT(error_of([&] { program(true, 2); }),
             Catch::StartsWith("the input of replica 0, given to replicate at test_checkpoint.cpp:") &&
                 Catch::Contains(", has ended before element 3, at which the resumed checkpoint continues"));
}

TEST_CASE("a checkpoint falls due after every N steps, is written before the next one, and N stay") {
  const TemporaryFolder folder;
  auto where = kept(on_devices(2, 1), folder.path(), false, 2);
  const auto program = [&](Deployment deployment, std::vector<std::vector<std::string>>& seen) {
    Replicator repl{std::move(deployment)};
    auto train = repl.replicate(elements, step_of(Experiment{}));
    for (const auto& results : train.steps(9)) {
      (void)results;
      seen.push_back(files(folder.path()));
    }
  };
  std::vector<std::vector<std::string>> seen;
  program(where, seen);
  REQUIRE(seen.size() == 9);
  CHECK(seen[1].empty());
  CHECK(seen[2] == named({2}));
  CHECK(seen[8] == named({4, 6, 8}));
  where.checkpoint.resume = true;
  where.checkpoint.keep = 1;
  where.checkpoint.every = 9;
  seen.clear();
  program(where, seen);
  CHECK(seen.size() == 1);
  CHECK(seen[0] == named({4, 6, 8}));
}

TEST_CASE("two steps in turn go on in turn, and a validation that comes and goes is left out") {
  const TemporaryFolder folder;
  const auto program = [&](Deployment where, std::uint64_t steps, bool told = true) {
    Replicator repl{std::move(where)};
    const auto update = [](const char* mine, const char* other, float by) {
      return [=](ReplicaContext& replica, Tensor<float> x) {
        const auto a = replica.variable<float>(mine, {}, Initializer::ones());
        const auto b = replica.variable<float>(other, {}, Initializer::ones());
        a.assign(0.5f * a.read() - by * b.read() + all_reduce(x + uniform<float>(replica, {}), Reduction::mean));
      };
    };
    auto critic = repl.replicate(numbers, update("critic", "generator", 0.25f));
    auto generator = repl.replicate(numbers, update("generator", "critic", 0.75f));
    while (generator.steps_done() < steps) {
      critic.step();
      generator.step();
      auto validation = repl.replicate(numbers,
                                       [](ReplicaContext& replica, Tensor<float> x) {
                                         const auto seen = replica.variable<float>("seen", {}, Initializer::zeros(), {VariableKind::replica_local});
                                         seen.assign(seen.read() + x + uniform<float>(replica, {}));
                                       },
                                       {.checkpointed = !told});
      for (int i = 0; i < 3; ++i) validation.step();
    }
    return repl.digest();
  };
  const auto whole = program(on_devices(3, 1), 6);
  program(kept(on_devices(3, 2), folder.path(), false, 2), 5);
  CHECK(files(folder.path()) == named({4, 8}));
  CHECK(program(kept(on_devices(3, 3), folder.path(), true, 4), 6) == whole);
  const TemporaryFolder other;
  CHECK_THAT(error_of([&] { program(kept(on_devices(3, 2), other.path(), false, 2), 5, false); }),
             Catch::Contains("but step 2 is gone, while step 1, which was made before it, is not") && Catch::Contains("{.checkpointed = false}"));
}

TEST_CASE("phases of a program that are over are not run again") {
  const TemporaryFolder folder;
  int run = 0;
  const auto program = [&](Deployment where, std::int64_t steps) {
    Replicator repl{std::move(where)};
    const auto step = [](float by) {
      return [by](ReplicaContext& replica, Tensor<float> x) {
        const auto v = replica.variable<float>("v", {}, Initializer::ones());
        v.assign(by * v.read() + all_reduce(x * uniform<float>(replica, {}), Reduction::mean));
      };
    };
    {
      auto first = repl.replicate(numbers, step(0.5f));
      for (int part = 0; part < 2; ++part)
        for (const auto& results : first.steps(2)) (void)results, ++run;
    }
    auto second = repl.replicate(numbers, step(0.9f));
    for (const auto& results : second.steps(steps)) (void)results, ++run;
    repl.save_checkpoint();
    return repl.digest();
  };
  const auto whole = program(on_devices(2, 1), 5);
  program(kept(on_devices(2, 1), folder.path()), 3);
  run = 0;
  CHECK(program(kept(on_devices(2, 2), folder.path(), true), 5) == whole);
  CHECK(run == 2);
}

// Rounds of five steps and a mean, and the same as one loop with the mean inside.
TEST_CASE("a resumed run leaves out whole rounds, and nothing inside of a loop that goes on") {
  enum class Shape {
    rounds,
    loop_with_steps,
    loop_with_step,
    own_counter,
    first_by_hand
  };
  const auto program = [&](Shape shape, Deployment where, int rounds) {
    Replicator repl{std::move(where)};
    const auto step = [](float by) {
      return [by](ReplicaContext& replica, Tensor<float> x) {
        const auto v = replica.variable<float>("v", {}, Initializer::ones());
        v.assign(by * v.read() + all_reduce(x * uniform<float>(replica, {}), Reduction::mean));
        return x;
      };
    };
    auto train = repl.replicate(numbers, step(0.5f));
    auto mean = repl.replicate(numbers, step(0.9f));
    const auto validate = [&] {
      auto validation = repl.replicate(numbers, [](ReplicaContext&, Tensor<float> x) { return x; }, {.checkpointed = false});
      for (const auto& results : validation.steps(2)) (void)results;
    };
    const auto take_mean = [&](bool plain) {
      validate();
      if (plain) mean.step();
      else
        for (const auto& results : mean.steps(1)) (void)results;
    };
    const auto mean_after_five = [&](bool plain) {
      if (train.steps_done() % 5 == 0) take_mean(plain);
    };
    if (shape == Shape::first_by_hand) train.step();
    if (shape == Shape::rounds || shape == Shape::first_by_hand)
      for (int round = 0; round < rounds; ++round) {
        for (const auto& results : train.steps(round == 0 && shape == Shape::first_by_hand ? 4 : 5)) (void)results;
        take_mean(false);
      }
    else if (shape == Shape::own_counter)
      while (train.steps_done() < static_cast<std::uint64_t>(5 * rounds)) train.step(), mean_after_five(false);
    else
      for (const auto& results : train.steps(5 * rounds)) (void)results, mean_after_five(shape == Shape::loop_with_step);
    repl.save_checkpoint();
    return repl.digest();
  };
  const auto whole = program(Shape::rounds, on_devices(2, 1), 4);
  for (const auto shape : {Shape::rounds, Shape::loop_with_steps, Shape::loop_with_step, Shape::own_counter, Shape::first_by_hand}) {
    CAPTURE(static_cast<int>(shape));
    const TemporaryFolder folder;
    program(shape, kept(on_devices(2, 1), folder.path()), 2);
    CHECK(program(shape, kept(on_devices(2, 2), folder.path(), true), 4) == whole);
  }
}

TEST_CASE("a loop that was left early is left again after as many steps, once the program has gone on to another") {
  const TemporaryFolder folder;
  // Three rounds: the first step of each leaves its loop after 1, 2 and 3 steps.
  const auto program = [&](Deployment where, int rounds, std::int64_t last) {
    Replicator repl{std::move(where)};
    const auto step = [](const char* name) {
      return [name](ReplicaContext& replica, Tensor<float> x) {
        const auto v = replica.variable<float>(name, {}, Initializer::ones());
        v.assign(0.5f * v.read() + all_reduce(x, Reduction::mean));
        return x;
      };
    };
    auto first = repl.replicate(numbers, step("a"));
    auto second = repl.replicate(numbers, step("b"));
    for (int round = 1; round <= rounds; ++round) {
      int taken = 0;
      for (const auto& results : first.steps(10)) {
        (void)results;
        if (++taken == round) break;
      }
      for (const auto& results : second.steps(round == rounds ? last : 4)) (void)results;
    }
    repl.save_checkpoint();
    return std::tuple{repl.digest(), first.steps_done(), second.steps_done()};
  };
  const auto whole = program(on_devices(2, 1), 3, 4);
  CHECK(std::get<1>(whole) == 1 + 2 + 3);
  SECTION("in a later round, where two loops were left") {
    program(kept(on_devices(2, 1), folder.path()), 2, 4);
    CHECK(program(kept(on_devices(2, 2), folder.path(), true), 3, 4) == whole);
  }
  SECTION("in the middle of the loop behind it") {
    program(kept(on_devices(2, 1), folder.path()), 3, 2);
    CHECK(program(kept(on_devices(2, 1), folder.path(), true), 3, 4) == whole);
  }
  SECTION("by a run that was resumed itself") {
    program(kept(on_devices(2, 1), folder.path()), 1, 3);
    program(kept(on_devices(2, 1), folder.path(), true), 2, 1);
    CHECK(program(kept(on_devices(2, 1), folder.path(), true), 3, 4) == whole);
  }
}

TEST_CASE("a resumed run goes on in a loop that was left last, because the time may have been up") {
  const TemporaryFolder folder;
  const auto program = [&](Deployment where, int limit) {
    Replicator repl{std::move(where)};
    auto train = repl.replicate(numbers, [](ReplicaContext& replica, Tensor<float> x) {
      const auto v = replica.variable<float>("v", {}, Initializer::ones());
      v.assign(0.5f * v.read() + all_reduce(x, Reduction::mean));
    });
    for (const auto& results : train.steps(10)) {
      (void)results;
      if (--limit == 0) break;
    }
    auto validation = repl.replicate(numbers, [](ReplicaContext&, Tensor<float> x) { return x; }, {.checkpointed = false});
    validation.step();
    repl.save_checkpoint();
    return train.steps_done();
  };
  CHECK(program(kept(on_devices(2, 1), folder.path()), 4) == 4);
  CHECK(program(kept(on_devices(2, 1), folder.path(), true), 4) == 8);
  CHECK(program(kept(on_devices(2, 1), folder.path(), true), 4) == 10);
}

TEST_CASE("a resumed run makes every step that is asked for in the body of a loop") {
  const TemporaryFolder folder;
  const auto program = [&](Deployment where, std::int64_t steps) {
    Replicator repl{std::move(where)};
    const auto step = [](float by) {
      return [by](ReplicaContext& replica, Tensor<float> x) {
        const auto v = replica.variable<float>("v", {}, Initializer::ones());
        v.assign(by * v.read() + all_reduce(x, Reduction::mean));
        return x;
      };
    };
    auto train = repl.replicate(numbers, step(0.5f));
    auto mean = repl.replicate(numbers, step(0.9f));
    auto other = repl.replicate(numbers, step(0.7f));
    for (const auto& results : train.steps(steps)) {
      (void)results;
      for (const auto& means : mean.steps(3)) {
        (void)means;
        if (mean.steps_done() % 2 == 0) break;
      }
      for (const auto& others : other.steps(1)) (void)others;
    }
    repl.save_checkpoint();
    return std::tuple{repl.digest(), mean.steps_done(), other.steps_done()};
  };
  const auto whole = program(on_devices(2, 1), 5);
  program(kept(on_devices(2, 1), folder.path()), 3);
  CHECK(program(kept(on_devices(2, 1), folder.path(), true), 5) == whole);
}

TEST_CASE("step() in rounds whose steps(n) a resumed run leaves out is refused, because it would be done twice") {
  const TemporaryFolder folder;
  const auto program = [&](Deployment where, int rounds) {
    Replicator repl{std::move(where)};
    const auto step = [](ReplicaContext& replica, Tensor<float> x) {
      const auto v = replica.variable<float>("v", {}, Initializer::ones());
      v.assign(0.5f * v.read() + all_reduce(x, Reduction::mean));
    };
    auto train = repl.replicate(numbers, step);
    auto mean = repl.replicate(numbers, step);
    for (int round = 0; round < rounds; ++round) {
      for (const auto& results : train.steps(5)) (void)results;
      mean.step();
    }
    repl.save_checkpoint();
  };
  program(kept(on_devices(2, 1), folder.path()), 2);
  CHECK_THAT(error_of([&] { program(kept(on_devices(2, 1), folder.path(), true), 4); }),
             Catch::Contains("would be done twice: an earlier run has done it 2 times, and steps() at") && Catch::Contains("test_checkpoint.cpp") &&
                 Catch::Contains("Use steps(1) here too"));
}

TEST_CASE("another experiment is refused by the first difference") {
  const Stopped stopped;
  const auto start = "--resume: " + stopped.file() + " is of another experiment: ";
  CHECK_THAT(stopped.error({}, on_devices(4, 1)),
             Catch::StartsWith(start + "its replicas: 5, of this run: 4. Resume it with the arguments it was begun with"));
  CHECK_THAT(stopped.error({}, on_devices(5, 1, 18)), Catch::StartsWith(start + "its seed: 17, of this run: 18"));
  CHECK_THAT(stopped.error({.hidden = 9}), Catch::StartsWith(start + "the variable \"in.weight\" is float32[9, 3] (declared at checkpointed.hpp:") &&
                                               Catch::Contains("there float32[8, 3]. Resume it with the program, and the arguments, that wrote it"));
  CHECK_THAT(stopped.error({.third = true}),
             Catch::StartsWith(start + "step 0 of this program declares the variable \"middle.bias\", there it does not"));
  CHECK_THAT(stopped.error({.optimizer = test::Optimizer::sgd}),
             Catch::StartsWith(start + "step 0 of this program does not declare the variable \"in.bias/momentum\", there it does"));
  CHECK_THAT(stopped.error({.sums = true}), Catch::StartsWith(start + "step 0 of this program asks for 8 collectives, there for 6"));
  CHECK(stopped.error({}) == "nothing");
}

TEST_CASE("a run says that it goes on from a checkpoint once its step has accepted it") {
  const Stopped stopped;
  const TemporaryFolder folder;
  CHECK(test::told(folder, [&] { CHECK(stopped.error({.hidden = 9}) != "nothing"); }) == "");
  CHECK(test::told(folder, [&] { CHECK(stopped.error({.sums = true}) != "nothing"); }) == "");
  CHECK(test::told(folder, [&] { CHECK(stopped.error({}) == "nothing"); }) == "replicator: goes on from " + stopped.file() + ", in which 3 steps are done\n");
}

TEST_CASE("a folder that cannot be made is an error that names the flag") {
  CHECK_THAT(error_of([&] { Replicator{kept(on_devices(1, 1), "/proc/checkpoints")}; }),
             Catch::StartsWith("--checkpoint: /proc/checkpoints: cannot make the folder"));
}

TEST_CASE("a run without --resume does not write among the checkpoints of another, and --resume begins where there are none") {
  const Stopped stopped;
  CHECK(error_of([&] { test::run({}, kept(on_devices(5, 1), stopped.path()), 3); }) ==
        "--checkpoint: " + stopped.path() + " holds checkpoints already, the newest is " + stopped.file() +
            ": go on from it with --resume, or name another folder");
  const TemporaryFolder empty;
  CHECK(test::run({}, kept(on_devices(5, 1), empty.path(), true), 2) == test::run({}, on_devices(5, 1), 2));
  Deployment where;
  where.checkpoint.resume = true;
  CHECK_THAT(error_of([&] { Replicator{where}; }), Catch::Contains("--resume was given without --checkpoint"));
  where.checkpoint.every = 3;
  CHECK_THAT(error_of([&] { Replicator{where}; }), Catch::Contains("--every was given without --checkpoint"));
  where.checkpoint = CheckpointOptions{};
  where.checkpoint.keep = 5;
  CHECK_THAT(error_of([&] { Replicator{where}; }), Catch::Contains("--keep was given without --checkpoint"));
}

TEST_CASE("a second job in the folder of a running one is refused, and told which that is") {
  const TemporaryFolder folder;
  const auto where = kept(on_devices(5, 1), folder.path());
  const auto holder = "is in use by process " + std::to_string(::getpid()) + " on ";
  {
    Replicator repl{where};
    auto train = repl.replicate(elements, step_of(Experiment{}));
    const auto error = error_of([&] { test::run({}, where, 3); });
    CHECK_THAT(error, Catch::StartsWith("--checkpoint: " + folder.path() + " " + holder));
    CHECK_THAT(error, Catch::Contains("Two jobs would overwrite each other's checkpoints: wait until it has ended, or name another folder"));
    train.step();
    repl.save_checkpoint();
  }
  CHECK(files(folder.path()) == named({1}));
  CHECK_THAT(bytes_of(folder.path() + "/.lock"), Catch::StartsWith("process " + std::to_string(::getpid())));
  CHECK(test::run({}, kept(on_devices(5, 1), folder.path(), true), 4) == test::run({}, on_devices(5, 1), 4));
}

TEST_CASE("a job goes on without its stopped process that holds the folder, and takes the lock where it is free") {
  const TemporaryFolder folder;
  auto stopped = std::make_unique<CheckpointFolder>(folder.path());
  stopped->prepare();
  CheckpointFolder survivor{folder.path()};
  survivor.take_over();  // does not throw
  CheckpointFolder other{folder.path()};
  CHECK_THAT(error_of([&] { other.prepare(); }), Catch::Contains("is in use by process"));
  stopped.reset();
  CheckpointFolder next{folder.path()};
  next.take_over();
  CHECK_THAT(error_of([&] { other.prepare(); }), Catch::Contains("is in use by process"));
}

TEST_CASE("what has the name of a checkpoint and is no regular file is refused, and a named pipe is not waited for") {
  const Stopped stopped;
  const auto refused = [&](const std::string& what) {
    CHECK(stopped.error({}) == "--checkpoint: " + stopped.file(9) + ": a checkpoint must be a regular file, and this is " + what + ": move it away");
    std::filesystem::remove(stopped.file(9));
  };
  std::filesystem::create_symlink(stopped.file(), stopped.file(9));
  refused("a symbolic link");
  REQUIRE(::mkfifo(stopped.file(9).c_str(), 0600) == 0);
  refused("a named pipe");
  std::filesystem::create_directory(stopped.file(9));
  refused("a folder");

  Replicator repl{kept(on_devices(5, 1), stopped.path(), true)};
  auto train = repl.replicate(elements, step_of(Experiment{}));
  train.step();
  REQUIRE(::mkfifo(stopped.file(4).c_str(), 0600) == 0);
  CHECK(error_of([&] { repl.save_checkpoint(); }) == stopped.file(4) + ": a checkpoint must be a regular file, and this is a named pipe: move it away");
}

TEST_CASE("a file that was cut short, or of which one bit is wrong, is refused by its name") {
  const Stopped stopped;
  const auto good = bytes_of(stopped.file());
  const auto refused = [&](const std::string& bytes) {
    write_bytes(stopped.file(), bytes);
    try {
      read_checkpoint(stopped.file());
    } catch (const DataError& error) {
      return std::string{error.what()}.starts_with(stopped.file());
    }
    return false;
  };
  REQUIRE(good.size() > 2000);
  for (std::size_t size = 0; size < good.size(); size += good.size() / 37) CHECK(refused(good.substr(0, size)));
  const auto data = good.find("}}") + 2;  // behind the header, which is read with more care
  REQUIRE(data > 500);
  REQUIRE(data < good.size());
  for (std::size_t at = 0; at < good.size(); at += at < data ? 1 + at % 7 : 97) {
    auto bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    if (!refused(bytes)) FAIL_CHECK("bit " << at % 8 << " of byte " << at << " of " << good.size());
  }
  CHECK(refused(good + "x"));
  write_bytes(stopped.file(), good);
  CHECK(stopped.error({}) == "nothing");
}

TEST_CASE("numbers of a checkpoint that cannot be are refused, though its check sum is right") {
  const TemporaryFolder folder;
  const auto path = folder.path() + "/a.safetensors";
  const auto refused = [&](const std::string& key, const std::string& value, const std::string& words) {
    std::map<std::string, std::string> metadata{{"format", std::string{detail::checkpoint_format}}, {"next", "1"}};
    metadata[key] = value;
    metadata["sha256"] = detail::checksum(metadata, {});
    io::write_safetensors(path, std::vector<io::NamedTensor>{}, metadata);
    CHECK(error_of([&] { read_checkpoint(path); }) == path + " is no checkpoint: \"" + words + "\" is no number, or one that is too large");
  };
  refused("next", "4294967297", "4294967297");
  refused("next", "-1", "-1");
  refused("step 2147483648", "1 1", "2147483648");
  refused("variable w", "mirrored 99999999999", "99999999999");
  refused("step 0", "5 1 left 2 x", "x");
}

TEST_CASE("a checkpoint in which a loop was left after more steps than were done, or twice at once, is refused") {
  const TemporaryFolder folder;
  const auto path = folder.path() + "/a.safetensors";
  const auto write = [&](const std::string& value) {
    std::map<std::string, std::string> metadata{{"format", std::string{detail::checkpoint_format}}, {"next", "1"}, {"step 0", value}};
    metadata["sha256"] = detail::checksum(metadata, {});
    io::write_safetensors(path, std::vector<io::NamedTensor>{}, metadata);
    return path;
  };
  CHECK(*read_checkpoint(write("5 1 finished left 2 5")).steps.at(0).breaks == std::vector<std::uint64_t>{2, 5});
  CHECK_THAT(error_of([&] { read_checkpoint(write("5 1 left 2 6")); }),
             Catch::EndsWith("is no checkpoint: a loop of 5 steps cannot have been left after 6, the time before after 2"));
  CHECK_THAT(error_of([&] { read_checkpoint(write("5 1 left 2 2")); }), Catch::Contains("cannot have been left after 2"));
  CHECK_THAT(error_of([&] { read_checkpoint(write("5 1 left 0")); }), Catch::Contains("cannot have been left after 0"));
}

TEST_CASE("where the newest checkpoint is damaged, the one before is named but not taken") {
  const Stopped stopped;
  test::run({}, kept(on_devices(5, 1), stopped.path(), true), 4);
  auto bytes = bytes_of(stopped.file(4));
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 4);
  write_bytes(stopped.file(4), bytes);
  CHECK_THAT(stopped.error({}), Catch::StartsWith("--resume: " + stopped.file(4) + " is damaged: its content has the SHA-256 ") &&
                                    Catch::EndsWith(". No older file is used unasked: to resume from one, move the damaged file away; the newest good one is " + stopped.file(3)));
  std::filesystem::remove(stopped.file(4));
  CHECK(test::run({}, kept(on_devices(5, 1), stopped.path(), true), 5) == test::run({}, on_devices(5, 1), 5));
  write_bytes(stopped.file(3), "x"), write_bytes(stopped.file(5), "y");
  CHECK_THAT(stopped.error({}),
             Catch::StartsWith("--resume: " + stopped.file(5) + ": not a safetensors file") && Catch::EndsWith("There is no other undamaged one"));
}

TEST_CASE("a checkpoint that cannot be written ends the step with the file's name, and the last one stays") {
  const Stopped stopped;
  const rlimit small{2048, RLIM_INFINITY};
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  auto where = kept(on_devices(5, 1), stopped.path(), true);
  std::string error;
  {
    Replicator repl{where};
    auto train = repl.replicate(elements, step_of(Experiment{}));
    train.step();
    ::setrlimit(RLIMIT_FSIZE, &small);
    error = error_of([&] { repl.save_checkpoint(); });
    ::setrlimit(RLIMIT_FSIZE, &before);
  }
  ::signal(SIGXFSZ, handler);
  CHECK_THAT(error, Catch::StartsWith(stopped.file(4)) && Catch::Contains("cannot write: File too large"));
  CHECK(files(stopped.path()) == named({3}));
}

TEST_CASE("what a killed process left half written is removed, and never taken for a checkpoint") {
  const Stopped stopped;
  write_bytes(stopped.file(9) + ".4711.partial", bytes_of(stopped.file()).substr(0, 999));
  write_bytes(stopped.path() + "/step-notes.safetensors", "mine");
  CHECK(test::run({}, kept(on_devices(5, 1), stopped.path(), true), 4) == test::run({}, on_devices(5, 1), 4));
  CHECK(files(stopped.path()) == std::vector<std::string>{named(3), named(4), "step-notes.safetensors"});
}

TEST_CASE("a checkpoint is a safetensors file: variables under their names, replica-local ones stacked, the rest in its metadata") {
  const Stopped stopped;
  const auto file = io::read_safetensors(stopped.file());
  CHECK(file.tensors.at("in.weight").type().text() == "float32[8, 3]");
  CHECK(file.tensors.at("in.weight/momentum").type().text() == "float32[8, 3]");
  CHECK(file.tensors.at("norm.running_mean").type().text() == "float32[5, 8]");
  CHECK(file.metadata.at("format") == "replicator checkpoint 1");
  CHECK(file.metadata.at("step 0") == "3 6");
  CHECK(file.metadata.at("next") == "1");
  CHECK(file.metadata.at("experiment replicas") == "5");
  CHECK(file.metadata.at("experiment seed") == "17");
  CHECK(file.metadata.at("variable norm.running_mean") == "replica_local 0");
  CHECK(file.metadata.at("sha256").size() == 64);
}

TEST_CASE("the flags of checkpoints are the deployment's") {
  const std::vector<const char*> arguments{"--checkpoint", "runs/a", "--every=50", "--keep", "5", "--resume", "mine"};
  const auto where = Deployment::from(arguments);
  CHECK(where.checkpoint.folder == "runs/a");
  CHECK(where.checkpoint.every == 50);
  CHECK(where.checkpoint.keep == 5);
  CHECK(where.checkpoint.resume);
  CHECK(where.remaining == std::vector<std::string>{"mine"});
  const std::vector<const char*> none{"--keep", "0"};
  CHECK_THAT(error_of([&] { Deployment::from(none); }), Catch::Contains("--keep is \"0\""));
}

}  // namespace test_checkpoint
