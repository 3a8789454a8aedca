// SPDX-License-Identifier: Apache-2.0
// all_to_all, collectives inside groups, and thunks dealt over replicas between processes: the bits of one process.
#include <catch2/catch.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/all_to_all.hpp>
#include <replicator/resolve/map_over_replicas.hpp>
#include <replicator/with/ucx.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_group_processes {

using namespace replicator;
using namespace replicator::detail;
using T = Tensor<float>;

namespace {

// What a few steps leave, as text: random numbers through every kind of collective, into a replica-local variable.
std::string train(int replicas, int devices, const std::string& transport) {
  Deployment where = test::on_devices(replicas, devices);
  where.transport = transport;
  Replicator repl{where};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([r = ctx.replica()](std::int64_t i) {
      return Array<float>{{}, {static_cast<float>(r) + 0.1f * static_cast<float>(i)}};
    });
  };
  auto step = repl.replicate(input_fn, [](ReplicaContext& replica, T x) {
    const int n = replica.count();
    auto state = replica.variable<float>("state", {6 * n, 1000}, Initializer::zeros(), {VariableKind::replica_local});
    const CollectiveOptions dealt{.group = {{0, 2, 5}, {1, 3, 4}}}, uneven{.group = {{0, 4}, {1, 2, 3, 5}}};
    T y = normal<float>(replica, {6 * n, 1000}) + x;
    y = all_to_all(y) + all_to_all(y * 0.5f, 0, 0, dealt);
    y = all_reduce(y, Reduction::mean, dealt) + all_reduce(y, Reduction::sum, uneven) + broadcast(y, 1, uneven);
    y = y + sum(all_gather(reduce_scatter(y, Reduction::sum, dealt), dealt));
    std::vector<std::function<T()>> thunks;
    for (int i = 0; i < 4; ++i) thunks.push_back([y, i] { return tanh(y) * static_cast<float>(i); });
    y = y + map_reduce(replica, thunks, Reduction::mean, dealt) + mean(map_gather(replica, thunks));
    state.assign(state.read() * 0.5f + y);
    return std::tuple{mean(y), all_reduce(sum(x), Reduction::sum, uneven)};
  });
  std::string bytes;
  for (const auto& [loss, total] : step.steps(3))
    for (int r = 0; r < replicas; ++r) bytes += std::to_string(loss[r].item()) + " " + std::to_string(total[r].item()) + "\n";
  return bytes + repl.digest();
}

}  // namespace

TEST_CASE("all_to_all, groups and dealt thunks have the bits of one process on several, whatever moves the bytes") {
  const auto alone = test::run_processes(1, [](int) { return train(6, 1, "auto"); });
  REQUIRE(alone[0].exit_code == 0);
  for (const auto& [processes, devices, transport] :
       {std::tuple{2, 2, "shared_memory"}, {3, 1, "shared_memory"}, {6, 1, "shared_memory"}, {3, 1, "ucx"}, {2, 3, "ucx"}}) {
    const auto results = test::run_as_job(processes, [&, each = devices, wire = transport](int) {
      return train(6, each, wire);
    });
    INFO(transport << "\n"
                   << test::describe(results));
    for (const auto& result : results) CHECK(result.text == alone[0].text);
  }
}

TEST_CASE("processes whose replicas name different groups are told which, before anything moves") {
  const auto results = test::run_as_job(2, [](int rank) {
    Replicator repl{test::on_devices(4, 1)};
    repl.replicate([](const InputContext&) { return data::from_generator([](std::int64_t) { return Array<float>{{}, {1}}; }); },
                   [rank](ReplicaContext&, T x) { return all_reduce(x, Reduction::sum, {.group = rank ? group_rows(4, 2) : group_columns(4, 2)}); });
    return std::string{"no error"};
  });
  INFO(test::describe(results));
  for (const auto& result : results)
    CHECK_THAT(result.text, Catch::Contains("the processes of this job differ in collective 0: process 1 (pid ") &&
                                Catch::Contains(") has all_reduce at test_group_processes.cpp:") &&
                                Catch::Contains("groups=[0, 1], [2, 3]") && Catch::Contains("groups=[0, 2], [1, 3]"));
}

}  // namespace test_group_processes
