// SPDX-License-Identifier: Apache-2.0
// Times whole training steps of a small actor-critic: forward, backward, all-reduce, Adam. It has 8 observations, two
// layers of 256, and heads of 4 actions and a value. A step is so short that the overhead around the kernels counts.
//   mlp_step [--batch 256] [--steps 1000] [--turns yes] and the flags of a deployment
// Prints the median microseconds of a step and the last loss. --turns: see turns.hpp. bench/run runs it beside PyTorch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/replicator.hpp>

#include "turns.hpp"
namespace rp = replicator;

namespace {

constexpr std::int64_t observations = 8, hidden = 256, actions = 4;

struct Options {
  std::int64_t batch = 256;  // over all replicas
  int steps = 1000;
  bool turns = false;
};

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const int value = std::atoi(arguments[i + 1].c_str());
    if (arguments[i] == "--batch") options.batch = value;
    else if (arguments[i] == "--steps" && value > 0) options.steps = value;
    else if (arguments[i] == "--turns" && arguments[i + 1] == "yes") options.turns = true;
    else throw rp::BuildError{"mlp_step knows no flag " + arguments[i] + " " + arguments[i + 1]};
  }
  return options;
}

// mean(advantage (-log p(action))) + 1/2 mean((return - value)^2) - 0.01 mean(entropy). advantage = return - value is a
// constant here.
rp::Tensor<float> actor_critic_loss(rp::ReplicaContext& replica, rp::Tensor<float> seen, rp::Tensor<std::int32_t> done,
                                    rp::Tensor<float> returns) {
  auto x = rp::relu(rp::nn::linear(replica, seen, "first", {.features = hidden}));  // [B, 256]
  x = rp::relu(rp::nn::linear(replica, x, "second", {.features = hidden}));         // [B, 256]
  const auto logits = rp::nn::linear(replica, x, "actor", {.features = actions});   // [B, 4]
  const auto value = rp::reshape(rp::nn::linear(replica, x, "critic", {.features = 1}), {seen.shape()[0]});
  const auto error = returns - value;  // [B]
  const auto log_p = rp::log_softmax(logits);
  const auto actor = rp::mean(rp::stop_gradient(error) * rp::softmax_cross_entropy(logits, done));
  const auto entropy = -rp::mean(rp::sum(rp::exp(log_p) * log_p, {1}));
  return actor + 0.5f * rp::mean(error * error) - 0.01f * entropy;
}

void run(int argc, char** argv) {
  const auto deployment = rp::Deployment::from(argc, argv);
  const Options options = parse(deployment.remaining);
  rp::Replicator repl{deployment};
  auto input_fn = [&](const rp::InputContext& ctx) {
    const auto n = ctx.replica_batch(options.batch);
    rp::Array<float> seen{{n, observations}}, returns{{n}};
    rp::Array<std::int32_t> done{{n}};
    rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(ctx.replica())};
    for (auto& each : seen) each = 2 * random.uniform() - 1;
    for (auto& each : returns) each = random.uniform();
    for (auto& each : done) each = static_cast<std::int32_t>(random.below(actions));
    return rp::data::from_generator([seen, done, returns] { return std::tuple{seen, done, returns}; });
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> seen, rp::Tensor<std::int32_t> done, rp::Tensor<float> returns) {
    const auto loss = actor_critic_loss(replica, seen, done, returns);
    rp::nn::adam({.learning_rate = 1e-5}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  using Clock = std::chrono::steady_clock;
  bench::take_turns(options.turns, [&] {
    std::vector<double> times;
    float last = 0;
    for (int step = -options.steps / 10 - 1; step < options.steps; ++step) {
      const auto begin = Clock::now();
      last = rp::mean(std::get<0>(train.step()));
      if (step >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    if (repl.process() == 0) std::printf("%.1f us/step, loss %.4f\n", times[times.size() / 2], static_cast<double>(last));
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const rp::Error& error) {
    std::fprintf(stderr, "mlp_step: %s\n", error.what());
    return 1;
  }
}
