// SPDX-License-Identifier: Apache-2.0
// The loss and all gradients of a ResNet-18 and a ResNet-50 against those of PyTorch. PyTorch's are kept in tests/data/
// and made by
//   scripts/compare_resnet50.py --depth 18 --stem cifar --image-size 16 --classes 10 --seed 0 --store resnet18_gradients.txt
//   scripts/compare_resnet50.py --depth 50 --image-size 64 --seed 7 --store resnet50_gradients.txt
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/replicator.hpp>

#include "../../bench/hashed.hpp"

namespace test_gradients {

namespace rp = replicator;

namespace {

using bench::hashed;

// The same weights as `hashed_weights` in the script; `salt` is the parameter's number + 10000 seed.
rp::Array<float> weight(const std::string& name, const rp::Shape& shape, std::uint32_t salt) {
  const bool last = name.find("bn3") != std::string::npos || name.find("downsample") != std::string::npos;
  const auto spread = static_cast<float>(
      4 / std::sqrt(static_cast<double>(shape.elements()) / static_cast<double>(shape.rank() ? shape[0] : 1)));
  rp::Array<float> result{shape};
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const float v = hashed(static_cast<std::uint32_t>(i), salt);
    if (shape.rank() > 1)
      result[i] = v * spread;
    else if (name.ends_with("weight"))
      result[i] = (v * 0.5f + 1) * (last ? 0.2f : 0.5f);
    else if (last)
      result[i] = static_cast<double>(v) < -0.4 ? v * 4 : v;
    else if (name.find("bn") != std::string::npos)
      result[i] = (v < -0.25f ? -0.75f : 0.75f) * (v * 0.2f + 1);
    else
      result[i] = v;
  }
  return result;
}

constexpr std::int64_t batch = 4;

struct Setting {
  int depth;
  std::int64_t size, classes;
  std::uint32_t seed;
};

// Each replica takes its part of the batch.
auto part_of_batch(const rp::InputContext& ctx, const Setting& setting) {
  const auto n = ctx.replica_batch(batch);
  rp::Array<float> images{{n, 3, setting.size, setting.size}};
  rp::Array<std::int32_t> labels{rp::Shape{n}};
  for (std::int64_t i = 0; i < images.size(); ++i)
    images[i] = 4 * hashed(static_cast<std::uint32_t>(ctx.replica() * images.size() + i), 1000);
  for (std::int64_t i = 0; i < n; ++i)
    labels[i] = static_cast<std::int32_t>(((ctx.replica() * n + i) * 7 + 3) % setting.classes);
  return std::vector{std::tuple{images, labels}};
}

// norm, dot product with hashed numbers, and three elements
using Summary = std::array<double, 5>;

Summary summary(const rp::AnyArray& array, std::uint32_t salt) {
  const auto g = array.as<float>();
  double squares = 0, dot = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    squares += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    dot += static_cast<double>(g[i]) * static_cast<double>(hashed(static_cast<std::uint32_t>(i), 2000 + salt));
  }
  return {std::sqrt(squares), dot, g[0], g[g.size() / 2], g[g.size() - 1]};
}

// What PyTorch found for a depth.
struct Expected {
  double loss = 0;
  std::vector<std::pair<std::string, Summary>> gradients;
};

Expected expected_for(int depth) {
  std::ifstream file{std::filesystem::path{__FILE__}.parent_path() / ("../data/resnet" + std::to_string(depth) + "_gradients.txt")};
  Expected result;
  std::string name;
  REQUIRE(file >> name >> result.loss);
  for (Summary s; file >> name >> s[0] >> s[1] >> s[2] >> s[3] >> s[4];) result.gradients.emplace_back(name, s);
  return result;
}

// One step from the weights that the script made.
void check_gradients(const Setting& setting, int replicas, bool winograd = false) {
  // PyTorch adds products, and its gradients were computed with AVX-512. Kernels for other CPUs add in another order.
  const bool rounds_alike = !winograd && rp::detail::cpu::instruction_level() == rp::detail::cpu::InstructionLevel::avx512;
  const double bound = rounds_alike ? 1e-5 : 2.5e-5;
  rp::Replicator repl{{.replicas = replicas, .kernel_choice = {.winograd = winograd}}};
  std::vector<std::string> names;
  const auto input = [&](const rp::InputContext& ctx) { return part_of_batch(ctx, setting); };
  auto step = repl.replicate(input, [&](rp::ReplicaContext& replica, rp::Tensor<float> images, rp::Tensor<std::int32_t> labels) {
    const auto logits = rp::models::resnet(replica, images, setting.depth,
                                           {.classes = setting.classes, .cifar_stem = setting.size<64, .across_replicas = replicas> 1});
    const auto loss = rp::mean(rp::softmax_cross_entropy(logits, labels));
    const auto variables = replica.trainable_variables<float>();
    const auto gradients = rp::nn::mean_over_replicas(variables, rp::nn::variable_gradients(loss, variables));
    names.clear();
    for (std::size_t i = 0; i < variables.size(); ++i) {
      names.push_back(variables[i].name());
      replica
          .variable<float>("gradient/" + names[i], variables[i].shape(), rp::Initializer::zeros(), {.trainable = false})
          .assign(gradients[i]);
    }
    return loss;
  });

  const auto [loss, expected] = expected_for(setting.depth);
  REQUIRE(names.size() == expected.size());
  for (std::uint32_t salt = 0; salt < expected.size(); ++salt) {
    const auto& parameter = expected[salt].first;
    repl.set(parameter, weight(parameter, repl.declaration(parameter).type.shape, salt + 10000 * setting.seed).any());
  }

  const auto [losses] = step.step();
  CHECK(rp::mean(losses) == Approx(loss).epsilon(1e-5));
  for (std::uint32_t salt = 0; salt < expected.size(); ++salt) {
    const auto& [parameter, theirs] = expected[salt];
    const auto ours = summary(repl.value("gradient/" + parameter), salt);
    INFO(parameter);
    // An error of 1e-4 of the norm, spread evenly, would move the dot product by 0.29e-4 of the norm.
    CHECK(std::abs(ours[0] - theirs[0]) < bound * theirs[0]);
    CHECK(std::abs(ours[1] - theirs[1]) < bound * theirs[0]);
    for (std::size_t i = 2; i < 5; ++i) CHECK(std::abs(ours[i] - theirs[i]) < bound * theirs[0]);
  }
}

}  // namespace

TEST_CASE("loss and gradients of ResNet-18 are PyTorch's, on one replica and on two with batch norm across them") {
  REQUIRE(expected_for(18).gradients.size() == 62);
  check_gradients({.depth = 18, .size = 16, .classes = 10, .seed = 0}, GENERATE(1, 2));
}

TEST_CASE("by Winograd's algorithm, too, loss and gradients of ResNet-18 are PyTorch's, with more rounding") {
  check_gradients({.depth = 18, .size = 16, .classes = 10, .seed = 0}, 1, true);
}

TEST_CASE("loss and gradients of ResNet-50 are PyTorch's, on one replica and on two with batch norm across them") {
  REQUIRE(expected_for(50).gradients.size() == 161);
  check_gradients({.depth = 50, .size = 64, .classes = 1000, .seed = 7}, GENERATE(1, 2));
}

}  // namespace test_gradients
