// SPDX-License-Identifier: Apache-2.0
// Trains a class-conditional generative adversarial network with spectral norm (Miyato et al. 2018, Miyato and Koyama
// 2018) on pictures:
//   ./sngan --data pictures --image-size 32 --global-batch 64 --replicas 8 --devices cpu:0-7 --classifier classifier.safetensors
// Two replicated steps share their variables: one trains the discriminator, the other the generator. docs/sngan.md says
// more.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <replicator/io/file.hpp>
#include <replicator/io/pictures/png.hpp>
#include <replicator/io/tensorboard.hpp>
#include <replicator/models/sngan.hpp>
#include <replicator/replicator.hpp>

#include "sngan/frechet_distance.hpp"
#include "sngan/inception_score.hpp"
#include "support/not_negative.hpp"
#include "support/picture_folders.hpp"
#include "support/picture_grid.hpp"
#include "support/precision.hpp"
#include "support/program.hpp"

namespace rp = replicator;

namespace {

struct Options {
  std::int64_t image_size = 32;
  std::int64_t latent = 128;
  std::int64_t generator_channels = 64;
  std::int64_t discriminator_channels = 64;
  std::int64_t global_batch = 64;
  std::int64_t steps = 1000;
  std::int64_t n_dis = 5;
  double learning_rate = 2e-4;
  double penalty = 0;
  double average_decay = 0.99;
  bool own_batch_norm = false;
  std::string precision = "float32";
  std::string data;
  std::string synthetic_dir = "data";
  std::string samples = "samples";
  std::int64_t sample_every = 0;
  std::int64_t sample_columns = 8;
  std::string classifier;
  int classifier_depth = 18;
  std::int64_t score_every = 0;
  std::int64_t score_pictures = 1000;
  std::string tensorboard;
  std::string save;
};

void add_flags(CLI::App& app, Options& o) {
  const CLI::Range positive{std::int64_t{1}, std::int64_t{1} << 30};
  app.add_option("--image-size", o.image_size, "height and width in pixels: 16, 32, 64, ...")->check(positive)->capture_default_str();
  app.add_option("--latent", o.latent, "random numbers from which a picture is generated")->check(positive)->capture_default_str();
  app.add_option("--generator-channels", o.generator_channels, "channels of the generator's feature maps; the paper has 256")->check(positive)->capture_default_str();
  app.add_option("--discriminator-channels", o.discriminator_channels, "channels of the discriminator's feature maps; the paper has 128")->check(positive)->capture_default_str();
  app.add_option("--global-batch", o.global_batch, "pictures in a step, over all replicas")->check(positive)->capture_default_str();
  app.add_option("--steps", o.steps, "steps of the generator")->check(positive)->capture_default_str();
  app.add_option("--n-dis", o.n_dis, "steps of the discriminator for each step of the generator")->check(positive)->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "Adam's rate for both networks, with beta1 = 0 and beta2 = 0.9")->check(examples::not_negative)->capture_default_str();
  app.add_option("--penalty", o.penalty, "weight of the squared slope of the discriminator at real pictures (Mescheder et al., 2018)")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_option("--average-decay", o.average_decay, "decay of the generator's moving average, which draws the samples; 0.999 and more for runs of many thousand steps")
      ->check(CLI::Range(0.0, 0.9999999))
      ->capture_default_str();
  app.add_flag("--own-batch-norm", o.own_batch_norm, "the generator's batch norm uses the statistics of each replica's own batch, not of all batches together");
  example::add_precision_flag(app, o.precision);
  app.add_option("--data", o.data,
                 "folder with train/<class>/*.jpg and val/<class>/*.jpg, or with <class>/*.jpg; without it, a synthetic set is written and used");
  app.add_option("--synthetic-dir", o.synthetic_dir, "where the synthetic set is written")->capture_default_str();
  app.add_option("--samples", o.samples, "folder for grids of samples, a row for each class, always of the same latents")->capture_default_str();
  app.add_option("--sample-every", o.sample_every, "steps between grids of samples; 0: only at the end")->check(examples::not_negative)->capture_default_str();
  app.add_option("--sample-columns", o.sample_columns, "samples of a class in a grid")->check(positive)->capture_default_str();
  app.add_option("--classifier", o.classifier,
                 "weights of a ResNet that resnet50 has trained on the same data and written by --save: its features are used to score samples");
  app.add_option("--classifier-depth", o.classifier_depth, "layers of the classifier")->check(CLI::IsMember({18, 34, 50, 101, 152}))->capture_default_str();
  app.add_option("--score-every", o.score_every, "steps between scores; 0: only at the end")->check(examples::not_negative)->capture_default_str();
  app.add_option("--score-pictures", o.score_pictures, "number of samples to score, and of real pictures to compare them with")->check(positive)->capture_default_str();
  app.add_option("--tensorboard", o.tensorboard, "folder for what TensorBoard shows");
  app.add_option("--save", o.save, "safetensors file for the generator's moving average at the end");
}

