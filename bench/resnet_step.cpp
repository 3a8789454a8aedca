// SPDX-License-Identifier: Apache-2.0
// Times whole training steps of a ResNet on random pictures (no decoding): forward, backward, all-reduce, SGD with
// momentum.
//   resnet_step [--depth 50] [--image-size 224] [--batch 16] [--steps 8] [--precision float32] [--mode train] [--turns yes] and the flags of a
//   deployment
// --mode evaluate: forward only, with the running statistics. --steps 0: plans and runs no step. --turns: see
// turns.hpp. Prints the median seconds of a step, images/s, and how long tracing, initial values, resolving and
// planning took. Then it prints the memory of the plan, and the resident memory before planning and at its peak.
// bench/run runs it beside PyTorch and others.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/replicator.hpp>

#include "turns.hpp"
namespace rp = replicator;

namespace {

struct Options {
  int depth = 50;
  std::int64_t image_size = 224;
  std::int64_t batch = 16;  // over all replicas
  int steps = 8;
  rp::DType products = rp::DType::float32;
  bool training = true, turns = false;
};

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const int value = std::atoi(arguments[i + 1].c_str());
    if (arguments[i] == "--depth") options.depth = value;
    else if (arguments[i] == "--image-size") options.image_size = value;
    else if (arguments[i] == "--batch") options.batch = value;
    else if (arguments[i] == "--steps") options.steps = value;
    else if (arguments[i] == "--precision" && arguments[i + 1] == "bfloat16") options.products = rp::DType::bfloat16;
    else if (arguments[i] == "--precision" && arguments[i + 1] == "float32") options.products = rp::DType::float32;
    else if (arguments[i] == "--mode" && (arguments[i + 1] == "train" || arguments[i + 1] == "evaluate")) options.training = arguments[i + 1] == "train";
    else if (arguments[i] == "--turns" && arguments[i + 1] == "yes") options.turns = true;
    else throw rp::BuildError{"resnet_step knows no flag " + arguments[i] + " " + arguments[i + 1]};
  }
  return options;
}

// Memory of this process in MiB: "VmRSS" is the resident memory, "VmHWM" its peak.
double resident(const std::string& field) {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field + ":", 0) == 0) return std::atof(line.c_str() + field.size() + 1) / 1024;
  return 0;
}
// The line of explain that begins with these words.
std::string line_of(const std::string& text, const std::string& words) {
  const auto begin = text.find(words);
  return begin == std::string::npos ? std::string{} : text.substr(begin, text.find('\n', begin) - begin);
}

void run(int argc, char** argv) {
  const auto deployment = rp::Deployment::from(argc, argv);
  const Options options = parse(deployment.remaining);
  rp::Replicator repl{deployment};
  auto input_fn = [&](const rp::InputContext& ctx) {
    const auto n = ctx.replica_batch(options.batch);
    rp::Array<float> images{{n, 3, options.image_size, options.image_size}};
    rp::Array<std::int32_t> labels{{n}};
    rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(ctx.replica())};
    for (auto& value : images) value = 2 * random.uniform() - 1;
    for (auto& label : labels) label = static_cast<std::int32_t>(random.below(1000));
    // Lends the pictures: returning arrays would copy them once more in each step.
    return rp::data::from_generator([images = std::move(images), labels = std::move(labels)]() mutable {
      return std::tuple{rp::Array<float>::borrow(images.shape(), images.data()), rp::Array<std::int32_t>::borrow(labels.shape(), labels.data())};
    });
  };
  auto step_fn = [&](rp::ReplicaContext& replica, rp::Tensor<float> images, rp::Tensor<std::int32_t> labels) {
    const auto mixed = rp::mixed_precision(replica, options.products);
    auto logits =
        rp::models::resnet(replica, images, options.depth, {.classes = 1000, .training = options.training, .cifar_stem = options.image_size < 64});
    auto loss = rp::mean(rp::softmax_cross_entropy(logits, labels));
    if (options.training) rp::nn::sgd({.learning_rate = 1e-3f, .momentum = 0.9f}).minimize(replica, loss);
    return loss;
  };
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const double before = resident("VmRSS");
  const auto asked = Clock::now();
  auto train = repl.replicate(input_fn, step_fn);
  const double planned = seconds_since(asked);
  if (options.steps == 0 && repl.process() == 0) std::printf("planned in %.2f s\n", planned);
  if (options.steps == 0) return;
  train.step();
  bench::take_turns(options.turns, [&] {
    std::vector<double> seconds;
    for (int i = 0; i < options.steps; ++i) {
      const auto begin = Clock::now();
      train.step();
      seconds.push_back(seconds_since(begin));
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    if (repl.process() != 0) return;
    std::printf("%.4f s/step %.2f images/s, planned in %.2f s\n", median, static_cast<double>(options.batch) / median, planned);
    std::printf("plan: %s\n", line_of(train.explain(), "memory ").c_str());
    std::printf("resident: %.0f MiB before planning, at most %.0f MiB\n", before, resident("VmHWM"));
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const rp::Error& error) {
    std::fprintf(stderr, "resnet_step: %s\n", error.what());
    return 1;
  }
}
