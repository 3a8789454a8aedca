// SPDX-License-Identifier: Apache-2.0
// Jobs of several processes with devices that have their own memory.
#include <catch2/catch.hpp>

#include <string>
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

#if __has_include(<replicator/with/ucx.hpp>)
const std::vector<std::string> transports{"shared_memory", "ucx"};
#else
const std::vector<std::string> transports{"shared_memory"};
#endif

// The digest and the last loss of each of `count` processes. A gradient has 2.4 MB: several pieces, in copies of their own.
std::vector<test::ProcessResult> trained(int count, DeviceKind kind, int devices, const std::string& transport) {
  return test::run_as_job(count, [&](int) {
    const test::PretendGpus<> gpus;
    auto where = test::on(kind, 5, devices);
    where.transport = transport;
    where.deadline = std::chrono::seconds{20};
    Replicator repl{where};
    auto train = repl.replicate(test::random_rows({2, 600}), [](ReplicaContext& replica, Tensor<float> x) {
      const auto y = nn::linear(replica, tanh(nn::linear(replica, x, "first", {.features = 1000})), "second", {.features = 1});
      const auto loss = mean(y * y);
      nn::sgd({.learning_rate = 0.01, .momentum = 0.9}).minimize(replica, loss);
      return std::tuple{loss, all_reduce(loss, Reduction::mean)};
    });
    std::string text;
    for (auto [loss, all] : train.steps(3)) text = std::to_string(mean(loss)) + " " + std::to_string(all[0].item());
    const bool staged = train.explain().find("through the host's memory: processes meet there") != std::string::npos;
    return repl.digest() + " " + text + (staged ? " staged" : "");
  });
}

}  // namespace

TEST_CASE("GPUs of several processes train with the bits of one CPU, over memory that the processes share and over messages") {
  const auto alone = trained(1, DeviceKind::cpu, 1, "auto");
  INFO(test::describe(alone));
  REQUIRE(alone[0].exit_code == 0);
  for (const auto& transport : transports)
    for (const int count : {2, 3}) {
      const auto results = trained(count, DeviceKind::cuda, count == 2 ? 2 : 1, transport);
      INFO(transport << ": " << test::describe(results));
      // stderr is told before that not all of the memory could be pinned.
      for (const auto& result : results) CHECK_THAT(result.text, Catch::EndsWith(alone[0].text + " staged"));
    }
}

}  // namespace test_device_processes
