// SPDX-License-Identifier: Apache-2.0
// A mixture of experts (after Switch Transformers, Fedus et al. 2021): each replica has one expert, and a gate that all
// replicas share sends each example to one of them.
//   ./experts --replicas 4 --devices cpu:0-1
#include <cmath>
#include <iostream>
#include <replicator/replicator.hpp>
namespace rp = replicator;
constexpr std::int64_t kinds = 4, features = kinds + 1;

// Elements (x [n, 5], y [n, 1]): x is the kind of the example, one-hot, and a number; y is another function for each kind.
auto input_fn(const rp::InputContext& ctx) {
  return rp::data::from_generator([n = ctx.replica_batch(256), ctx](std::int64_t position) {
    rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
    rp::Array<float> x{{n, features}}, y{{n, 1}};
    for (std::int64_t i = 0; i < n; ++i) {
      const auto kind = static_cast<std::int64_t>(random.below(kinds));
      const float u = x[features * i + kinds] = 2 * random.uniform() - 1;
      x[features * i + kind] = 1;
      y[i] = std::sin(static_cast<float>(1 + 2 * kind) * u);
    }
    return std::tuple{x, y};
  });
}

auto step_fn(rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<float> y) {
  const std::int64_t n = x.shape()[0], experts = replica.count(), places = 2 * n / experts;   // an expert takes so many of a replica's examples
  auto gate = rp::softmax(rp::nn::linear(replica, x, "gate", {.features = experts}));         // [n, E], equal on all replicas
  auto chosen = rp::one_hot(rp::argmax(gate), static_cast<std::int32_t>(experts));            // [n, E]
  auto place = rp::sum(rp::cumulative_sum(chosen, 0, {.exclusive = true}) * chosen, -1);      // [n]; one beyond the places is lost
  auto slot = rp::one_hot(rp::cast<std::int32_t>(place), static_cast<std::int32_t>(places));  // [n, P]
  auto mask = rp::expand_dims(chosen, 2) * rp::expand_dims(slot, 1);                          // [n, E, P]
  auto mine = rp::all_to_all(rp::einsum("nep,nf->epf", mask, x), 0, 1);                       // [1, E P, F]: of all replicas, for my expert
  auto answer = [&] {
    const auto own = replica.local_variables(rp::LocalVariables::begin_apart);  // each expert begins with weights of its own
    auto h = rp::tanh(rp::nn::linear(replica, rp::reshape(mine, {experts * places, features}), "expert.in", {.features = 32}));
    return rp::nn::linear(replica, h, "expert.out", {.features = 1});  // [E P, 1]
  }();
  auto returned = rp::all_to_all(rp::reshape(answer, {experts, places, 1}), 0, 0);                        // [E, P, 1]: of all experts
  auto output = rp::einsum("nep,epo->no", mask, returned) * rp::sum(gate * chosen, rp::Axes{-1}.kept());  // [n, 1]
  auto error = rp::mean_squared_error(output, y);
  auto balance = rp::sum(rp::mean(chosen, 0) * rp::mean(gate, 0)) * static_cast<float>(experts);  // 1 if all experts get equally much
  auto loss = error + balance * 0.01f;
  rp::nn::adam({.learning_rate = 0.01}).minimize(replica, loss, replica.trainable_variables<float>("gate"));  // mean over the replicas
  // An expert's gradient already is a sum: its examples come from all replicas.
  rp::nn::local(rp::nn::adam({.learning_rate = 0.01})).minimize(replica, loss / static_cast<float>(experts), replica.trainable_variables<float>("expert"));
  return std::tuple{error, rp::mean(chosen, 0)};
}

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  auto train = repl.replicate(input_fn, step_fn);
  for (auto [error, shares] : train.steps(600))
    if (train.steps_done() % 100 == 0 && repl.process() == 0)
      std::cout << train.steps_done() << ": error " << rp::mean(error) << ", shares of the experts " << shares[0] << '\n';
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
