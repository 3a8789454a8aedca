// SPDX-License-Identifier: Apache-2.0
// --replay: one replica runs its recorded steps alone, with the bits it had.
#include <catch2/catch.hpp>

#include <rapidcheck.h>

#include <functional>
#include <limits>
#include <string>
#include <tuple>

#include <replicator/nn/nn.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "recordings.hpp"
#include "run_random.hpp"

namespace test_replay {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;
using test::recording;
using test::told;

namespace {

// All else that a deployment says is that of the recording.
Deployment replaying(const std::string& file) {
  Deployment where;
  where.see.replay = file;
  return where;
}

auto input(const InputContext& ctx) {
  return data::from_generator([replica = ctx.replica()](std::int64_t position) {
    PhiloxStream random{5, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(replica)};
    auto x = test::random_rows(8, random);
    return std::tuple{std::move(x), test::random_rows(8, random)};
  });
}
// A small network with batch norm, dropout and momentum.
auto train_step(ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
  const auto hidden = relu(nn::batch_norm(replica, nn::linear(replica, x, "in", {.features = 16}), "norm"));
  const auto out = nn::linear(replica, dropout(hidden, 0.25), "out", {.features = 3});
  const auto loss = mean(map([](auto a, auto b) { return (a - b) * (a - b); }, out, y));
  nn::sgd({.learning_rate = 0.1f, .momentum = 0.9f}).minimize(replica, loss);
  return std::tuple{loss, out};
}

// The mean losses with their steps, as a user's main would show them.
std::string run(Deployment where, int steps) {
  Replicator repl{std::move(where)};
  auto train = repl.replicate(input, train_step);
  std::string text;
  for (const auto& [loss, out] : train.steps(steps)) text += std::to_string(train.steps_done()) + ":" + std::to_string(mean(loss)) + " ";
  return text;
}

// A file that an experiment of 5 replicas left of replica 3, steps 1 to 3, changed afterwards.
std::string tampered(const TemporaryFolder& folder, const std::function<void(Recording&)>& change) {
  const auto file = folder.path() + "/tampered.safetensors";
  run(recording(on_devices(5, 2), 3, 1, 4, file), 4);
  auto recorded = load_recording(file);
  change(recorded);
  save_recording(file, recorded);
  return file;
}

const std::string fine = ": has the recorded bits: 2 results and 15 variables\n";

}  // namespace

TEST_CASE("a replica that runs alone has the bits it had among the others, on any placement") {
  const TemporaryFolder folder;
  for (const int devices : {1, 2, 3}) {
    const auto file = folder.path() + "/r.safetensors";
    const auto all = run(recording(on_devices(5, devices), 3, 2, 5, file), 6);
    std::string shown;
    const auto text = told(folder, [&] { shown = run(replaying(file), 6); });
    CHECK(text == "replay of replica 3, step 2" + fine + "replay of replica 3, step 3" + fine + "replay of replica 3, step 4" + fine);
    CHECK(shown.substr(0, 2) == "3:");
    CHECK(all.find(shown) != std::string::npos);  // as the whole run showed them, other replicas' losses too
  }
}

TEST_CASE("a recording of a job of two processes is replayed without the job") {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r.safetensors";
  const auto results = test::run_as_job(2, [&](int) {
    return run(recording(on_devices(5, 1), 4, 1, 3, file), 4);
  });
  INFO(test::describe(results));
  std::string shown;
  const auto text = told(folder, [&] { shown = run(replaying(file), 6); });
  CHECK(text == "replay of replica 4, step 1" + fine + "replay of replica 4, step 2" + fine);
  CHECK(shown.substr(0, 2) == "2:");
  CHECK(results[0].text.find(shown) != std::string::npos);
}

TEST_CASE("random programs with every collective replay with the same bits") {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r.safetensors";
  const bool holds = rc::check([&] {
    const auto program = test::draw_program();
    const int replicas = *rc::gen::inRange(1, 6), devices = *rc::gen::inRange(1, replicas + 1), replica = *rc::gen::inRange(0, replicas);
    auto where = recording(on_devices(replicas, devices), replica, 0, 3, file);
    where.logical_devices = *rc::gen::inRange(1, 3);
    if (devices % 2 != 0) where.logical_devices = 1;
    test::run(program, where);
    const auto text = told(folder, [&] { test::run(program, replaying(file)); });
    std::size_t good = 0;
    for (std::size_t at = 0; (at = text.find("has the recorded bits", at)) != std::string::npos; ++at) ++good;
    RC_LOG(test::text_of(program) + text);
    RC_ASSERT(good == 3u);
  });
  CHECK(holds);
}

TEST_CASE("what differs from the recording is named, and the replay fails at its end") {
  const TemporaryFolder folder;
  std::string error;
  const auto replay = [&](const std::string& file) { return told(folder, [&] { error = error_of([&] { run(replaying(file), 4); }); }); };
  SECTION("a result") {
    const auto file = tampered(folder, [](Recording& recorded) { recorded.steps[1].results[1].as<float>()[5] = 0.25f; });
    const auto text = replay(file);
    CHECK_THAT(text, Catch::Contains("step 1" + fine) && Catch::Contains("step 3" + fine));
    CHECK_THAT(text, Catch::Contains("step 2: result 1 differs: element 5 is ") && Catch::Contains(", recorded 0.25 (0x3e800000); 1 of 24 differ"));
    CHECK_THAT(error, Catch::StartsWith("replay of replica 3: 1 of 3 steps have other bits than " + file +
                                        ", first in step 2: result 1 differs: element 5 is "));
  }
  SECTION("a variable") {
    replay(tampered(folder, [](Recording& recorded) { recorded.steps[2].after.at("out.bias").as<float>()[2] = 1; }));
    CHECK_THAT(error, Catch::Contains("first in step 3: the variable \"out.bias\" differs: element 2 is ") &&
                          Catch::Contains(", recorded 1 (0x3f800000); 1 of 3 differ"));
  }
  SECTION("what came from the others") {
    const auto text = replay(tampered(folder, [](Recording& recorded) {
      for (auto& collective : recorded.steps[0].collectives) collective.as<float>()[0] += 1;
    }));
    CHECK_THAT(text, Catch::Contains("step 1: the variable \"") && Catch::Contains("step 2" + fine));
    CHECK_THAT(error, Catch::Contains("1 of 3 steps"));
  }
  SECTION("made with another library of kernels") {
    replay(tampered(folder, [](Recording& recorded) {
      recorded.kernel_library = "oneDNN 1";
      recorded.steps[2].results[0].as<float>()[0] = 1;
    }));
    CHECK_THAT(error, Catch::Contains("\nIt was recorded with other kernels: oneDNN 1, here "));
  }
  SECTION("made by another build") {
    replay(tampered(folder, [](Recording& recorded) {
      recorded.program = "other";
      recorded.steps[2].results[0].as<float>()[0] = 1;
    }));
    CHECK_THAT(error, Catch::EndsWith("\nIt was recorded by another build of the program: that alone may change bits"));
  }
}

TEST_CASE("a replay with --find-nan says that a NaN came from another replica") {
  const TemporaryFolder folder;
  auto where = replaying(tampered(folder, [](Recording& recorded) {
    for (auto& collective : recorded.steps[1].collectives) collective.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  }));
  where.see.find_nan = true;
  std::string error;
  const auto text = told(folder, [&] { error = error_of([&] { run(where, 4); }); });
  CHECK_THAT(text, Catch::Contains("step 1" + fine) &&
                       Catch::EndsWith("replay of replica 3, step 2: is ended by a check, of --find-nan for instance; it did not fail when it was recorded\n"));
  CHECK_THAT(error, Catch::StartsWith("replica 3, step 2: all_reduce ") &&
                        Catch::EndsWith(" has a NaN in the recording; what this replica gave to it was finite: another replica gave it, or the sum made it. Run the "
                                        "whole job with --find-nan, or record another replica"));
}

TEST_CASE("a recording of another program is refused with what differs") {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r.safetensors";
  run(recording(on_devices(2, 1), 1, 0, 1, file), 1);
  const std::string start = "--replay: " + file + " was recorded by another program, step 0: ";
  const std::string mend = ". Replay it with the program, and the arguments, that recorded it";
  const auto error = [&](auto step_fn) {
    return error_of([&] {
      Replicator repl{replaying(file)};
      repl.replicate(input, step_fn).step();
    });
  };
  CHECK_THAT(error([](ReplicaContext&, Tensor<float> x, Tensor<float>) { return x; }),
             Catch::StartsWith(start + "the step asks for 0 collectives, there it was ") && Catch::EndsWith(mend));
  CHECK_THAT(error([](ReplicaContext&, Tensor<float> x, Tensor<float>) { return all_reduce(x, Reduction::sum); }),
             Catch::StartsWith(start + "all_reduce at ") && Catch::Contains(" gives float32[8, 3], collective 0 there float32["));
  CHECK_THAT(error([](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
               auto results = train_step(replica, x, y);
               auto more = replica.variable<float>("more", {7}, Initializer::zeros());
               more.assign(more.read() + 1.0f);
               return results;
             }),
             Catch::StartsWith(start + "it has no variable \"more\", declared at "));
  CHECK(error_of([&] {
          Replicator repl{replaying(file)};
          repl.replicate([](const InputContext&) { return data::from_generator([](std::int64_t) { return Array<float>{Shape{1}}; }); },
                         [](ReplicaContext&, Tensor<float> x) { return x; });
        }) == start + "its input element has other components" + mend);
}

TEST_CASE("a step that failed is replayed up to its failure") {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r.safetensors";
  const auto look_up = [](Deployment where) {
    Replicator repl{std::move(where)};
    auto step = test::failing_step(repl);
    while (!step.finished()) step.step();
  };
  const auto error = error_of([&] { look_up(recording(on_devices(2, 2), 1, 1, 9, file)); });
  std::string again;
  const auto text = told(folder, [&] { again = error_of([&] { look_up(replaying(file)); }); });
  CHECK_THAT(error, Catch::Contains("gather at "));
  CHECK_THAT(again, Catch::StartsWith("replica 1: gather at "));
  CHECK_THAT(text, Catch::StartsWith("replay of replica 1, step 1: has the recorded bits: 1 result and 0 variables\n"
                                     "replay of replica 1, step 2: fails; when it was recorded: "));
}

TEST_CASE("a replay asks no input function, and steps that were not recorded are over") {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r.safetensors";
  run(recording(on_devices(3, 1), 2, 4, 6, file), 6);
  told(folder, [&] {
    Replicator repl{replaying(file)};
    CHECK(repl.replicas() == 3);
    CHECK(repl.deployment().seed == 17);
    const auto no_data = [](const InputContext& ctx) {
      if (ctx.replica() >= 0) throw DataError{"there is no data here"};
      return input(ctx);
    };
    const auto no_host_data = [&](const HostContext&) { return no_data(repl.input_context(2)); };
    auto train = repl.replicate(no_data, train_step);
    auto evaluate = repl.replicate(no_host_data, train_step);
    CHECK(evaluate.finished());
    CHECK(error_of([&] { evaluate.explain(); }) == "no step was recorded of this replicated step: there is no input to trace it with");
    CHECK_THAT(error_of([&] { evaluate.step(); }), Catch::Contains("step at test_replay.cpp:") && Catch::Contains("no step was recorded of this replicated step") &&
                                                       Catch::Contains("run it by steps(1), which a replay leaves out"));
    for (const auto& results : evaluate.steps(1)) FAIL(std::get<0>(results));
    CHECK(train.steps_done() == 4);
    CHECK(std::get<0>(train.step()).whole());
    CHECK_FALSE(train.finished());
    train.step();
    CHECK(train.finished());
    CHECK(train.steps_done() == 6);
    CHECK_THAT(train.explain(), Catch::Contains("all_reduce"));
  });
}

TEST_CASE("files that are no recordings are refused") {
  const TemporaryFolder folder;
  CHECK_THAT(error_of([&] { Replicator{replaying(folder.path() + "/none")}; }), Catch::StartsWith("--replay: " + folder.path() + "/none: cannot open for reading"));
  const auto file = folder.path() + "/weights.safetensors";
  io::write_safetensors(file, std::map<std::string, AnyArray>{{"w", AnyArray{TensorType{DType::float32, {2}}}}});
  CHECK(error_of([&] { Replicator{replaying(file)}; }) == "--replay: " + file + ": it was not written by --record: its metadata lacks \"format\"");
  io::write_safetensors(file, std::map<std::string, AnyArray>{}, {{"format", "pt"}});
  CHECK(error_of([&] { Replicator{replaying(file)}; }) == "--replay: " + file + ": it was not written by --record: its format is \"pt\"");
  run(recording(on_devices(2, 1), 1, 0, 1, file), 1);
  CHECK(error_of([&] { Replicator{recording(replaying(file), 0, 0, 1, file)}; }) ==
        "--record and --replay were both given: a replay receives only what is in its file already");
}

}  // namespace test_replay
