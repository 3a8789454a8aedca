// SPDX-License-Identifier: Apache-2.0
// Contrastive learning: each example must recognise its partner among the examples of ALL replicas. The forward pass
// has an all_gather; its gradient is a reduce_scatter (CLIP, Radford et al. 2021; SimCLR, Chen et al. 2020):
//   ./contrastive --replicas 4 --devices cpu:0-1
#include <iostream>
#include <replicator/replicator.hpp>
namespace rp = replicator;

// Scales rows to unit length.
rp::Tensor<float> normalised(rp::Tensor<float> x) {                   // [n, f]
  return x / rp::sqrt(rp::sum(x * x, rp::Axes{-1}.kept()) + 1e-12f);  // [n, f] / [n, 1]
}

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  // Two noisy views of the same thing. A thing is 4 numbers; each view hides them differently among 16.
  auto input_fn = [](const rp::InputContext& ctx) {
    return rp::data::from_generator([n = ctx.replica_batch(32), ctx](std::int64_t position) {
      rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      rp::Array<float> a{{n, 16}}, b{{n, 16}};
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t k = 0; k < 16; ++k) {
          const float thing = k < 4 ? 2 * random.uniform() - 1 : 0;
          a[16 * i + k] = thing + 0.3f * random.uniform();
          b[16 * i + 15 - k] = thing + 0.3f * random.uniform();
        }
      return std::tuple{a, b};
    });
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> a, rp::Tensor<float> b) {  // a, b [n, 16]
    const auto n = a.shape()[0];
    auto u = normalised(rp::nn::linear(replica, a, "left", {.features = 8}));   // [n, 8]
    auto v = normalised(rp::nn::linear(replica, b, "right", {.features = 8}));  // [n, 8]
    auto all = rp::all_gather(v);                                               // [R n, 8], of all replicas
    auto logits = rp::matmul(u, all, {.transpose_b = true}) * 10.0f;            // [n, R n]
    // My example i is row id n + i of what was gathered.
    rp::Array<std::int32_t> partner{{n}};
    for (std::int64_t i = 0; i < n; ++i) partner[i] = static_cast<std::int32_t>(replica.id() * n + i);
    auto labels = rp::constant(replica, partner);  // [n], another on each replica
    auto loss = rp::mean(rp::softmax_cross_entropy(logits, labels));
    rp::nn::sgd({.learning_rate = 0.3, .momentum = 0.9}).minimize(replica, loss);
    return std::tuple{loss, rp::accuracy(logits, labels)};
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (auto [loss, found] : train.steps(40))
    if (train.steps_done() % 8 == 0) std::cout << "loss " << rp::mean(loss) << ", recognised " << rp::mean(found) << '\n';
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
