// SPDX-License-Identifier: Apache-2.0
// Jobs of several processes with devices that have their own memory.
#include <signal.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <replicator/nn/nn.hpp>
#include <replicator/replicator.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"
#include "pretend_device.hpp"
#include "random_rows.hpp"

namespace test_device_processes {

using namespace replicator;
using namespace replicator::detail;

namespace {

// The digest and the last loss of each of `count` processes, and where its values passed. A gradient has 2.4 MB: several pieces, in
// copies of their own. `prepare(rank, deployment)` is called first, `each(step)` before each of three steps.
std::vector<test::ProcessResult> trained(
    int count, DeviceKind kind, int devices, const std::function<void(int, Deployment&)>& prepare, const std::function<void(int)>& each = [](int) {}) {
  return test::run_as_job(count, [&](int rank) {
    const test::PretendGpus<> gpus;
    test::pretend::order.set_process(rank);
    auto where = test::on(kind, 5, devices);
    where.deadline = std::chrono::seconds{20};
    prepare(rank, where);
    std::string text;
    {
      Replicator repl{where};
      auto train = repl.replicate(test::random_rows({2, 600}), [](ReplicaContext& replica, Tensor<float> x) {
        const auto y = nn::linear(replica, tanh(nn::linear(replica, x, "first", {.features = 1000})), "second", {.features = 1});
        const auto loss = mean(y * y);
        nn::sgd({.learning_rate = 0.01, .momentum = 0.9}).minimize(replica, loss);
        return std::tuple{loss, all_reduce(loss, Reduction::mean)};
      });
      for (int step = 0; step < 3; ++step) {
        each(step);
        const auto [loss, all] = train.step();
        text = std::to_string(mean(loss)) + " " + std::to_string(all[0].item());
      }
      text = repl.digest() + " " + text;
      const auto explained = train.explain();
      if (const auto at = explained.find("through the host's memory: "); at != std::string::npos) text += " " + explained.substr(at, explained.find('\n', at) - at);
    }
    if (gpus.in_use() != 0) text += ", but something is left on the devices";
    if (test::pretend::released_early != 0) text += ", but memory was freed while another process had it open";
    return text;
  });
}
std::string trained_alone() {
  const auto alone = trained(1, DeviceKind::cpu, 1, [](int, Deployment&) {});
  INFO(test::describe(alone));
  REQUIRE(alone[0].exit_code == 0);
  return alone[0].text;
}

}  // namespace

TEST_CASE("GPUs of several processes train with the bits of one CPU, in each other's memory") {
  const auto alone = trained_alone();
  for (const int count : {2, 3}) {
    const auto results = trained(count, DeviceKind::cuda, count == 2 ? 2 : 1, [](int, Deployment&) {});
    INFO(test::describe(results));
    // stderr is told before that not all of the memory could be pinned.
    for (const auto& result : results) CHECK_THAT(result.text, Catch::EndsWith(alone));
  }
}

TEST_CASE("GPUs of several processes audit each other's steps, in each other's memory and through the host's, and keep their bits") {
  const auto alone = trained_alone();
  for (const bool shared : {true, false})
    for (const int count : {2, 3}) {
      const auto results = trained(count, DeviceKind::cuda, count == 2 ? 2 : 1, [&](int rank, Deployment& where) {
        if (rank == 1 && !shared) test::pretend::unshared = "cuda:0 cannot open it";
        where.see.audit = 2;
      });
      INFO(test::describe(results));
      for (const auto& result : results) CHECK_THAT(result.text, Catch::Contains(alone) && !Catch::Contains(", but "));
    }
}

TEST_CASE("GPUs of processes that cannot open each other's memory pass the host's with the same bits, and explain says why") {
  const auto alone = trained_alone();
  const auto check = [&](int count, const std::string& reason, auto prepare) {
    const auto results = trained(count, DeviceKind::cuda, count == 2 ? 2 : 1, prepare);
    INFO(test::describe(results));
    for (const auto& result : results) CHECK_THAT(result.text, Catch::Contains(alone + " through the host's memory: " + reason) && !Catch::Contains(", but "));
  };
  for (const int count : {2, 3})
    check(count, "cuda:0 cannot open it, that of rank ", [](int rank, Deployment&) {
      if (rank == 1) test::pretend::unshared = "cuda:0 cannot open it";
    });
  check(2, "with --elastic a process may be lost while a queue of another one waits for it, says process 0", [](int, Deployment& where) { where.elastic = true; });
#if __has_include(<replicator/with/ucx.hpp>)
  for (const int count : {2, 3}) check(count, "--transport ucx passes messages only, says process 0", [](int, Deployment& where) { where.transport = "ucx"; });
#endif
}

TEST_CASE("a process that dies with work that another's GPU waits for ends the job in time, with an error that names it") {
  int rank = 0;
  std::thread killer;
  const auto prepare = [&](int mine, Deployment& where) {
    rank = mine;
    where.deadline = std::chrono::seconds{60};  // longer than all processes may take
  };
  const auto die_slowly = [&](int step) {
    if (rank == 0 || step == 0) return;
    test::pretend::device(0).stuck = true;  // it is given its work, and never does it
    if (!killer.joinable())
      killer = std::thread{[] {
        std::this_thread::sleep_for(std::chrono::seconds{1});
        ::raise(SIGKILL);
      }};
  };
  const auto results = trained(2, DeviceKind::cuda, 1, prepare, die_slowly);
  INFO(test::describe(results));
  CHECK(results[1].signal == SIGKILL);
  CHECK(results[0].exit_code == 1);
  CHECK_THAT(results[0].text, Catch::Contains("error: process 1 (pid ") && Catch::Contains(" died"));
  CHECK(results[0].seconds < 40);
}

}  // namespace test_device_processes
