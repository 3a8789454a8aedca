// SPDX-License-Identifier: Apache-2.0
// Common networks train to one digest wherever their replicas run.
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <replicator/replicator.hpp>

#include "../../bench/architectures/catalog.hpp"
#include "../replicate/deployments.hpp"
#include "../support/programs.hpp"

namespace test_architecture_placements {

namespace rp = replicator;
using namespace replicator::test;

namespace {

constexpr int replicas = 5, steps = 3;

// Each replica has a batch of its own.
template <class Model>
auto batches(const Model& model, std::int64_t replica) {
  auto [numbers, labels] = architectures::batch<float>(model.numbers(), model.labels(), model.classes);
  for (std::int64_t i = 0; i < numbers.size(); ++i) numbers[i] += 0.25f * static_cast<float>(replica);
  for (std::int64_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>((labels[i] + replica) % model.classes);
  return rp::data::from_generator([numbers = std::move(numbers), labels = std::move(labels)]() { return std::tuple{numbers, labels}; });
}

std::string digest_of(const std::string& name, const rp::Deployment& where) {
  return std::visit(
      [&](const auto& model) {
        rp::Replicator repl{where};
        auto train = repl.replicate([&](const rp::InputContext& ctx) { return batches(model, ctx.replica()); },
                                    [&](rp::ReplicaContext& replica, rp::Tensor<float> numbers, rp::Tensor<std::int32_t> labels) {
                                      const auto loss = model.loss(replica, numbers, labels);
                                      rp::nn::sgd({.learning_rate = 0.01, .momentum = 0.9}).minimize(replica, loss);
                                      return loss;
                                    });
        for (int i = 0; i < steps; ++i) train.step();
        return repl.digest();
      },
      architectures::catalog().at(name));
}

}  // namespace

TEST_CASE("common networks have one digest on one to five devices, and on two and three processes") {
  const std::string name = GENERATE("tiny/convnext", "tiny/vit", "tiny/gpt", "tiny/unet", "tiny/mobilenet_v2", "tiny/gru");
  CAPTURE(name);
  // The first run is in a process, too: processes may be forked only while this one has a single thread.
  const auto on_processes = [&](int processes, int devices, const std::string& transport) {
    return run_as_job(processes, [&](int) {
      auto where = on_devices(replicas, devices);
      where.transport = transport;
      return digest_of(name, where);
    });
  };
  const auto expected = on_processes(1, 1, "shared_memory")[0].text;
  REQUIRE(expected.size() == 64);
  for (const auto& [processes, devices] : std::vector<std::pair<int, int>>{{1, 2}, {1, 3}, {1, 5}, {3, 1}, {2, 2}}) {
    const auto results = on_processes(processes, devices, processes == 3 && built_with_ucx ? "ucx" : "shared_memory");
    INFO(processes << " processes with " << devices << " devices each\n"
                   << describe(results));
    for (const auto& result : results) CHECK(result.text == expected);
  }
}

}  // namespace test_architecture_placements
