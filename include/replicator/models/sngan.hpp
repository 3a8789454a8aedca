// SPDX-License-Identifier: Apache-2.0
// SNGAN: a class-conditional generative adversarial network with spectral normalisation, a residual generator and a
// projection discriminator.
// Source: Miyato, Kataoka, Koyama, Yoshida, "Spectral normalization for generative adversarial networks", 2018; Miyato
// and Koyama, "cGANs with projection discriminator", 2018.
#pragma once

#include <cmath>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/conditional_batch_norm.hpp>
#include <replicator/nn/conv2d.hpp>
#include <replicator/nn/embedding.hpp>
#include <replicator/nn/linear.hpp>
#include <replicator/ops/pooling.hpp>
#include <replicator/ops/resize.hpp>

namespace replicator::models {

struct SnganOptions {
  std::int64_t classes = 10;
  std::int64_t image_size = 32;  // a power of two, at least 16
  std::int64_t generator_channels = 256;
  std::int64_t discriminator_channels = 128;
  bool across_replicas = true;  // generator: batch norm uses the statistics of the batches of all replicas together
  bool training = true;         // discriminator: false does not update the singular vectors of its weights
};

namespace detail {

template <FloatingElement T>
class SnganBuilder {
 public:
  using Labels = Tensor<std::int32_t>;

  // Throws BuildError unless the size is a power of two from 16 on, and classes and channels are at least 1.
  SnganBuilder(ReplicaContext& replica, const SnganOptions& options, std::source_location where)
      : replica_{replica}, options_{options}, where_{where} {
    const auto size = options.image_size;
    if (size < 16 || (size & (size - 1)) != 0 || options.classes < 1 || options.generator_channels < 1 || options.discriminator_channels < 1)
      throw BuildError{"sngan at " + Location{where}.text() + ": pictures must be 16, 32, 64, ... pixels wide, with at least one class and " +
                       "channel; found " + std::to_string(size) + " pixels, " + std::to_string(options.classes) + " classes, " +
                       std::to_string(options.generator_channels) + " and " + std::to_string(options.discriminator_channels) + " channels"};
  }

  // Starts with 4x4 pixels and doubles until the size is reached.
  Tensor<T> generate(Tensor<T> latents, Labels labels) {
    const auto channels = options_.generator_channels;
    const auto dense = nn::linear(replica_, latents, "dense",
                                  {.features = 16 * channels, .initializer = nn::glorot_uniform({16 * channels, latents.shape()[1]})}, where_);
    Tensor<T> x{reshape(dense.any(), Shape{latents.shape()[0], channels, 4, 4}, where_)};
    for (int i = 1; x.shape()[2] < options_.image_size; ++i) x = up_block(x, labels, "block" + std::to_string(i));
    x = relu(nn::batch_norm(replica_, x, "norm", {.across_replicas = options_.across_replicas, .track = false}, where_), where_);
    return tanh(conv(x, "to_rgb", 3, 3, 1, {}), where_);
  }

  // Halves the picture down to 8x8, then applies two blocks of constant size, and sums over the pixels.
  Tensor<T> discriminate(Tensor<T> images, Labels labels) {
    Tensor<T> x = first_block(images);
    int i = 2;
    for (; x.shape()[2] > 8; ++i) x = down_block(x, "block" + std::to_string(i), true);
    for (const int end = i + 2; i < end; ++i) x = down_block(x, "block" + std::to_string(i), false);
    const auto h = sum(relu(x, where_), {2, 3}, where_);  // [N, channels]
    const auto score = nn::linear(replica_, h, "linear", {.features = 1, .initializer = nn::glorot_uniform({1, h.shape()[1]}), .spectral_norm = normalised()}, where_);
    return Tensor<T>{apply(replicator::detail::ScalarOp::add, {reshape(score.any(), labels.shape(), where_), projection(h, labels)}, where_)};
  }

 private:
  static constexpr double residual_gain = 1.4142135623730951;

  nn::SpectralNormOptions normalised() const { return {.training = options_.training}; }

  Tensor<T> conv(Tensor<T> x, std::string_view name, std::int64_t features, std::int64_t kernel, double gain,
                 std::optional<nn::SpectralNormOptions> spectral_norm) {
    return nn::conv2d(replica_, x, name,
                      {.features = features,
                       .kernel = {kernel, kernel},
                       .padding = {kernel / 2, kernel / 2},
                       .initializer = nn::glorot_uniform({features, x.shape()[1], kernel, kernel}, gain),
                       .spectral_norm = spectral_norm},
                      where_);
  }
  Tensor<T> plus(Tensor<T> a, Tensor<T> b) { return Tensor<T>{apply(replicator::detail::ScalarOp::add, {a, b}, where_)}; }

