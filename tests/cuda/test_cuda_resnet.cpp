// SPDX-License-Identifier: Apache-2.0
// A ResNet-50 on a GPU has the CPU's loss and gradients, and one digest for every division of the GPU.
#include "device_run.hpp"

#include <map>
#include <tuple>

#include <replicator/replicator.hpp>

namespace test_cuda_resnet {

using namespace replicator;
using namespace replicator::detail;

namespace {

constexpr std::int64_t size = 64, classes = 10;

// Random pictures and labels, others for each replica and step.
auto pictures(std::int64_t batch) {
  return [batch](const InputContext& ctx) {
    return data::from_generator([n = ctx.replica_batch(batch), ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> images{{n, 3, size, size}};
      Array<std::int32_t> labels{{n}};
      for (auto& value : images) value = 2 * random.uniform() - 1;
      for (auto& label : labels) label = static_cast<std::int32_t>(random.below(classes));
      return std::tuple{images, labels};
    });
  };
}

Tensor<float> loss_of(ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
  return mean(softmax_cross_entropy(models::resnet(replica, images, 50, {.classes = classes, .cifar_stem = false}), labels));
}

Deployment deployment(const char* replicas, const char* devices) {
  const char* const arguments[] = {"--replicas", replicas, "--seed", "11", "--input-threads", "1", "--devices", devices};
  return Deployment::from(arguments);
}

// The loss and the gradients of one step, by the names of variables.
std::map<std::string, AnyArray> gradients_on(const char* devices) {
  Replicator repl{deployment("2", devices)};
  auto step = repl.replicate(pictures(8), [](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto loss = loss_of(replica, images, labels);
    const auto variables = replica.trainable_variables<float>();
    const auto gradients = nn::mean_over_replicas(variables, nn::variable_gradients(loss, variables));
    for (std::size_t i = 0; i < variables.size(); ++i)
      replica.variable<float>("gradient/" + variables[i].name(), variables[i].shape(), Initializer::zeros(), {.trainable = false})
          .assign(gradients[i]);
    return all_reduce(loss, Reduction::mean);
  });
  const auto [loss] = step.step();
  std::map<std::string, AnyArray> result{{"loss", loss[0].any()}};
  for (const auto& name : repl.variables())
    if (name.starts_with("gradient/")) result.emplace(name, repl.value(name));
  return result;
}

// `fused`: in bfloat16, with all that convolutions can be fused with.
std::string digest_on(const char* devices, bool fused = false) {
  auto where = deployment("8", devices);
  where.kernel_choice.fuse_convolutions = {fused, fused, fused};
  Replicator repl{where};
  auto train = repl.replicate(pictures(32), [fused](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto computed_in = mixed_precision(replica, fused ? DType::bfloat16 : DType::float32);
    const auto loss = loss_of(replica, images, labels);
    nn::sgd({.learning_rate = 0.05, .momentum = 0.9}).minimize(replica, loss);
    return loss;
  });
  for (int i = 0; i < 3; ++i) train.step();
  return repl.digest();
}

double relative_error(const AnyArray& got, const AnyArray& want) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < want.as<float>().size(); ++i) {
    const double x = got.as<float>()[i], y = want.as<float>()[i];
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / norm);
}

}  // namespace

// Rectifiers and maxima have kinks: an input within rounding of one changes gradients by 1e-3, whoever computes them.
TEST_CASE("the loss and all gradients of a ResNet-50 are the CPU's") {
  if (!replicator::test::gpu_is_here()) return;
  const auto want = gradients_on("cpu:0"), got = gradients_on("cuda:0");
  REQUIRE(got.size() == want.size());
  REQUIRE(want.size() == 162);  // 161 parameters and the loss
  for (const auto& [name, value] : want) {
    INFO(name);
    CHECK(relative_error(got.at(name), value) < (name == "loss" ? 1e-5 : 1e-2));
  }
}

TEST_CASE("8 replicas of a ResNet-50 have one digest on a GPU as 1, 2, 4 and 8 logical devices") {
  if (!replicator::test::gpu_is_here()) return;
  const auto one = digest_on("cuda:0");
  WARN("weights sha256: " << one);
  for (const char* devices : {"cuda:0", "cuda:0x2", "cuda:0x4", "cuda:0x8"}) CHECK(digest_on(devices) == one);
}

TEST_CASE("so they have in bfloat16 with fused convolutions") {
  if (!replicator::test::gpu_is_here()) return;
  const auto one = digest_on("cuda:0", true);
  for (const char* devices : {"cuda:0", "cuda:0x3"}) CHECK(digest_on(devices, true) == one);
}

}  // namespace test_cuda_resnet
