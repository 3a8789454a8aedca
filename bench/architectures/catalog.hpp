// SPDX-License-Identifier: Apache-2.0
// The networks of bench/architectures.cpp by name, with their sizes, and weights and batches made of hashed numbers. architectures.py
// has the same in PyTorch.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "../hashed.hpp"
#include "convolutional.hpp"
#include "sequential.hpp"

namespace architectures {

using Network = std::variant<ConvNeXt, ViT, Gpt, UNet, MobileNetV2, Gru>;

// "small/" before its name: a smaller batch. "tiny/": as small as tests need.
inline const std::map<std::string, Network>& catalog() {
  static const std::vector<MobileNetV2::Stage> mobilenet_v2_stages{{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  static const std::map<std::string, Network> all{
      {"convnext", ConvNeXt{8, 128, 1000, {96, 192, 384, 768}, {1, 1, 3, 1}}},
      {"vit", ViT{8, 256, 16, 1000, 192, 3, 4}},
      {"gpt", Gpt{2, 512, 4096, 256, 4, 4}},
      {"unet", UNet{2, 128, 10, {32, 64, 128, 256}}},
      {"mobilenet_v2", MobileNetV2{8, 96, 1000, 32, 1280, mobilenet_v2_stages}},
      {"gru_64", Gru{64, 16, 128, 256, 64}},
      {"gru_256", Gru{256, 16, 128, 256, 64}},
      {"small/convnext", ConvNeXt{2, 64, 1000, {96, 192, 384, 768}, {1, 1, 3, 1}}},
      {"small/vit", ViT{2, 96, 16, 1000, 192, 3, 4}},
      {"small/gpt", Gpt{1, 300, 4096, 256, 4, 4}},
      {"small/unet", UNet{2, 32, 10, {32, 64, 128, 256}}},
      {"small/mobilenet_v2", MobileNetV2{4, 64, 1000, 32, 1280, mobilenet_v2_stages}},
      {"tiny/convnext", ConvNeXt{2, 32, 5, {6, 10}, {1, 1}}},
      {"tiny/vit", ViT{2, 16, 4, 5, 12, 3, 1}},
      {"tiny/gpt", Gpt{2, 9, 11, 12, 3, 1}},
      {"tiny/unet", UNet{2, 8, 3, {4, 6}}},
      {"tiny/mobilenet_v2", MobileNetV2{3, 16, 5, 4, 10, {{1, 6, 1, 1}, {3, 6, 1, 1}, {2, 8, 1, 2}}}},
      {"tiny/gru", Gru{7, 3, 5, 6, 4}}};
  return all;
}

// FNV-1a.
inline std::uint32_t salt_of(const std::string& name) {
  std::uint32_t salt = 0x811C9DC5u;
  for (const char letter : name) salt = (salt ^ static_cast<unsigned char>(letter)) * 0x01000193u;
  return salt;
}

// The first value of a variable, rounded to float32. Few inputs of ReLU are near its kinks behind batch norm, which has small gains
// and large shifts: there rounding changes gradients by much.
template <rp::FloatingElement T>
rp::Array<T> weight(const std::string& name, const rp::Shape& shape, std::uint32_t seed) {
  const bool of_norm = name.find("bn.") != std::string::npos;
  const double spread = 4 / std::sqrt(static_cast<double>(shape.elements()) / static_cast<double>(shape[0]));
  rp::Array<T> result{shape};
  for (std::int64_t i = 0; i < result.size(); ++i) {
    double v = static_cast<double>(bench::hashed(static_cast<std::uint32_t>(i), salt_of(name) + seed));
    if (shape.rank() > 1) v *= spread;
    else if (name.ends_with("weight") || name.ends_with("scale")) v = (v * 0.5 + 1) * (of_norm ? 0.375 : 1);
    else if (of_norm) v = (v * 0.25 + 1) * (v > 0.375 ? 5.25 : 0.75);
    result[i] = static_cast<T>(static_cast<float>(v));
  }
  return result;
}

// Numbers in [-2, 2), and labels in [0, classes).
template <rp::FloatingElement T>
std::tuple<rp::Array<T>, rp::Array<std::int32_t>> batch(const rp::Shape& numbers, const rp::Shape& labels, std::int64_t classes) {
  std::tuple<rp::Array<T>, rp::Array<std::int32_t>> result{numbers, labels};
  auto& [x, y] = result;
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(4 * bench::hashed(static_cast<std::uint32_t>(i), 1000));
  for (std::int64_t i = 0; i < y.size(); ++i)
    y[i] = static_cast<std::int32_t>((static_cast<double>(bench::hashed(static_cast<std::uint32_t>(i), 1001)) + 0.5) * static_cast<double>(classes));
  return result;
}

// What a step with hashed weights gives.
template <rp::FloatingElement T>
struct Gradients {
  double loss = 0;
  std::map<std::string, rp::AnyArray> of;  // by the name of the variable
};

template <rp::FloatingElement T>
Gradients<T> gradients(const Network& network, rp::Deployment deployment, std::uint32_t seed) {
  rp::Replicator repl{std::move(deployment)};
  std::vector<std::string> names;
  auto step = std::visit(
      [&](const auto& model) {
        return repl.replicate([&](const rp::InputContext&) { return std::vector{batch<T>(model.numbers(), model.labels(), model.classes)}; },
                              [&](rp::ReplicaContext& replica, rp::Tensor<T> numbers, rp::Tensor<std::int32_t> labels) {
                                const auto loss = model.loss(replica, numbers, labels);
                                const auto variables = replica.trainable_variables<T>();
                                const auto by = rp::nn::mean_over_replicas(variables, rp::nn::variable_gradients(loss, variables));
                                names.clear();
                                for (std::size_t i = 0; i < variables.size(); ++i) {
                                  names.push_back(variables[i].name());
                                  replica.variable<T>("gradient/" + names[i], variables[i].shape(), rp::Initializer::zeros(), {.trainable = false}).assign(by[i]);
                                }
                                return loss;
                              });
      },
      network);
  for (const auto& name : names) repl.set(name, weight<T>(name, repl.declaration(name).type.shape, seed).any());
  const auto [losses] = step.step();
  Gradients<T> result{static_cast<double>(rp::mean(losses)), {}};
  for (const auto& name : names) result.of.emplace(name, repl.value("gradient/" + name));
  return result;
}

}  // namespace architectures
