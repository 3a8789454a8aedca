// SPDX-License-Identifier: Apache-2.0
// An experiment with everything that a checkpoint must keep: momentum, a changing rate, replica-local statistics,
// random numbers, and three kinds of input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/data/batch.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/data/index.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/data/prefetch.hpp>
#include <replicator/data/transform.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/ops.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "run_random.hpp"

namespace replicator::test {

using namespace replicator::detail;

// The names in a folder of checkpoints, sorted, without the lock; none if there is no folder.
inline std::vector<std::string> files(const std::string& folder) {
  std::vector<std::string> result;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::directory_iterator{folder})
      if (entry.path().filename() != ".lock") result.push_back(entry.path().filename().string());
  std::sort(result.begin(), result.end());
  return result;
}

// p -= 0.1 gradient / (1 + square root of the sum of all squared gradients): a user's own.
struct Adagrad {
  template <FloatingElement T>
  void apply_gradients(ReplicaContext& replica, const std::vector<Variable<T>>& variables, const std::vector<Tensor<T>>& gradients,
                       std::source_location where = std::source_location::current()) const {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const auto squares = replica.template variable<T>(variables[i].name() + "/squares", variables[i].shape(), Initializer::zeros(),
                                                        {.trainable = false}, where);
      const Tensor<T> sum = squares.read(where) + gradients[i] * gradients[i];
      squares.assign(sum, where);
      variables[i].assign(variables[i].read(where) - map([](auto g, auto s) { return 0.1f * g / (1.0f + sqrt(s)); }, gradients[i], sum), where);
    }
  }
};

enum class Optimizer {
  sgd,
  momentum,
  nesterov,
  own
};
enum class Source {
  position,
  state,
  pipeline,
  host
};

struct Experiment {
  Optimizer optimizer = Optimizer::momentum;
  Source source = Source::position;
  std::int64_t hidden = 8;
  bool third = false;  // one more layer
  bool sums = false;   // one more collective
};

inline std::tuple<Array<float>, Array<float>> element(std::uint64_t seed, std::int64_t position, int replica) {
  PhiloxStream random{seed, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(replica)};
  auto x = random_rows(4, random);
  return {std::move(x), random_rows(4, random)};
}

// 37 pairs of rows.
struct Rows {
  std::int64_t size() const { return 37; }
  std::tuple<Array<float>, Array<float>> operator[](std::int64_t item) const {
    PhiloxStream random{3, static_cast<std::uint64_t>(item), 0};
    Array<float> x{Shape{RandomTrace::width}}, y{Shape{RandomTrace::width}};
    for (auto& value : x) value = random.uniform();
    for (auto& value : y) value = random.uniform();
    return {std::move(x), std::move(y)};
  }
};

inline auto step_of(const Experiment& e) {
  return [e](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
    auto h = relu(nn::batch_norm(replica, nn::linear(replica, x, "in", {.features = e.hidden}), "norm"));
    if (e.third) h = nn::linear(replica, h, "middle", {.features = e.hidden});
    const auto out = nn::linear(replica, dropout(h, 0.25), "out", {.features = y.shape()[1]});
    auto loss = mean(map([](auto a, auto b) { return (a - b) * (a - b); }, out, y));
    if (e.sums) loss = loss + 0.0f * all_reduce(loss, Reduction::sum);
    const auto rate = nn::warmup_cosine(0.1, 2, 8);
    if (e.optimizer == Optimizer::sgd) nn::sgd({.learning_rate = rate}).minimize(replica, loss);
    else if (e.optimizer == Optimizer::own) nn::wrap_optimizer(Adagrad{}).minimize(replica, loss);
    else
      nn::sgd({.learning_rate = rate, .momentum = 0.9, .nesterov = e.optimizer == Optimizer::nesterov, .weight_decay = 0.01})
          .minimize(replica, loss);
    return loss;
  };
}

template <class Run>
auto with_input(const Experiment& e, Run run) {
  if (e.source == Source::position)
    return run([](const InputContext& ctx) {
      return data::from_generator([ctx](std::int64_t at) { return element(ctx.seed(), at, ctx.replica()); });
    });
  if (e.source == Source::state)
    return run([](const InputContext& ctx) {
      return data::from_generator([ctx, at = std::int64_t{0}]() mutable { return element(ctx.seed(), at++, ctx.replica()); });
    });
  if (e.source == Source::host)
    return run([](const HostContext& ctx) {
      return data::from_generator([ctx, at = std::int64_t{0}]() mutable {
        const auto local = at++;
        return element(ctx.seed(), local / ctx.local_replicas(), ctx.first_replica() + static_cast<int>(local % ctx.local_replicas()));
      });
    });
  return run([](const InputContext& ctx) {
    return data::TableSource{Rows{}} | data::shuffle() | data::shard(ctx) | data::transform([](Array<float> x, Array<float> y) {
             for (auto& value : y) value *= 0.5f;
             return std::tuple{std::move(x), std::move(y)};
           }) |
           data::batch(4) | data::prefetch(2);
  });
}

// The digest of all variables after so many steps, and a checkpoint of that moment where the deployment names a folder.
inline std::string run(const Experiment& e, Deployment where, std::int64_t steps) {
  Replicator repl{std::move(where)};
  return with_input(e, [&](auto input_fn) {
    auto train = repl.replicate(input_fn, step_of(e));
    for (const auto& results : train.steps(steps)) (void)results;
    repl.save_checkpoint();
    return repl.digest();
  });
}

inline Deployment kept(Deployment where, const std::string& folder, bool resume = false, std::uint64_t every = 0) {
  where.checkpoint.folder = folder;
  where.checkpoint.resume = resume;
  where.checkpoint.every = every;
  return where;
}

}  // namespace replicator::test
