// SPDX-License-Identifier: Apache-2.0
// --record: the inputs of a replica in some steps, in a file.
#include <catch2/catch.hpp>

#include <filesystem>
#include <string>
#include <tuple>

#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "recordings.hpp"

namespace test_record {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;
using test::recording;

namespace {

auto numbers(const InputContext& ctx) {
  return data::from_generator([r = ctx.replica()](std::int64_t i) { return Array<float>{{2}, {static_cast<float>(i), static_cast<float>(10 * r)}}; });
}

// total: the sum over replicas of all inputs; seen: what this replica has seen.
auto train_step(ReplicaContext& replica, Tensor<float> x) {
  auto total = replica.variable<float>("total", {2}, Initializer::constant(0));
  auto seen = replica.variable<float>("seen", {2}, Initializer::constant(0), {VariableKind::replica_local});
  auto fixed = replica.variable<float>("fixed", {2}, Initializer::constant(3));
  const auto sum = all_reduce(x, Reduction::sum);
  const auto top = all_reduce(x, Reduction::max);
  total.assign(total.read() + sum * fixed.read());
  seen.assign(seen.read() + x);
  return std::tuple{x + sum, top};
}

std::string run(Deployment where, int steps) {
  Replicator repl{std::move(where)};
  auto train = repl.replicate(numbers, train_step);
  for (int i = 0; i < steps; ++i) train.step();
  return repl.digest();
}

std::vector<float> floats(const AnyArray& array) {
  const auto values = array.as<float>();
  return {values.begin(), values.end()};
}
using Floats = std::vector<float>;

}  // namespace

TEST_CASE("a recording holds what the replica received and made, on any placement, and changes no bit") {
  const TemporaryFolder folder;
  const auto plain = run(on_devices(5, 1), 4);
  for (const int devices : {1, 2, 3}) {
    const auto file = folder.path() + "/r" + std::to_string(devices) + ".safetensors";
    CHECK(run(recording(on_devices(5, devices), 3, 1, 3, file), 4) == plain);
    const auto recorded = load_recording(file);
    CHECK(recorded.replica == 3);
    CHECK(recorded.replicas == 5);
    CHECK(recorded.seed == 17);
    REQUIRE(recorded.steps.size() == 2);
    const auto& first = recorded.steps[0];
    CHECK(first.number == 1);
    CHECK(first.ordinal == 0);
    REQUIRE(first.inputs.size() == 1);
    CHECK(floats(first.inputs[0]) == Floats{1, 30});
    REQUIRE(first.collectives.size() == 2);
    CHECK(floats(first.collectives[0]) == Floats{5, 100});
    CHECK(floats(first.collectives[1]) == Floats{1, 40});
    REQUIRE(first.results.size() == 2);
    CHECK(floats(first.results[0]) == Floats{6, 130});
    CHECK(floats(first.results[1]) == Floats{1, 40});
    REQUIRE(first.all_results.size() == 1);  // the other one is the same on all
    CHECK(floats(first.all_results.at(0)) == Floats{6, 100, 6, 110, 6, 120, 6, 130, 6, 140});
    CHECK(floats(*recorded.before(0, "total")) == Floats{0, 300});
    CHECK(floats(*recorded.after(0, "total")) == Floats{15, 600});
    CHECK(floats(*recorded.before(1, "total")) == Floats{15, 600});
    CHECK(floats(*recorded.after(1, "total")) == Floats{45, 900});
    CHECK(floats(*recorded.after(1, "seen")) == Floats{3, 90});
    CHECK(recorded.steps[1].before.empty());             // as after the step before
    CHECK(recorded.steps[0].after.count("fixed") == 0);  // as before
  }
}

TEST_CASE("the process that has the replica records it") {
  const TemporaryFolder folder;
  const auto plain = run(on_devices(5, 1), 3);
  const auto file = folder.path() + "/r.safetensors";
  const auto results = test::run_as_job(2, [&](int) {
    return run(recording(on_devices(5, 1), 4, 0, 9, file), 3);
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::EndsWith(plain));  // behind what process 0 says of the window
  const auto recorded = load_recording(file);
  CHECK(recorded.steps.size() == 3);  // the window was longer
  CHECK(floats(recorded.steps[2].inputs[0]) == Floats{2, 40});
  CHECK(floats(recorded.steps[2].all_results.at(0)) == Floats{12, 100, 12, 110, 12, 120, 12, 130, 12, 140});
}

TEST_CASE("a step that fails is recorded with its error") {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r.safetensors";
  {
    Replicator repl{recording(on_devices(2, 2), 1, 0, 9, file)};
    auto train = test::failing_step(repl);
    train.step();
    train.step();
    CHECK(error_of([&] { train.step(); }) != "nothing");
  }
  const auto recorded = load_recording(file);
  REQUIRE(recorded.steps.size() == 3);
  CHECK(recorded.steps[1].error.empty());
  CHECK_THAT(recorded.steps[2].error, Catch::Contains("gather at "));
  CHECK(recorded.steps[2].inputs[0].as<std::int32_t>()[0] == 2);
  CHECK(recorded.steps[2].results.empty());
}

TEST_CASE("the steps of several replicate calls are kept apart") {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r.safetensors";
  {
    Replicator repl{recording(on_devices(2, 1), 0, 1, 2, file)};
    auto train = repl.replicate(numbers, train_step);
    auto look = repl.replicate(numbers, [](ReplicaContext& replica, Tensor<float> x) {
      return x + replica.variable<float>("total", {2}, Initializer::constant(0)).read();
    });
    for (int i = 0; i < 3; ++i) {
      train.step();
      look.step();
    }
  }
  const auto recorded = load_recording(file);
  REQUIRE(recorded.steps.size() == 2);
  CHECK(recorded.steps[0].key() == "1");
  CHECK(recorded.steps[1].key() == "1.1");
  CHECK(recorded.steps[1].before.empty());
  CHECK(floats(recorded.steps[1].results[0]) == Floats{7, 60});
}

TEST_CASE("steps that were to be recorded or timed and never came are told at the end") {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/r";
  const auto told = [&](const Deployment& where, int steps) { return test::told(folder, [&] { run(where, steps); }); };
  CHECK(told(recording(on_devices(2, 2), 1, 100, 110, file), 3) ==
        "replicator: --record asked for the steps 100 to 109, but the run had the steps 0 to 2, 3 in all: nothing was recorded\n");
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(told(recording(on_devices(2, 2), 1, 1, 5, file), 3) ==
        "replicator: --record asked for the steps 1 to 4, but the run had the steps 0 to 2, 3 in all: only 2 of the 4 were recorded\n");
  CHECK(told(recording(on_devices(2, 2), 1, 1, 3, file), 3).empty());
  CHECK(told(recording(on_devices(2, 1), 0, 0, 1, file), 0) ==
        "replicator: --record asked for the steps 0 to 0, but the run had no step: nothing was recorded\n");

  auto timed = on_devices(2, 1);
  timed.see.trace = folder.path() + "/trace.json";
  CHECK(told(timed, 3).empty());  // the window that is there by default may be cut
  CHECK(told(timed, 1) == "replicator: --trace-steps asked for the steps 1 to 10, but the run had the steps 0 to 0, 1 in all: nothing was timed\n");
  timed.see.trace_steps = {2, 5};
  CHECK(told(timed, 3) ==
        "replicator: --trace-steps asked for the steps 2 to 4, but the run had the steps 0 to 2, 3 in all: only 1 of the 3 were timed\n");
  timed.see.trace_steps = {500, 510};
  timed.see.record = RecordOptions{0, {7, 8}, file};
  CHECK(told(timed, 2) ==
        "replicator: --record asked for the steps 7 to 7, but the run had the steps 0 to 1, 2 in all: nothing was recorded\n"
        "replicator: --trace-steps asked for the steps 500 to 509, but the run had the steps 0 to 1, 2 in all: nothing was timed\n");
}

TEST_CASE("what cannot be recorded is said at once") {
  const TemporaryFolder folder;
  CHECK(error_of([&] { run(recording(on_devices(2, 1), 2, 0, 1, folder.path() + "/r"), 1); }) ==
        "--record asks for replica 2, but there are 2 replicas: name one from 0 to 1");
  CHECK_THAT(error_of([&] { run(recording(on_devices(2, 1), 1, 0, 1, folder.path() + "/no/r"), 1); }),
             Catch::Contains("/no/r: cannot create"));
}

TEST_CASE("--record is read in any order and refused when malformed") {
  const auto parsed = RecordOptions::parse("steps=100:110,file=a,replica=3");
  CHECK(parsed.replica == 3);
  CHECK(parsed.steps.first == 100);
  CHECK(parsed.steps.end == 110);
  CHECK(parsed.file == "a");
  CHECK(RecordOptions::parse("replica=3,steps=0:1").file == "replica3.safetensors");
  const std::string mend = "; write it as replica=3,steps=100:110 or replica=3,steps=100:110,file=F";
  const auto error = [](const char* text) { return error_of([&] { Deployment::from(std::vector<const char*>{"--record", text}); }); };
  CHECK(error("replica=3") == "--record is \"replica=3\": it does not say which steps" + mend);
  CHECK(error("steps=1:2") == "--record is \"steps=1:2\": it does not say which replica" + mend);
  CHECK(error("replica=x,steps=1:2") == "--record is \"replica=x,steps=1:2\": replica must be a whole number, at least 0" + mend);
  CHECK(error("replica=-1,steps=1:2") == "--record is \"replica=-1,steps=1:2\": replica must be a whole number, at least 0" + mend);
  CHECK(error("replica=1,steps=1:2,to=F") == "--record is \"replica=1,steps=1:2,to=F\": it has \"to=F\"" + mend);
  for (const char* steps : {"2:2", "1", "1:", ":2", "a:b", "3:2"})
    CHECK(error(("replica=1,steps=" + std::string{steps}).c_str()) ==
          "--record: steps is \"" + std::string{steps} + "\": it must be two whole numbers, as in 1:11, the first below the second");
}

}  // namespace test_record
