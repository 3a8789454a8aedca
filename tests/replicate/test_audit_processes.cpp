// SPDX-License-Identifier: Apache-2.0
// --audit in jobs of several processes: all of them name the faulty device, and an elastic job goes on without it.
#include <catch2/catch.hpp>

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"
#include "flipped_bits.hpp"

namespace test_audit_processes {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::error_of;
using replicator::test::flipped;
using Cpus = replicator::test::FlippingCpus<Map, Reduce, Matmul>;

namespace {

constexpr int replicas = 6, steps = 5;

auto rows(const InputContext& context) {
  return data::from_generator([replica = context.replica()](std::int64_t n) {
    Array<float> x{{3, 4}};
    for (int i = 0; i < 12; ++i) x[i] = static_cast<float>(replica + i) * 0.1f + static_cast<float>(n % 7);
    return x;
  });
}
auto train_step(ReplicaContext& replica, Tensor<float> x) {
  auto own = replica.variable<float>("own", {}, Initializer::constant(0), {VariableKind::replica_local});
  const auto loss = mean(tanh(nn::linear(replica, x, "layer", {.features = 5})));
  nn::sgd({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
  own.assign(own.read() + loss);
  return loss;
}

Deployment of_job(int devices, std::uint64_t audit, bool elastic = false) {
  auto where = test::on_devices(replicas, devices);
  where.see.audit = audit;
  where.elastic = elastic;
  return where;
}
// Of an undisturbed run.
std::string sound_digest() {
  return test::run_as_job(1, [](int) {
           Replicator repl{of_job(1, 0)};
           auto train = repl.replicate(rows, train_step);
           for (int i = 0; i < steps; ++i) train.step();
           return repl.digest();
         })[0]
      .text;
}

// The last device of process `faulty` flips a bit in step 2, which is audited.
std::string run(int rank, int faulty, const Deployment& where, int processes = 3) {
  const Cpus cpus;
  const int devices = static_cast<int>(where.devices.size());
  Replicator repl{where};
  auto train = repl.replicate(rows, train_step);
  for (int i = 0; i < steps; ++i) {
    if (i == 0 && rank == faulty) Cpus::learn(replicas, processes * devices, devices);
    if (i == 2 && rank == faulty) {
      test::count_from_here();
      flipped = {devices - 1, 3, 12};
    }
    train.step();
    Cpus::learnt();
  }
  return repl.digest();
}

}  // namespace

TEST_CASE("processes audit each other, and the bits stay as they are") {
  const auto expected = sound_digest();
  REQUIRE(expected.size() == 64);
  for (const std::string& transport : test::built_with_ucx ? std::vector<std::string>{"shared_memory", "ucx"} : std::vector<std::string>{"shared_memory"})
    for (const auto& [processes, devices] : std::vector<std::pair<int, int>>{{2, 1}, {3, 1}, {3, 2}, {2, 3}}) {
      const auto results = test::run_as_job(processes, [&](int rank) {
        auto where = of_job(devices, 1);
        where.transport = transport;
        return run(rank, -1, where);
      });
      INFO(test::describe(results));
      for (const auto& result : results) CHECK(result.text == expected);
    }
}

TEST_CASE("all processes name the faulty device and its process") {
  for (const int devices : {1, 2})
    for (const int faulty : {0, 2}) {
      const auto results = test::run_as_job(3, [&](int rank) { return error_of([&] { run(rank, faulty, of_job(devices, 3)); }); });
      INFO(test::describe(results));
      const auto name = "cpu:" + std::to_string(devices - 1) + " of process " + std::to_string(faulty) + " (pid ";
      for (const auto& result : results) {
        CHECK_THAT(result.text, Catch::StartsWith("step 2, which was computed twice: "));
        CHECK_THAT(result.text, Catch::Contains("so the processor or the memory of " + name) && Catch::Contains("Leave " + name));
        CHECK(result.text == results[0].text);
      }
    }
}

TEST_CASE("an elastic job goes on without the process of the faulty device, with the bits of a sound run") {
  const auto expected = sound_digest();
  for (const int devices : {1, 2})
    for (const int faulty : {0, 1}) {
      const auto results = test::run_as_job(3, [&](int rank) {
        try {
          return run(rank, faulty, of_job(devices, 3, true));
        } catch (const CommunicationError& error) {
          return std::string{"left: "} + error.what();
        }
      });
      INFO(test::describe(results));
      for (int process = 0; process < 3; ++process) {
        const auto& text = results[static_cast<std::size_t>(process)].text;
        if (process == faulty) CHECK_THAT(text, Catch::StartsWith("left: step 2, which was computed twice: ") && Catch::Contains("cpu:" + std::to_string(devices - 1) + " of process " + std::to_string(faulty)));
        else CHECK(text.ends_with(expected));
      }
    }
}

TEST_CASE("an elastic job that shrinks to one device says that it is no longer audited, and goes on") {
  const auto expected = sound_digest();
  const auto results = test::run_as_job(2, [&](int rank) {
    auto where = of_job(1, 1, true);
    Replicator repl{where};
    auto train = repl.replicate(rows, train_step);
    for (int i = 0; i < steps; ++i) {
      if (i == 2 && rank == 1) ::raise(SIGKILL);
      train.step();
    }
    return repl.digest();
  });
  INFO(test::describe(results));
  CHECK(results[0].text.ends_with(expected));
}

TEST_CASE("replicas of other processes must do the same to be audited there") {
  const auto results = test::run_as_job(2, [](int rank) {
    static_cast<void>(rank);
    return error_of([&] {
      Replicator repl{of_job(1, 10)};
      auto train = repl.replicate(rows, [](ReplicaContext& replica, Tensor<float> x) { return all_reduce(replica.id() == 0 ? mean(x * 2.0f) : mean(x), Reduction::mean); });
    });
  });
  INFO(test::describe(results));
  for (const auto& result : results)
    CHECK_THAT(result.text, Catch::StartsWith("--audit 10: process 1 (pid ") && Catch::Contains("would compute the step of replica 0 again, but that step is not like the one of any replica there"));
}

TEST_CASE("processes that audit different steps are told so") {
  const auto results = test::run_as_job(2, [](int rank) { return error_of([&] { Replicator repl{of_job(2, rank == 0 ? 5u : 6u)}; }); });
  INFO(test::describe(results));
  CHECK_THAT(results[1].text, Catch::Contains("--audit"));
}

}  // namespace test_audit_processes