// --- pictures ------------------------------------------------------------------------------------------------------

using Images = rp::Tensor<float>;         // [n, 3, size, size] in [-1, 1]
using Labels = rp::Tensor<std::int32_t>;  // [n]

auto picture_input(const Options& o, rp::data::ImageFolder folder) {
  return [&o, folder](const rp::InputContext& ctx) {
    return rp::data::ImageFolder{folder} | rp::data::shuffle() | rp::data::shard(ctx) |
           rp::data::decode_images({.crop = {o.image_size, o.image_size},
                                    .resize = o.image_size,
                                    .mean = {0.5f, 0.5f, 0.5f},
                                    .stddev = {0.5f, 0.5f, 0.5f},
                                    .train = false}) |
           rp::data::batch(ctx.replica_batch(o.global_batch)) | rp::data::prefetch(2);
  };
}

// Labels for batches of `batch` samples over all replicas: label_of(number of the sample).
template <class F>
auto label_input(std::int64_t batch, F label_of) {
  return [=](const rp::InputContext& ctx) {
    return rp::data::from_generator([=, n = ctx.replica_batch(batch), replica = ctx.replica()](std::int64_t position) {
      rp::Array<std::int32_t> labels{{n}};
      for (std::int64_t i = 0; i < n; ++i) labels[i] = static_cast<std::int32_t>(label_of(position * batch + replica * n + i));
      return labels;
    });
  };
}
auto all_classes(std::int64_t classes) {
  return [classes](std::int64_t i) { return i % classes; };
}

// --- the two networks ----------------------------------------------------------------------------------------------

rp::models::SnganOptions network(const Options& o, std::int64_t classes, bool training) {
  return {.classes = classes,
          .image_size = o.image_size,
          .generator_channels = o.generator_channels,
          .discriminator_channels = o.discriminator_channels,
          .across_replicas = !o.own_batch_norm,
          .training = training};
}

// G(z, y) for each label y, each with its own z.
Images generate(rp::ReplicaContext& replica, const Options& o, std::int64_t classes, Labels labels) {
  const auto scope = replica.scope("generator");
  const auto latents = rp::normal(replica, {labels.shape()[0], o.latent});  // [n, latent]
  return rp::models::sngan_generator(replica, latents, labels, network(o, classes, true));
}
Images generate_by_average(rp::ReplicaContext& replica, const Options& o, std::int64_t classes, Labels labels) {
  const auto averages = rp::nn::read_averages(replica);
  return generate(replica, o, classes, labels);
}

// D(x, y): [n]
rp::Tensor<float> discriminate(rp::ReplicaContext& replica, const Options& o, std::int64_t classes, Images images, Labels labels,
                               bool training) {
  const auto scope = replica.scope("discriminator");
  return rp::models::sngan_discriminator(replica, images, labels, network(o, classes, training));
}

auto optimizer(const Options& o) { return rp::nn::adam({.learning_rate = o.learning_rate, .beta1 = 0, .beta2 = 0.9}); }

// min over D: E max(0, 1 - D(x, y)) + E max(0, 1 + D(G(z, y), y)) + penalty / 2 E |dD(x, y) / dx|^2
auto discriminator_step(const Options& o, std::int64_t classes) {
  return [&o, classes](rp::ReplicaContext& replica, Images real, Labels labels) {
    const auto mixed = example::compute_in(replica, o.precision);
    const auto fake = generate(replica, o, classes, labels);
    const auto of_real = discriminate(replica, o, classes, real, labels, true);  // [n]
    const auto of_fake = discriminate(replica, o, classes, fake, labels, true);
    auto loss = rp::hinge_discriminator_loss(of_real, of_fake);
    if (o.penalty > 0) {
      const auto slope = rp::gradient(rp::sum(of_real), real);  // [n, 3, size, size]
      loss = loss + rp::mean(rp::sum(slope * slope, {1, 2, 3})) * static_cast<float>(o.penalty / 2);
    }
    optimizer(o).minimize(replica, loss, replica.trainable_variables<float>("discriminator"));
    return std::tuple{loss, rp::mean(of_real), rp::mean(of_fake)};
  };
}

