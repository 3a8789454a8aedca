// SPDX-License-Identifier: Apache-2.0
// Trains a ResNet on a folder of pictures:
//   ./resnet50 --depth 50 --data imagenet --image-size 224 --global-batch 256 --replicas 8 --devices cpu:0-7
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <replicator/io/file.hpp>
#include <replicator/replicator.hpp>

#include "support/not_negative.hpp"
#include "support/picture_folders.hpp"
#include "support/precision.hpp"
#include "support/program.hpp"
#include "support/training_picture.hpp"

namespace rp = replicator;

namespace {

struct Options {
  int depth = 50;
  std::int64_t image_size = 224;
  std::int64_t global_batch = 256;
  std::int64_t steps = 1000;
  std::int64_t validate_every = 0;
  std::string data;
  std::string synthetic_dir = "data";
  std::string load;
  std::string save;
  std::string tensorboard;
  std::string picture;
  std::string optimizer = "sgd";
  double learning_rate = 0.05;
  std::int64_t warmup_steps = -1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double label_smoothing = 0;
  std::optional<bool> zero_residual_gain;
  bool cross_replica_batch_norm = false;
  std::string precision = "float32";
  bool explain = false;
};

void add_flags(CLI::App& app, Options& o) {
  app.add_option("--depth", o.depth, "layers of the ResNet (version 1.5)")
      ->check(CLI::IsMember({18, 34, 50, 101, 152}))
      ->capture_default_str();
  app.add_option("--image-size", o.image_size,
                 "height and width in pixels; below 64 the first layer is that for CIFAR: 3x3, stride 1, no pooling")
      ->check(CLI::Range(8, 4096))
      ->capture_default_str();
  app.add_option("--global-batch", o.global_batch, "pictures in a step, over all replicas")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "steps to train")->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))->capture_default_str();
  app.add_option(
      "--data", o.data,
      "folder with train/<class>/*.jpg and val/<class>/*.jpg, or with <class>/*.jpg (then nothing is validated); "
      "without it, a synthetic set is written and used");
  app.add_option("--synthetic-dir", o.synthetic_dir, "where the synthetic set is written")->capture_default_str();
  app.add_option("--validate-every", o.validate_every, "validate after every so many steps; 0: only at the end")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_option("--optimizer", o.optimizer, "what updates the weights")
      ->check(CLI::IsMember({"sgd", "adamw", "lars", "lamb"}))
      ->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "peak of the rate, which rises linearly and falls along a cosine")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_option("--warmup-steps", o.warmup_steps, "steps in which the rate rises; default: a tenth of all");
  app.add_option("--momentum", o.momentum, "momentum of SGD (Nesterov's) and LARS; 0 for none")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_option("--weight-decay", o.weight_decay, "weight decay, not of batch norm and biases")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_option("--label-smoothing", o.label_smoothing, "part of each target that is spread over all classes")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--zero-residual-gain,!--no-zero-residual-gain", o.zero_residual_gain,
               "every block begins as the identity (Goyal et al., 2017); default: from depth 50 on, where that helps");
  app.add_flag("--cross-replica-batch-norm", o.cross_replica_batch_norm, "batch statistics over all replicas");
  example::add_precision_flag(app, o.precision);
  app.add_option("--load", o.load, "weights to begin with: a safetensors file with torchvision's names");
  app.add_option("--save", o.save, "where the weights are written at the end, as such a file");
  app.add_option("--tensorboard", o.tensorboard, "folder for the curves of this run: tensorboard --logdir of it or of one above");
  app.add_option("--picture", o.picture, "an SVG file for the end: the curve of the loss, and pictures with what the network takes them for");
  app.add_flag("--explain", o.explain, "print the collectives of a step, and how and why each is done so; with --timing at the end, beside the times measured");
}

// --- pictures ------------------------------------------------------------------------------------------------------

// Small pictures are shifted and mirrored, large ones cropped at random.
rp::data::DecodeOptions decoding(const Options& o, bool train) {
  return {.crop = {o.image_size, o.image_size}, .pad = o.image_size < 64 ? o.image_size / 8 : 0, .train = train};
}

auto train_input(const Options& o, rp::data::ImageFolder folder) {
  return [&o, folder](const rp::InputContext& ctx) {
    return rp::data::ImageFolder{folder} | rp::data::shuffle() | rp::data::shard(ctx) |
           rp::data::decode_images(decoding(o, true)) | rp::data::batch(ctx.replica_batch(o.global_batch)) |
           rp::data::prefetch(2);
  };
}