  // norm, relu, double, 3x3, norm, relu, 3x3; shortcut: double, 1x1.
  Tensor<T> up_block(Tensor<T> x, Labels labels, const std::string& name) {
    const auto scope = replica_.scope(name);
    const auto channels = options_.generator_channels;
    const auto active = [&](Tensor<T> h, std::string_view norm) {
      return relu(nn::conditional_batch_norm(replica_, h, labels, norm, {.classes = options_.classes, .across_replicas = options_.across_replicas}, where_),
                  where_);
    };
    const auto twice = [&](Tensor<T> h) { return upsample(h, {2, 2}, Interpolation::nearest, where_); };
    Tensor<T> h = conv(twice(active(x, "norm1")), "conv1", channels, 3, residual_gain, {});
    h = conv(active(h, "norm2"), "conv2", channels, 3, residual_gain, {});
    return plus(h, conv(twice(x), "shortcut", channels, 1, 1, {}));
  }

  Tensor<T> half(Tensor<T> x) { return average_pool(x, {.window = {2, 2}}, where_); }

  // 3x3, relu, 3x3, halve; shortcut: halve, 1x1.
  Tensor<T> first_block(Tensor<T> x) {
    const auto scope = replica_.scope("block1");
    const auto channels = options_.discriminator_channels;
    const auto h = relu(conv(x, "conv1", channels, 3, residual_gain, normalised()), where_);
    return plus(half(conv(h, "conv2", channels, 3, residual_gain, normalised())), conv(half(x), "shortcut", channels, 1, 1, normalised()));
  }
  // relu, 3x3, relu, 3x3, and halve if asked; shortcut: the same with 1x1, or the identity. 1x1 and halving commute;
  // halving first is less work.
  Tensor<T> down_block(Tensor<T> x, const std::string& name, bool halve) {
    const auto scope = replica_.scope(name);
    const auto channels = options_.discriminator_channels;
    Tensor<T> h = conv(relu(x, where_), "conv1", channels, 3, residual_gain, normalised());
    h = conv(relu(h, where_), "conv2", channels, 3, residual_gain, normalised());
    return halve ? plus(half(h), conv(half(x), "shortcut", channels, 1, 1, normalised())) : plus(h, x);
  }
  // The inner product of the features with the class's vector: [N].
  Tensor<T> projection(Tensor<T> h, Labels labels) {
    const auto of_class = nn::embedding<T>(replica_, labels, "embedding",
                                           {.entries = options_.classes,
                                            .features = h.shape()[1],
                                            .initializer = nn::glorot_uniform({options_.classes, h.shape()[1]}),
                                            .spectral_norm = normalised()},
                                           where_);
    return sum(Tensor<T>{apply(replicator::detail::ScalarOp::multiply, {of_class, h}, where_)}, {1}, where_);
  }

  ReplicaContext& replica_;
  const SnganOptions& options_;
  std::source_location where_;
};

}  // namespace detail

// latents [N, L], labels [N] -> pictures [N, 3, size, size] in (-1, 1). Batch norm always uses the batch's statistics,
// so pictures depend on the others in their batch. Call it within its own scope.
// Throws BuildError for options or shapes that do not fit. A label outside of [0, classes) throws DataError in the
// step.
template <FloatingElement T>
Tensor<T> sngan_generator(ReplicaContext& replica, Tensor<T> latents, Tensor<std::int32_t> labels, const SnganOptions& options = {},
                          std::source_location where = std::source_location::current()) {
  return detail::SnganBuilder<T>{replica, options, where}.generate(latents, labels);
}

// pictures [N, 3, size, size], labels [N] -> scores [N] of how real they look. Every weight is spectrally normalised.
// Its singular vector moves once per step, however often the discriminator is called.
// Throws as sngan_generator does.
template <FloatingElement T>
Tensor<T> sngan_discriminator(ReplicaContext& replica, Tensor<T> images, Tensor<std::int32_t> labels, const SnganOptions& options = {},
                              std::source_location where = std::source_location::current()) {
  return detail::SnganBuilder<T>{replica, options, where}.discriminate(images, labels);
}

}  // namespace replicator::models
