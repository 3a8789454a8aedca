// SPDX-License-Identifier: Apache-2.0
// Promise 1 for every optimizer: the same bits on any placement, and across a checkpoint.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

namespace test_optimizers {

using namespace replicator;
using namespace replicator::detail;

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
      with("low rank", [=] { return nn::wrap_optimizer(nn::sgd({.learning_rate = rate}), nn::low_rank({.rank = 2, .least_saving = 0})); }),
      with("sharded", [=] { return nn::sharded(nn::adamw({.learning_rate = rate}), {.least = 1}); }),
      with("sharded, bfloat16", [=] { return nn::sharded(nn::sgd({.learning_rate = rate, .momentum = 0.5}), {.least = 20, .wire = nn::Wire::bfloat16}); }),
      {"accumulated", in_parts},
  };
}

struct Outcome {
  std::string digest;                       // of all variables
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

TEST_CASE("with one group of all replicas the asynchronous regime gives every optimizer the bits of the synchronous one; what needs other collectives is refused") {
  for (const auto& one : cases()) {
    INFO(one.name);
    const auto asynchronous = [&](int devices) {
      auto where = placed(devices);
      where.regime = Regime::asynchronous;
      where.sync_group = where.replicas;
      return train(one, where).digest;
    };
    const std::string name = one.name;
    if (name.starts_with("sharded")) {
      CHECK_THAT(test::error_of([&] { asynchronous(2); }), Catch::Contains("reduce_scatter ") && Catch::Contains("cannot be resolved with --regime async"));
      continue;
    }
    const auto digest = train(one, placed(1)).digest;
    for (const int devices : {1, 3}) CHECK(asynchronous(devices) == digest);
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

namespace {

// Descends at a rate of 1 along the gradients that replicas give of "w", a matrix of zeros at first.
constexpr int givers = 3;
constexpr std::int64_t rows = 6, columns = 9;
using Matrix = std::array<double, rows * columns>;
using Given = std::function<float(int replica, std::int64_t step, std::int64_t i)>;

float drawn(int replica, std::int64_t step, std::int64_t i) {
  PhiloxStream random{31, static_cast<std::uint64_t>(step * rows * columns + i), static_cast<std::uint32_t>(replica)};
  return random.uniform() - 0.3f;
}

struct Descent {
  Matrix w, kept;  // the mean of "w/error" over the replicas
};
Descent descend(const nn::LowRankOptions& options, int steps, const Given& given, int devices = 1) {
  Replicator repl{test::on_devices(givers, devices)};
  auto step = repl.replicate(
      [&](const InputContext& ctx) {
        return data::from_generator([&given, replica = ctx.replica()](std::int64_t at) {
          Array<float> x{{rows, columns}};
          for (std::int64_t i = 0; i < rows * columns; ++i) x[i] = given(replica, at, i);
          return x;
        });
      },
      [&](ReplicaContext& replica, T x) {
        const auto loss = sum(replica.variable<float>("w", {rows, columns}, Initializer::zeros()).read() * x);
        nn::wrap_optimizer(nn::sgd({.learning_rate = 1}), nn::low_rank(options)).minimize(replica, loss);
        return loss;
      });
  for (int i = 0; i < steps; ++i) step.step();
  Descent result{};
  for (std::size_t i = 0; i < result.w.size(); ++i) {
    result.w[i] = static_cast<double>(repl.value("w").as<float>()[i]);
    for (int r = 0; r < givers; ++r) result.kept[i] += static_cast<double>(repl.value("w/error", r).as<float>()[i]) / givers;
  }
  return result;
}

// The sum over these steps of the mean gradient.
Matrix sum_of_means(int first, int last, const Given& given) {
  Matrix result{};
  for (std::int64_t i = 0; i < rows * columns; ++i)
    for (int at = first; at < last; ++at)
      for (int r = 0; r < givers; ++r) result[static_cast<std::size_t>(i)] += static_cast<double>(given(r, at, i)) / givers;
  return result;
}

// The largest element of a - scale b.
double gap(const Matrix& a, double scale, const Matrix& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - scale * b[i]));
  return most;
}

// a^T b of columns i and j.
double inner(const Matrix& a, std::int64_t i, const Matrix& b, std::int64_t j) {
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row) total += a[static_cast<std::size_t>(row * columns + i)] * b[static_cast<std::size_t>(row * columns + j)];
  return total;
}

}  // namespace

TEST_CASE("a gradient of low rank is the projection of the mean on so many directions") {
  const auto [w, kept] = descend({.rank = 1, .least_saving = 0}, 1, drawn);
  for (std::int64_t i = 0; i < columns; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      CHECK(std::abs(inner(w, i, kept, j)) < 1e-5);                                                           // what was left out is orthogonal to it
      CHECK(std::abs(inner(w, i, w, i) * inner(w, j, w, j) - inner(w, i, w, j) * inner(w, i, w, j)) < 1e-5);  // one direction
    }
  CHECK(inner(w, 0, w, 0) > 0.01);
}

