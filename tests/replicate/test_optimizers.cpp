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

using T = Tensor<float>;

T loss_of(ReplicaContext& replica, T x, T y) {
  const auto h = tanh(nn::linear(replica, x, "in", {.features = 7}));
  const auto last = replica.logical_device(replica.logical_devices() - 1);
  const auto error = nn::linear(replica, h, "out", {.features = 3}) - y;
  return mean(error * error);
}

struct Case {
  const char* name;
  std::function<T(ReplicaContext&, T x, T y)> step;
};

template <class Make>
Case with(const char* name, Make make) {
  return {name, [make](ReplicaContext& replica, T x, T y) {
            const auto loss = loss_of(replica, x, y);
            make().minimize(replica, loss);
            return loss;
          }};
}

T in_parts(ReplicaContext& replica, T x, T y) {
  const auto [loss, variables, gradients] = nn::accumulate(replica, 4, std::tuple{x, y}, [&](T a, T b) { return loss_of(replica, a, b); });
  nn::wrap_optimizer(nn::sgd({.learning_rate = 0.05})).apply_gradients(replica, variables, gradients);
  return loss;
}

std::vector<Case> cases() {
  const nn::Rate rate = nn::warmup_cosine(0.05, 1, 4);
  return {
      with("sgd", [=] { return nn::sgd({.learning_rate = rate, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}); }),
      with("adam", [=] { return nn::adam({.learning_rate = rate, .weight_decay = 0.01}); }),
      with("adamw", [=] { return nn::adamw({.learning_rate = rate, .decay_vectors = false}); }),
      with("rmsprop", [=] { return nn::rmsprop({.learning_rate = rate, .momentum = 0.5, .centered = true}); }),
      with("clipped", [=] { return nn::clipped(nn::sgd({.learning_rate = rate}), 0.01); }),
      with("averaged", [=] { return nn::averaged(nn::adamw({.learning_rate = rate}), 0.9); }),
      with("lars", [=] { return nn::lars({.learning_rate = rate, .weight_decay = 0.01}); }),
      with("lamb", [=] { return nn::lamb({.learning_rate = rate, .adapt_vectors = true}); }),
      with("bfloat16", [=] { return nn::wrap_optimizer(nn::sgd({.learning_rate = rate}), nn::Wire::bfloat16); }),
      with("sharded", [=] { return nn::sharded(nn::adamw({.learning_rate = rate}), {.least = 1}); }),
      with("sharded, bfloat16", [=] { return nn::sharded(nn::sgd({.learning_rate = rate, .momentum = 0.5}), {.least = 20, .wire = nn::Wire::bfloat16}); }),
      {"accumulated", in_parts},
  };
}

struct Outcome {
  std::string digest;                     // of all variables
  std::vector<std::vector<float>> weights;  // of the network
};

// Six replicas of a small network, after these steps.
Outcome train(const Case& optimizer, const Deployment& where, int steps = 3) {
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
      optimizer.step);
  for (const auto& results : step.steps(steps)) (void)results;
  repl.save_checkpoint();
  Outcome outcome{repl.digest(), {}};
  for (const char* name : {"in.weight", "in.bias", "out.weight", "out.bias"}) {
    const auto values = repl.value(name).as<float>();
    outcome.weights.emplace_back(values.begin(), values.end());
  }
  return outcome;
}

Deployment placed(int devices, std::int64_t bucket_bytes = 4 << 20) {
  Deployment where = test::on_devices(6, devices);
  where.bucket_bytes = bucket_bytes;
  return where;
}

}  // namespace

TEST_CASE("every optimizer has the same bits on any number of devices, with replicas on one or two each, with buckets of any size, in one process and in two") {
  const auto trained = [](int devices, std::int64_t bucket_bytes, int logical_devices = 1) {
    auto where = placed(devices, bucket_bytes);
    where.logical_devices = logical_devices;
    std::string digests;
    for (const auto& one : cases()) digests += std::string{one.name} + " " + train(one, where).digest + "\n";
    return digests;
  };
  const auto job = test::run_as_job(2, [&](int) { return trained(2, 4 << 20); });
  const auto alone = trained(1, 4 << 20);
  INFO(test::describe(job));
  for (const auto& process : job) CHECK(process.text == alone);
  CHECK(trained(2, 1) == alone);
  CHECK(trained(3, 64) == alone);
  CHECK(trained(5, 4 << 20) == alone);
  CHECK(trained(4, 4 << 20, 2) == alone);
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
    ends.push_back(train(one, kept, 4).digest);
    CHECK(ends.back() == train(one, placed(1), 4).digest);
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) CHECK(ends[i] != ends.back());
  }
}

