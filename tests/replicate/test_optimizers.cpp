// SPDX-License-Identifier: Apache-2.0
// Promise 1 for every optimizer: the same bits on any placement, and across a checkpoint.
#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/replicator.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "deployments.hpp"

using namespace replicator;

namespace {

struct Case {
  const char* name;
  std::function<void(ReplicaContext&, Tensor<float>)> minimize;
};

template <class Make>
Case with(const char* name, Make make) {
  return {name, [make](ReplicaContext& replica, Tensor<float> loss) { make().minimize(replica, loss); }};
}

std::vector<Case> cases() {
  const nn::Rate rate = nn::warmup_cosine(0.05, 1, 4);
  return {
      with("sgd", [=] { return nn::sgd({.learning_rate = rate, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}); }),
      with("adam", [=] { return nn::adam({.learning_rate = rate, .weight_decay = 0.01}); }),
      with("adamw", [=] { return nn::adamw({.learning_rate = rate, .decay_vectors = false}); }),
  };
}

// Six replicas of a small network: the digest of all variables after these steps.
std::string train(const Case& optimizer, const Deployment& where, int steps = 3) {
  Replicator repl{where};
  auto step = repl.replicate(
      [](const InputContext& ctx) {
        return data::from_generator([r = ctx.replica()](std::int64_t at) {
          PhiloxStream random{9, static_cast<std::uint64_t>(at), static_cast<std::uint32_t>(r)};
          Array<float> x{{4, 11}}, y{{4, 3}};
          for (auto& value : x) value = random.uniform();
          for (auto& value : y) value = random.uniform();
          return std::tuple{std::move(x), std::move(y)};
        });
      },
      [&](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
        const auto h = tanh(nn::linear(replica, x, "in", {.features = 7}));
        const auto error = nn::linear(replica, h, "out", {.features = 3}) - y;
        const auto loss = mean(error * error);
        optimizer.minimize(replica, loss);
        return loss;
      });
  for (const auto& results : step.steps(steps)) (void)results;
  repl.save_checkpoint();
  return repl.digest();
}

Deployment placed(int devices, std::int64_t bucket_bytes = 4 << 20) {
  Deployment where = test::on_devices(6, devices);
  where.bucket_bytes = bucket_bytes;
  return where;
}

}  // namespace

TEST_CASE("every optimizer has the same bits on any number of devices, with buckets of any size, in one process and in two") {
  const auto trained = [](int devices, std::int64_t bucket_bytes) {
    std::string digests;
    for (const auto& one : cases()) digests += std::string{one.name} + " " + train(one, placed(devices, bucket_bytes)) + "\n";
    return digests;
  };
  const auto job = test::run_as_job(2, [&](int) { return trained(2, 4 << 20); });
  const auto alone = trained(1, 4 << 20);
  INFO(test::describe(job));
  for (const auto& process : job) CHECK(process.text == alone);
  CHECK(trained(2, 1) == alone);
  CHECK(trained(3, 64) == alone);
  CHECK(trained(5, 4 << 20) == alone);
}

TEST_CASE("no two optimizers do the same, and each goes on from a checkpoint with the bits of a run that never stopped") {
  const TemporaryFolder folder;
  std::vector<std::string> ends;
  for (const auto& one : cases()) {
    INFO(one.name);
    auto kept = placed(2);
    kept.checkpoint.folder = folder.path() + "/" + one.name;
    train(one, kept, 2);
    kept.checkpoint.resume = true;
    ends.push_back(train(one, kept, 4));
    CHECK(ends.back() == train(one, placed(1), 4));
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) CHECK(ends[i] != ends.back());
  }
}