TEST_CASE("what a gradient of low rank leaves out comes later: what was applied and what is kept are the sum of all gradients") {
  for (const std::int64_t rank : {1, 2, 4})
    for (const int devices : {1, 2, 3}) {
      const auto done = descend({.rank = rank, .least_saving = 0}, 7, drawn, devices);
      Matrix all = done.kept;
      for (std::size_t i = 0; i < all.size(); ++i) all[i] -= done.w[i];
      CHECK(gap(all, 1, sum_of_means(0, 7, drawn)) < 1e-5);
      CHECK(gap(done.kept, 0, all) > 0.01);
    }
}

TEST_CASE("a gradient of the whole rank is the uncompressed one within rounding, also where it has fewer directions or none at first") {
  const nn::LowRankOptions whole{.rank = 100, .least_saving = 0};
  const Given thin = [](int r, std::int64_t at, std::int64_t i) { return drawn(r, at, i / columns) * drawn(0, at, 1000 + i % columns); };
  const Given late = [](int r, std::int64_t at, std::int64_t i) { return at < 2 ? 0.0f : drawn(r, at, i); };
  for (const auto& given : {Given{drawn}, thin, late}) {
    const auto done = descend(whole, 5, given);
    CHECK(gap(done.w, -1, sum_of_means(0, 5, given)) < 1e-5);
    CHECK(gap(done.kept, 0, done.w) < 1e-5);
  }
}

TEST_CASE("a gradient that does not change is reached, whatever the rank") {
  const Given same = [](int r, std::int64_t, std::int64_t i) { return drawn(r, 0, i); };
  const auto at = [&](int steps) {
    const auto w = descend({.rank = 1, .least_saving = 0}, steps, same).w;
    return gap(w, -1, sum_of_means(0, steps, same)) / steps;
  };
  CHECK(at(40) < at(4) / 4);
}

TEST_CASE("a network whose gradients move in rank 1 learns what one whose gradients move whole does") {
  const auto last_loss = [](auto optimizer) {
    Replicator repl{test::on_devices(4, 2)};
    auto step = repl.replicate(
        [](const InputContext& ctx) {
          return data::from_generator([r = ctx.replica()](std::int64_t at) {
            PhiloxStream random{8, static_cast<std::uint64_t>(at), static_cast<std::uint32_t>(r)};
            Array<float> x{{8, 11}}, y{{8, 3}};
            for (auto& value : x) value = 2 * random.uniform() - 1;
            for (std::int64_t i = 0; i < 24; ++i) y[i] = std::tanh(x[i / 3 * 11 + i % 3] - x[i / 3 * 11 + 5 + i % 3]);
            return std::tuple{std::move(x), std::move(y)};
          });
        },
        [&](ReplicaContext& replica, T x, T y) {
          const auto loss = loss_of(replica, x, y);
          optimizer.minimize(replica, loss);
          return loss;
        });
    float total = 0;
    for (int i = 0; i < 150; ++i) {
      const auto [loss] = step.step();
      if (i >= 140) total += mean(loss) / 10;
    }
    return total;
  };
  const auto sgd = nn::sgd({.learning_rate = 0.1, .momentum = 0.9});
  const float whole = last_loss(sgd), thin = last_loss(nn::wrap_optimizer(sgd, nn::low_rank({.rank = 1, .least_saving = 0})));
  CHECK(whole < 0.05f);
  CHECK(thin < 1.5f * whole);
}

TEST_CASE("explain says what gradients of low rank move; those that save too little, and vectors, move whole") {
  auto where = test::on_devices(4, 2);
  where.bucket_bytes = 1;  // each collective alone
  Replicator repl{where};
  auto step = repl.replicate([](const InputContext&) { return data::from_generator([](std::int64_t) { return Array<float>{{2, 64}}; }); },
                             [](ReplicaContext& replica, T x) {
                               const auto h = nn::linear(replica, x, "large", {.features = 32});
                               const auto loss = mean(nn::linear(replica, h, "small", {.features = 2}));
                               nn::wrap_optimizer(nn::sgd({.learning_rate = 1}), nn::low_rank({.rank = 2})).minimize(replica, loss);
                               return loss;
                             });
  const std::string text = step.explain();
  INFO(text);
  const auto bytes_of = [&](const std::string& label) {
    const auto line = text.find("all_reduce \"" + label + "\" at ");
    const auto bytes = line == std::string::npos ? line : text.find(": ", line);
    return bytes == std::string::npos ? -1 : std::stoi(text.substr(bytes + 2));
  };
  CHECK(bytes_of("large.weight/gradient/left") == 32 * 2 * 4);
  CHECK(bytes_of("large.weight/gradient/right") == 64 * 2 * 4);
  CHECK(bytes_of("large.weight/gradient") == -1);
  CHECK(bytes_of("large.bias/gradient") == 32 * 4);
  CHECK(bytes_of("small.weight/gradient") == 2 * 32 * 4);
  CHECK(bytes_of("small.bias/gradient") == 64);  // of which 8 count
}

TEST_CASE("a gradient of no rank is refused") {
  CHECK_THAT(test::error_of([] { nn::low_rank({.rank = 0}); }),
             Catch::StartsWith("optimizer at test_optimizers.cpp:") && Catch::EndsWith(": low_rank: rank is 0: it must be at least 1"));
  CHECK_THAT(test::error_of([] { nn::low_rank({.least_saving = -1}); }), Catch::Contains(": low_rank: least_saving is -1: it must be a finite number"));
}

}  // namespace test_optimizers
