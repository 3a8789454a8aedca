// SPDX-License-Identifier: Apache-2.0
// --check-drift: mirrored variables have the same bits on all devices.
#include <catch2/catch.hpp>

#include <string>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_drift {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;

namespace {

Deployment checking(Deployment where, std::uint64_t every) {
  where.see.check_drift = every;
  return where;
}

auto ones(const InputContext&) {
  return data::from_generator([](std::int64_t) { return Array<float>{{3}, {1, 1, 1}}; });
}
auto train_step(ReplicaContext& replica, Tensor<float> x) {
  auto still = replica.variable<float>("still", {2}, Initializer::constant(7));
  auto total = replica.variable<float>("total", {3}, Initializer::constant(0));
  auto own = replica.variable<float>("own", {}, Initializer::constant(0), {VariableKind::replica_local});
  own.assign(own.read() + static_cast<float>(replica.id()));
  total.assign(total.read() + all_reduce(x, Reduction::mean));
  return all_reduce(x, Reduction::max) + sum(still.read());
}

// What a faulty memory does to a device's copy.
void damage(Replicator& repl, const std::string& variable, int device, std::int64_t element, float value) {
  const_cast<AnyArray&>(repl.value(variable, device)).as<float>()[static_cast<std::size_t>(element)] = value;
}

const std::string advice =
    " elements differ. All copies are computed alike, so one of them was written by something else, or memory or "
    "processor of one device is faulty: see whether it is always the same device, and --record a replica there";

}  // namespace

TEST_CASE("steps without drift pass the check, replica-local variables may differ") {
  Replicator repl{checking(on_devices(5, 3), 1)};
  auto train = repl.replicate(ones, train_step);
  for (int i = 0; i < 3; ++i) train.step();
  CHECK(repl.value("total").as<float>()[0] == 3);
  CHECK(repl.value("own", 4).as<float>()[0] == 12);
}

TEST_CASE("a copy that drifts is found at the next check, with device, variable, element and both values") {
  Replicator repl{checking(on_devices(5, 3), 3)};
  auto train = repl.replicate(ones, train_step);
  train.step();
  damage(repl, "total", 2, 1, 0.5f);
  damage(repl, "total", 2, 2, 0.25f);
  train.step();  // no check yet
  const std::string found =
      "after step 2 the mirrored variable \"total\" differs between devices: on cpu:2 element 1 is 2.5 (0x40200000), "
      "on cpu:0 3 (0x40400000); 2 of 3" +
      advice;
  CHECK(error_of([&] { train.step(); }) == found);
  CHECK(error_of([&] { train.step(); }) == found);  // there is no other answer from now on
}

TEST_CASE("a bit that no number shows is drift too") {
  Replicator repl{checking(on_devices(2, 2), 1)};
  auto train = repl.replicate(ones, train_step);
  train.step();
  damage(repl, "still", 0, 0, 0.0f);
  damage(repl, "still", 1, 0, -0.0f);
  CHECK_THAT(error_of([&] { train.step(); }),
             Catch::Contains(
                 "\"still\" differs between devices: on cpu:1 element 0 is -0 (0x80000000), on cpu:0 0 (0x00000000)"));
}

TEST_CASE("drift between processes is told by all of them") {
  const auto results = test::run_as_job(3, [&](int rank) {
    Replicator repl{checking(on_devices(6, 2), 2)};
    auto train = repl.replicate(ones, train_step);
    train.step();
    if (rank == 1) damage(repl, "still", 1, 1, 8);
    return error_of([&] { train.step(); });
  });
  INFO(test::describe(results));
  for (const auto& result : results)
    CHECK(result.text ==
          "after step 1 the mirrored variable \"still\" differs between devices: on cpu:1 of process 1 element 1 is 8 "
          "(0x41000000), on cpu:0 of process 0 7 (0x40e00000); 1 of 2" +
              advice);
}

TEST_CASE("processes that check at different steps are told so") {
  const auto results = test::run_as_job(2, [&](int rank) {
    return error_of([&] { Replicator repl{checking(on_devices(2, 1), rank == 0 ? 5 : 6)}; });
  });
  INFO(test::describe(results));
  CHECK_THAT(results[1].text, Catch::Contains("--check-drift"));
}

TEST_CASE("--check-drift takes a number of steps") {
  const auto parsed = [](const char* text) { return Deployment::from(std::vector<const char*>{"--check-drift", text}); };
  CHECK(parsed("100").see.check_drift == 100);
  CHECK(error_of([&] { parsed("0"); }) == "--check-drift is \"0\": it must be a whole number, at least 1");
}

}  // namespace test_drift