// min over G: -E D(G(z, y), y)
auto generator_step(const Options& o, std::int64_t classes) {
  return [&o, classes](rp::ReplicaContext& replica, Labels labels) {
    const auto mixed = example::compute_in(replica, o.precision);
    const auto fake = generate(replica, o, classes, labels);
    const auto loss = rp::hinge_generator_loss(discriminate(replica, o, classes, fake, labels, false));
    rp::nn::averaged(optimizer(o), o.average_decay).minimize(replica, loss, replica.trainable_variables<float>("generator"));
    return loss;
  };
}

// --- samples -------------------------------------------------------------------------------------------------------

// Draws a grid with a row for each class. The step is replicated anew each time, so its random numbers are those of a
// first step: the latents do not change.
rp::Array<std::uint8_t> draw(rp::Replicator& repl, const Options& o, std::int64_t classes) {
  const auto wanted = classes * o.sample_columns, replicas = std::int64_t{repl.replicas()};
  const auto batch = (wanted + replicas - 1) / replicas * replicas;  // surplus samples are not shown
  const auto class_of = [columns = o.sample_columns, classes](std::int64_t i) { return std::min(i / columns, classes - 1); };
  auto step = repl.replicate(
      label_input(batch, class_of),
      [&](rp::ReplicaContext& replica, Labels labels) { return rp::all_gather(generate_by_average(replica, o, classes, labels)); },
      {.checkpointed = false});
  const auto [images] = step.step();
  const auto& all = images[images.first()];  // [batch, 3, size, size]
  const rp::Shape shape{wanted, 3, o.image_size, o.image_size};
  const rp::Array<float> shown{shape, std::span{all.data(), static_cast<std::size_t>(shape.elements())}};
  return example::picture_grid(shown, {.columns = o.sample_columns, .low = -1, .high = 1});
}

// Frechet distance and score by the features of our own classifier. They are not Inception's figures, and comparable
// only with figures of the same classifier. Hence the report adds those of held-out pictures (the best possible) and of
// noise.
class Judge {
 public:
  struct Figures {
    double distance = 0;  // from the training pictures
    double score = 0;
  };

  Judge(rp::Replicator& repl, const Options& o, const example::Folders& folders, std::int64_t classes)
      : repl_{repl}, o_{o}, classes_{classes} {
    const auto train = rp::data::image_folder(folders.train), val = rp::data::image_folder(folders.val);
    batches_ = std::min({o.score_pictures, train.images(), val.images()}) / o.global_batch;
    if (batches_ == 0) throw rp::BuildError{"--score-pictures, and the pictures of " + folders.val + ", must be at least one batch of " + std::to_string(o.global_batch)};
    const auto real_step = [this](rp::ReplicaContext& replica, Images images, Labels) { return classify(replica, images); };
    auto step = repl.replicate(picture_input(o, train), real_step, {.checkpointed = false});
    rp::load_weights(repl, o.classifier, {.scope = "classifier"});
    reference_ = sngan::fit_gaussian(all_of(step).features);
    auto unseen = repl.replicate(picture_input(o, val), real_step, {.checkpointed = false});
    held_out_ = figures_of(unseen);
    const auto noise_step = [this](rp::ReplicaContext& replica, Labels labels) {
      return classify(replica, rp::uniform(replica, {labels.shape()[0], 3, o_.image_size, o_.image_size}, -1.0f, 1.0f));
    };
    auto noise = repl.replicate(label_input(o.global_batch, all_classes(classes)), noise_step, {.checkpointed = false});
    noise_ = figures_of(noise);
  }

  std::int64_t pictures() const { return batches_ * o_.global_batch; }
  Figures held_out() const { return held_out_; }
  Figures noise() const { return noise_; }
  Figures samples() {
    auto step = repl_.replicate(
        label_input(o_.global_batch, all_classes(classes_)),
        [this](rp::ReplicaContext& replica, Labels labels) { return classify(replica, generate_by_average(replica, o_, classes_, labels)); },
        {.checkpointed = false});
    return figures_of(step);
  }