auto validation_input(const Options& o, rp::data::ImageFolder folder) {
  return [&o, folder](const rp::InputContext& ctx) {
    return rp::data::ImageFolder{folder} | rp::data::shard(ctx) | rp::data::epochs(1) |
           rp::data::decode_images(decoding(o, false)) |
           rp::data::batch(ctx.replica_batch(o.global_batch), {.last = rp::data::Last::pad}) | rp::data::prefetch(2);
  };
}

// --- steps ---------------------------------------------------------------------------------------------------------

using Images = rp::Tensor<float>;         // [n, 3, size, size]
using Labels = rp::Tensor<std::int32_t>;  // [n]
using Weights = rp::Tensor<float>;        // [n], 0 for padding

// [n, classes]
rp::Tensor<float> network(rp::ReplicaContext& replica, Images images, const Options& o, std::int64_t classes, bool training) {
  const auto mixed = example::compute_in(replica, o.precision);
  return rp::models::resnet(replica, images, o.depth,
                            {.classes = classes,
                             .training = training,
                             .cifar_stem = o.image_size < 64,
                             .across_replicas = o.cross_replica_batch_norm,
                             .zero_residual_gain = o.zero_residual_gain.value_or(o.depth >= 50),
                             .logical_devices = replica.logical_devices()});  // --logical-devices 2: each replica in two halves
}

// Weights of batch norm and biases do not decay.
void minimize(rp::ReplicaContext& replica, rp::Tensor<float> loss, const rp::nn::Rate& rate, const Options& o) {
  const double decay = o.weight_decay;
  if (o.optimizer == "adamw") rp::nn::adamw({.learning_rate = rate, .weight_decay = decay, .decay_vectors = false}).minimize(replica, loss);
  else if (o.optimizer == "lars") rp::nn::lars({.learning_rate = rate, .momentum = o.momentum, .weight_decay = decay}).minimize(replica, loss);
  else if (o.optimizer == "lamb") rp::nn::lamb({.learning_rate = rate, .weight_decay = decay}).minimize(replica, loss);
  else
    rp::nn::sgd({.learning_rate = rate, .momentum = o.momentum, .nesterov = o.momentum > 0, .weight_decay = decay, .decay_vectors = false})
        .minimize(replica, loss);
}

auto train_step(const Options& o, std::int64_t classes) {
  const std::int64_t warmup = o.warmup_steps >= 0 ? std::min(o.warmup_steps, o.steps - 1) : o.steps / 10;
  const rp::nn::Rate rate = rp::nn::warmup_cosine(o.learning_rate, warmup, o.steps);
  return [&o, classes, rate](rp::ReplicaContext& replica, Images images, Labels labels) {
    const auto logits = network(replica, images, o, classes, true);
    const auto loss = rp::mean(rp::softmax_cross_entropy(logits, labels, {.label_smoothing = o.label_smoothing}));
    minimize(replica, loss, rate, o);
    return std::tuple{loss, rp::accuracy(logits, labels)};
  };
}

// How many pictures were recognised, and of how many: every picture counts once, the padding of last batches not.
auto validation_step(const Options& o, std::int64_t classes) {
  return [&o, classes](rp::ReplicaContext& replica, Images images, Labels labels, Weights weights) {
    const auto logits = network(replica, images, o, classes, false);
    const auto right = rp::cast<float>(rp::argmax(logits, 1) == labels);  // [n]
    return std::tuple{rp::sum(right * weights), rp::sum(weights)};
  };
}

// As a training loop wants it: the part that was recognised.
std::vector<double> validate(rp::Replicator& repl, const Options& o, const rp::data::ImageFolder& folder) {
  auto step = repl.replicate(validation_input(o, folder), validation_step(o, static_cast<std::int64_t>(folder.classes().size())),
                             {.checkpointed = false});
  double right = 0, all = 0;
  while (!step.finished() && repl.stop_signal() == 0) {
    const auto [hits, count] = step.step();
    right += static_cast<double>(rp::mean(hits));
    all += static_cast<double>(rp::mean(count));
  }
  return {right / all};
}

// --- the picture at the end ----------------------------------------------------------------------------------------

// The picture at [n, 3, size, size], as it was before decode_images normalised it.
rp::Array<std::uint8_t> pixels_of(const rp::Array<float>& images, std::int64_t n) {
  const rp::data::DecodeOptions usual;
  const std::int64_t height = images.shape()[2], width = images.shape()[3], plane = height * width;
  rp::Array<std::uint8_t> pixels{rp::Shape{height, width, 3}};
  for (std::int64_t i = 0; i < plane; ++i)
    for (std::int64_t c = 0; c < 3; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const float value = images[(n * 3 + c) * plane + i] * usual.stddev[channel] + usual.mean[channel];
      pixels[i * 3 + c] = static_cast<std::uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255 + 0.5f);
    }
  return pixels;
}

