// SPDX-License-Identifier: Apache-2.0
// Writes the loss and the gradients of all parameters of a ResNet for given weights and a given batch, to compare them
// with those of another library: see scripts/compare_resnet50.py.
//   ./resnet_gradients DEPTH cifar|imagenet WEIGHTS.safetensors BATCH.safetensors OUT.safetensors [flags of the
//   deployment]
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <replicator/replicator.hpp>

namespace rp = replicator;

namespace {

// Each replica takes its share of the batch's tensors `images` and `labels`.
auto part_of(const rp::io::Safetensors& batch) {
  return [&batch](const rp::InputContext& ctx) {
    const rp::Array<float> images{batch.tensors.at("images")};
    const rp::Array<std::int32_t> labels{batch.tensors.at("labels")};
    const auto n = ctx.replica_batch(images.shape()[0]);
    const auto pixels = n * images.shape()[1] * images.shape()[2] * images.shape()[3];
    const rp::Array<float> own_images{{n, images.shape()[1], images.shape()[2], images.shape()[3]},
                                      {images.data() + ctx.replica() * pixels, static_cast<std::size_t>(pixels)}};
    const rp::Array<std::int32_t> own_labels{{n}, {labels.data() + ctx.replica() * n, static_cast<std::size_t>(n)}};
    return std::vector{std::tuple{own_images, own_labels}};
  };
}

void run(const std::vector<std::string>& arguments, rp::Deployment deployment) {
  const int depth = std::stoi(arguments[0]);
  const rp::models::ResNetOptions options{.cifar_stem = arguments[1] == "cifar", .across_replicas = true};
  const auto weights = rp::io::read_safetensors(arguments[2]);
  const auto batch = rp::io::read_safetensors(arguments[3]);

  rp::Replicator repl{std::move(deployment)};
  auto step = repl.replicate(part_of(batch), [&](rp::ReplicaContext& replica, rp::Tensor<float> images,
                                                 rp::Tensor<std::int32_t> labels) {
    auto network = options;
    network.classes = weights.tensors.at("fc.bias").shape()[0];
    const auto loss = rp::mean(rp::softmax_cross_entropy(rp::models::resnet(replica, images, depth, network), labels));
    const auto variables = replica.trainable_variables<float>();
    const auto gradients = rp::nn::mean_over_replicas(variables, rp::nn::variable_gradients(loss, variables));
    for (std::size_t i = 0; i < variables.size(); ++i)
      replica
          .variable<float>("gradient/" + variables[i].name(), variables[i].shape(), rp::Initializer::zeros(),
                           {.trainable = false})
          .assign(gradients[i]);
    return rp::all_reduce(loss, rp::Reduction::mean);
  });
  for (const auto& [name, value] : weights.tensors) repl.set(name, value);
  const auto [loss] = step.step();

  std::map<std::string, rp::AnyArray> result{{"loss", loss[0].any()}};
  for (const auto& name : repl.variables())
    if (name.starts_with("gradient/")) result.emplace(name.substr(9), repl.value(name));
  if (repl.process() == 0) rp::io::write_safetensors(arguments[4], result);
}

}  // namespace

int main(int argc, char** argv) try {
  auto deployment = rp::Deployment::from(argc, argv);
  const auto arguments = deployment.remaining;
  if (arguments.size() != 5 || (arguments[1] != "cifar" && arguments[1] != "imagenet")) {
    std::cerr << "usage: resnet_gradients DEPTH cifar|imagenet WEIGHTS.safetensors BATCH.safetensors OUT.safetensors "
                 "[flags]\n"
              << rp::Deployment::help();
    return 2;
  }
  run(arguments, std::move(deployment));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "resnet_gradients: " << error.what() << '\n';
  return 1;
}