 private:
  struct Judged {
    rp::Array<float> features;       // [pictures, width]
    rp::Array<float> probabilities;  // [pictures, classes]
  };

  // Gathers over all replicas: features [batch, width], probabilities [batch, classes].
  std::tuple<rp::Tensor<float>, rp::Tensor<float>> classify(rp::ReplicaContext& replica, Images images) const {
    const auto scope = replica.scope("classifier");
    const auto usual = rp::data::DecodeOptions{};  // the preprocessing of resnet50: pictures in [0, 1], normalised
    rp::Array<float> scale{{1, 3, 1, 1}}, shift{{1, 3, 1, 1}};
    for (std::size_t c = 0; c < 3; ++c) {
      scale.data()[c] = 0.5f / usual.stddev[c];
      shift.data()[c] = (0.5f - usual.mean[c]) / usual.stddev[c];
    }
    const auto normalised = images * rp::constant(replica, scale) + rp::constant(replica, shift);
    const auto [features, logits] = rp::models::resnet_outputs(replica, normalised, o_.classifier_depth,
                                                               {.classes = classes_, .training = false, .cifar_stem = o_.image_size < 64});
    return {rp::all_gather(features), rp::all_gather(rp::softmax(logits))};
  }

  template <class Step>
  Judged all_of(Step& step) const {
    Judged all;
    for (std::int64_t i = 0; i < batches_; ++i) {
      const auto [features, probabilities] = step.step();
      append(all.features, features[features.first()], i);
      append(all.probabilities, probabilities[probabilities.first()], i);
    }
    return all;
  }
  void append(rp::Array<float>& all, const rp::Array<float>& batch, std::int64_t i) const {
    if (i == 0) all = rp::Array<float>{{batches_ * batch.shape()[0], batch.shape()[1]}};
    std::copy(batch.begin(), batch.end(), all.data() + i * batch.size());
  }
  template <class Step>
  Figures figures_of(Step& step) const {
    const auto judged = all_of(step);
    return {sngan::frechet_distance(sngan::fit_gaussian(judged.features), reference_),
            sngan::inception_score(judged.probabilities)};
  }

  rp::Replicator& repl_;
  const Options& o_;
  std::int64_t classes_;
  std::int64_t batches_ = 0;
  sngan::Gaussian reference_;
  Figures held_out_, noise_;
};

// --- what is shown and written -------------------------------------------------------------------------------------

// Only process 0 reports. With --elastic, another process may become process 0 after each step.
class Report {
 public:
  Report(const rp::Replicator& repl, const Options& o, std::int64_t steps_before) : repl_{repl}, o_{o} {
    if (speaks(steps_before + 1)) std::filesystem::create_directories(o.samples);
  }

  void losses(std::int64_t step, double discriminator, double real, double fake, double generator) {
    if (!speaks(step)) return;
    if (board_) {
      board_->scalar("loss/discriminator", step, discriminator);
      board_->scalar("loss/generator", step, generator);
      board_->scalar("score/real", step, real);
      board_->scalar("score/fake", step, fake);
    }
    if (step != 1 && step != o_.steps && step % std::max<std::int64_t>(1, o_.steps / 20) != 0) return;
    std::printf("step %ld/%ld  discriminator %.4f (real %.3f, fake %.3f)  generator %.4f\n", static_cast<long>(step),
                static_cast<long>(o_.steps), discriminator, real, fake, generator);
    std::fflush(stdout);
  }

  void samples(std::int64_t step, const rp::Array<std::uint8_t>& grid) {
    if (!speaks(step)) return;
    char name[32];
    std::snprintf(name, sizeof name, "/step-%08ld.png", static_cast<long>(step));
    std::filesystem::create_directories(o_.samples);
    rp::io::write_png(o_.samples + name, grid);
    if (board_) board_->image("samples", step, grid);
  }