TEST_CASE("a sharded optimizer leaves the bits of the whole one in every variable, on any placement") {
  const auto compare = [](const char* name, auto make) {
    INFO(name);
    const auto whole = train(with("", make), placed(1)).weights;
    for (const std::int64_t least : {1, 20, 1000})  // all in parts; the matrices alone, which no six can divide; none
      for (const int devices : {1, 2, 3, 5}) CHECK(train(with("", [=] { return nn::sharded(make(), {.least = least}); }), placed(devices)).weights == whole);
  };
  compare("sgd", [] { return nn::sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}); });
  compare("adamw", [] { return nn::adamw({.learning_rate = 0.1, .decay_vectors = false}); });
  compare("rmsprop", [] { return nn::rmsprop({.learning_rate = 0.1, .centered = true}); });
}

TEST_CASE("the plan says what a sharded optimizer saves on each device") {
  const auto kilobytes_of_variables = [](int devices, auto optimizer) {
    Replicator repl{test::on_devices(4, devices)};
    auto step = repl.replicate([](const InputContext&) { return data::from_generator([](std::int64_t) { return Array<float>{{2, 100}}; }); },
                               [&](ReplicaContext& replica, T x) {
                                 const auto w = replica.variable<float>("w", {100, 256}, Initializer::ones());  // 100 KiB
                                 const auto loss = mean(tanh(matmul(x, w.read())));
                                 optimizer.minimize(replica, loss);
                                 return loss;
                               });
    step.step();
    const std::string text = step.explain(), use = "variables ";
    return std::stod(text.substr(text.find(use, text.find("\nmemory ")) + use.size()));
  };
  const auto adam = nn::adam({.learning_rate = 0.1});
  for (const int devices : {1, 4}) CHECK(kilobytes_of_variables(devices, adam) == Approx(300).epsilon(0.01));
  CHECK(kilobytes_of_variables(1, nn::sharded(adam)) == Approx(300).epsilon(0.01));
  CHECK(kilobytes_of_variables(2, nn::sharded(adam)) == Approx(200).epsilon(0.01));
  CHECK(kilobytes_of_variables(4, nn::sharded(adam)) == Approx(150).epsilon(0.01));
}

TEST_CASE("a bfloat16 wire rounds what every replica gives and every node of the tree over them, and nothing else") {
  constexpr int replicas = 5, count = 300;
  const auto given = [](int replica) {
    PhiloxStream random{21, 0, static_cast<std::uint32_t>(replica)};
    Array<float> x{{count}};
    for (auto& value : x) value = random.uniform() - 0.5f;
    return x;
  };
  const auto sum = [&](auto self, int begin, int end, std::int64_t i) -> bfloat16 {
    if (end - begin == 1) return bfloat16{given(begin)[i]};
    const int middle = begin + (end - begin + 1) / 2;
    return bfloat16{static_cast<float>(self(self, begin, middle, i)) + static_cast<float>(self(self, middle, end, i))};
  };
  for (const int devices : {1, 2, 3, 5}) {
    Replicator repl{test::on_devices(replicas, devices)};
    auto step = repl.replicate([&](const InputContext& ctx) { return data::from_generator([x = given(ctx.replica())](std::int64_t) { return x; }); },
                               [](ReplicaContext& replica, T x) {
                                 const auto loss = replicator::sum(replica.variable<float>("w", {count}, Initializer::zeros()).read() * x);
                                 nn::wrap_optimizer(nn::sgd({.learning_rate = 1}), nn::Wire::bfloat16).minimize(replica, loss);
                                 return loss;
                               });
    step.step();
    int wrong = 0;
    for (std::int64_t i = 0; i < count; ++i)
      wrong += repl.value("w").as<float>()[static_cast<std::size_t>(i)] != -(static_cast<float>(sum(sum, 0, replicas, i)) / replicas);
    CHECK(wrong == 0);
  }
}