// What the network takes pictures for that it has not been trained on: those that replicas of this process see, at most 24.
std::vector<example::Judged> judge(rp::Replicator& repl, const Options& o, const rp::data::ImageFolder& folder) {
  const auto& classes = folder.classes();
  const std::int64_t batch = (24 + repl.replicas() - 1) / repl.replicas();
  auto step = repl.replicate(
      [&](const rp::InputContext& ctx) {
        return rp::data::ImageFolder{folder} | rp::data::shuffle() | rp::data::shard(ctx) | rp::data::decode_images(decoding(o, false)) | rp::data::batch(batch);
      },
      [&](rp::ReplicaContext& replica, Images images, Labels labels) {
        const auto odds = rp::softmax(network(replica, images, o, static_cast<std::int64_t>(classes.size()), false));  // [n, classes]
        return std::tuple{images, labels, rp::argmax(odds, 1), rp::max(odds, rp::Axes{1})};
      },
      {.checkpointed = false});
  const auto [images, labels, said, certainty] = step.step();
  std::vector<example::Judged> result;
  int replica = images.first();
  for (const auto& local : images) {
    for (std::int64_t n = 0; n < batch && result.size() < 24; ++n)
      result.push_back({pixels_of(local, n), classes[static_cast<std::size_t>(labels[replica][n])],
                        classes[static_cast<std::size_t>(said[replica][n])], certainty[replica][n]});
    ++replica;
  }
  return result;
}

// --- training ------------------------------------------------------------------------------------------------------

int train(rp::Deployment deployment, const Options& o) {
  rp::Replicator repl{std::move(deployment)};
  const bool speaks = repl.process() == 0;
  if (!o.save.empty() && speaks) rp::io::require_writable("--save", o.save);
  if (!o.picture.empty() && speaks) rp::io::require_writable("--picture", o.picture);
  const auto replica_batch = repl.input_context(0).replica_batch(o.global_batch);
  const auto folders = example::find_folders(o.data, o.synthetic_dir, std::max<std::int64_t>(o.image_size, 16), speaks);
  const auto pictures = rp::data::image_folder(folders.train);
  const auto classes = static_cast<std::int64_t>(pictures.classes().size());
  std::optional<rp::data::ImageFolder> unseen;
  if (!folders.val.empty()) unseen = rp::data::image_folder(folders.val);
  if (unseen && unseen->classes() != pictures.classes())
    throw rp::DataError{folders.val + ": its classes are not those of " + folders.train +
                        ": the sub-folders must have the same names"};
  if (speaks)
    std::cout << "ResNet-" << o.depth << ", " << pictures.images() << " pictures of " << classes << " classes, "
              << repl.replicas() << " replicas of " << replica_batch << " pictures" << std::endl;

  auto step = repl.replicate(train_input(o, pictures), train_step(o, classes));
  if (!o.load.empty() && step.steps_done() == 0) rp::load_weights(repl, o.load);
  const bool timed = repl.deployment().see.timing;
  if (o.explain && speaks && !timed) std::cout << step.explain();
  const rp::Figure top1{"top-1", true};
  rp::TrainLoopOptions options{.steps = o.steps,
                               .batch = o.global_batch,
                               .figures = {{"loss"}, top1},
                               .validate_every = o.validate_every,
                               .tensorboard = o.tensorboard};
  example::TrainingPicture picture;
  options.after_step = [&](std::int64_t, const std::vector<double>& figures) { picture.loss.push_back(figures[0]); };
  if (unseen) {
    options.validate = [&] { return validate(repl, o, *unseen); };
    options.validated = {top1};
  }
  if (const int stopped = rp::TrainLoop{repl, std::move(options)}.run(step)) return stopped;
  if (!o.picture.empty() && unseen) picture.judged = judge(repl, o, *unseen);
  const auto digest = repl.digest();
  if (repl.process() != 0) return 0;  // with --elastic another one than before, perhaps
  if (o.explain && timed) std::cout << step.explain({.calibrate = true});
  if (!o.save.empty()) rp::save_weights(repl, o.save);
  if (!o.picture.empty()) {
    picture.title = "ResNet-" + std::to_string(o.depth) + ", " + std::to_string(repl.replicas()) + " replicas of " + std::to_string(replica_batch) + " pictures";
    example::write_training_picture(o.picture, picture);
    std::cout << "picture: " << o.picture << std::endl;
  }
  std::cout << "weights sha256: " << digest << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Trains a ResNet on pictures. The same replicas, batch and seed give the same weights, wherever the "
      "replicas run.",
      "resnet50"};
  add_flags(app, options);
  return example::run(app, argc, argv, [&](rp::Deployment deployment) { return train(std::move(deployment), options); });
}