  void figures(std::int64_t step, const Judge& judge, const Judge::Figures& samples) {
    if (!speaks(step)) return;
    const auto held_out = judge.held_out(), noise = judge.noise();
    std::printf(
        "step %ld: Frechet distance on our own classifier's features, %ld pictures each: samples %.3f, held-out real pictures %.3f, "
        "noise %.3f\n",
        static_cast<long>(step), static_cast<long>(judge.pictures()), samples.distance, held_out.distance, noise.distance);
    std::printf("step %ld: score by our own classifier (as Inception's): samples %.3f, held-out real pictures %.3f, noise %.3f\n",
                static_cast<long>(step), samples.score, held_out.score, noise.score);
    std::fflush(stdout);
    if (!board_) return;
    for (const auto& [what, value] : {std::pair{"samples", samples}, {"held-out pictures", held_out}, {"noise", noise}}) {
      board_->scalar(std::string{"Frechet distance on our own classifier's features/"} + what, step, value.distance);
      board_->scalar(std::string{"score by our own classifier/"} + what, step, value.score);
    }
  }

 private:
  // Whether this process reports this step. Entries of this step by an earlier run or another process are replaced.
  bool speaks(std::int64_t step) {
    const bool first = repl_.process() == 0;
    if (!first) board_.reset();
    else if (!board_ && !o_.tensorboard.empty()) board_.emplace(o_.tensorboard, rp::io::TensorBoardOptions{.first_step = step > 1 ? step : 0});
    return first;
  }

  const rp::Replicator& repl_;
  const Options& o_;
  std::optional<rp::io::TensorBoardWriter> board_;
};

double value(const rp::PerReplica<rp::Array<float>>& result) { return static_cast<double>(rp::mean(result)); }

int train(rp::Deployment deployment, const Options& o) {
  const rp::StopOnSignal stop;
  rp::Replicator repl{std::move(deployment)};
  const bool speaks = repl.process() == 0;
  if (!o.save.empty() && speaks) rp::io::require_writable("--save", o.save);
  const auto folders = example::find_folders(o.data, o.synthetic_dir, o.image_size, speaks);
  if (!o.classifier.empty() && folders.val.empty())
    throw rp::DataError{"--classifier needs held-out pictures to compare with: " + o.data + " must hold train/<class> and val/<class>"};
  const auto pictures = rp::data::image_folder(folders.train);
  const auto classes = static_cast<std::int64_t>(pictures.classes().size());

  auto discriminator = repl.replicate(picture_input(o, pictures), discriminator_step(o, classes));
  auto generator = repl.replicate(label_input(o.global_batch, all_classes(classes)), generator_step(o, classes));
  std::optional<Judge> judge;
  if (!o.classifier.empty()) judge.emplace(repl, o, folders, classes);
  Report report{repl, o, static_cast<std::int64_t>(generator.steps_done())};
  if (speaks)
    std::cout << pictures.images() << " pictures of " << classes << " classes, " << repl.replicas() << " replicas of "
              << o.global_batch / repl.replicas() << " pictures" << std::endl;

  const auto done = [](const auto& step) { return static_cast<std::int64_t>(step.steps_done()); };  // steps before a resumption included
  double of_discriminator = NAN, of_real = NAN, of_fake = NAN;
  while (done(generator) < o.steps) {
    while (done(discriminator) < o.n_dis * (done(generator) + 1) && repl.stop_signal() == 0) {
      const auto [loss, real, fake] = discriminator.step();
      of_discriminator = value(loss), of_real = value(real), of_fake = value(fake);
    }
    if (repl.stop_signal() != 0) return rp::end_training(repl, done(generator), o.steps);
    const auto [loss] = generator.step();
    const auto step = done(generator);
    const auto due = [&](std::int64_t every) { return step == o.steps || (every > 0 && step % every == 0); };
    report.losses(step, of_discriminator, of_real, of_fake, value(loss));
    if (due(o.sample_every)) report.samples(step, draw(repl, o, classes));
    if (judge && due(o.score_every)) report.figures(step, *judge, judge->samples());
  }
  repl.save_checkpoint();
  const auto digest = repl.digest();
  if (repl.process() != 0) return 0;
  if (!o.save.empty()) rp::save_weights(repl, o.save, {.scope = "generator", .averages = true});
  std::cout << "weights sha256: " << digest << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Trains a class-conditional generative adversarial network with spectral norm on pictures. The same replicas, batch and seed give "
      "the same weights, wherever the replicas run.",
      "sngan"};
  add_flags(app, options);
  return example::run(app, argc, argv, [&](rp::Deployment deployment) { return train(std::move(deployment), options); });
}
