// SPDX-License-Identifier: Apache-2.0
// Trains a small network on a folder of pictures, <folder>/<class>/*.jpg, in bfloat16 and in little memory:
// ./photos photos/train --replicas 4 --devices cpu:0-1
#include <cstdint>
#include <iostream>
#include <string>
#include <tuple>

#include <replicator/replicator.hpp>

namespace rp = replicator;

// [n, c, h, w] -> [n, features, h/2, w/2]
rp::Tensor<float> block(rp::ReplicaContext& replica, rp::Tensor<float> x, const std::string& name, std::int64_t features) {
  const auto scope = replica.scope(name);
  x = rp::nn::conv2d(replica, x, "conv", {.features = features, .kernel = {3, 3}, .padding = {1, 1}});
  return rp::max_pool(rp::relu(rp::nn::batch_norm(replica, x, "norm")), {.window = {2, 2}});
}

int main(int argc, char** argv) try {
  const auto deployment = rp::Deployment::from(argc, argv);
  if (deployment.remaining.size() != 1) return std::cerr << "usage: photos FOLDER\n"
                                                         << rp::Deployment::help(),
                                               2;
  rp::Replicator repl{deployment};

  const auto pictures = rp::data::image_folder(deployment.remaining[0]);
  auto input_fn = [&](const rp::InputContext& ctx) {  // pictures = image_folder("photos/train"): photos/train/<class>/*.jpg
    return pictures | rp::data::shuffle() | rp::data::shard(ctx) | rp::data::decode_images({.crop = {64, 64}, .flip = true}) |
           rp::data::batch(ctx.replica_batch(64)) | rp::data::prefetch(2);
  };
  const auto classes = static_cast<std::int64_t>(pictures.classes().size());
  auto step_fn = [&](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<std::int32_t> labels) {
    const auto mixed = rp::mixed_precision(replica);  // products below are computed in bfloat16
    for (int i = 0; i < 3; ++i) {
      const auto name = "block" + std::to_string(i);
      x = rp::recompute([&](auto x) { return block(replica, x, name, 16 << i); })(x);
    }
    auto logits = rp::nn::linear(replica, rp::global_average_pool(x), "out", {.features = classes});
    auto loss = rp::mean(rp::softmax_cross_entropy(logits, labels));
    rp::nn::adam({.learning_rate = 0.01}).minimize(replica, loss);
    return std::tuple{loss, rp::accuracy(logits, labels)};
  };

  auto train = repl.replicate(input_fn, step_fn);
  int step = 0;
  for (auto [loss, right] : train.steps(40))
    if (++step % 10 == 0 && repl.process() == 0) std::cout << step << ": loss " << rp::mean(loss) << ", accuracy " << rp::mean(right) << '\n';
  const auto digest = repl.digest();  // on all processes
  if (repl.process() == 0) std::cout << "digest: " << digest << '\n';
  return std::cout.flush() ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
