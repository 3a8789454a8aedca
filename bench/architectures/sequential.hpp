// SPDX-License-Identifier: Apache-2.0
// Networks of bench/architectures.cpp over sequences: ViT, GPT and a GRU. Each is a class whose members are its sizes.
#pragma once

#include <cstdint>
#include <string>

#include <replicator/replicator.hpp>

namespace architectures {

namespace rp = replicator;

// A pre-norm block of a transformer: x [n, t, width], the same shape.
template <rp::FloatingElement T>
rp::Tensor<T> transformer_block(rp::ReplicaContext& replica, rp::Tensor<T> x, const std::string& name, std::int64_t heads, bool causal) {
  const auto scope = replica.scope(name);
  const auto n = x.shape()[0], t = x.shape()[1], width = x.shape()[2];
  const auto split_heads = [&](rp::Tensor<T> y) { return rp::transpose(rp::reshape(y, {n, t, heads, width / heads}), {0, 2, 1, 3}); };
  const auto [q, k, v] = rp::split<3>(rp::nn::linear(replica, rp::nn::layer_norm(replica, x, "norm1"), "qkv", {.features = 3 * width}));
  const auto y = rp::attention(split_heads(q), split_heads(k), split_heads(v), {.causal = causal});  // [n, heads, t, width / heads]
  x += rp::nn::linear(replica, rp::reshape(rp::transpose(y, {0, 2, 1, 3}), {n, t, width}), "out", {.features = width});
  const auto h = rp::nn::linear(replica, rp::nn::layer_norm(replica, x, "norm2"), "up", {.features = 4 * width});
  return x + rp::nn::linear(replica, rp::gelu(h, rp::Gelu::exact), "down", {.features = width});
}

// Source: Dosovitskiy et al., "An image is worth 16x16 words", 2021.
struct ViT {
  std::int64_t batch, pixels, patch, classes, width, heads, depth;

  rp::Shape numbers() const { return {batch, 3, pixels, pixels}; }
  rp::Shape labels() const { return {batch}; }

  template <rp::FloatingElement T>
  rp::Tensor<T> loss(rp::ReplicaContext& replica, rp::Tensor<T> x, rp::Tensor<std::int32_t> labels) const {
    const auto narrow = rp::Initializer::normal(0, 0.02);
    x = rp::nn::conv2d(replica, x, "patches", {.features = width, .kernel = {patch, patch}, .stride = {patch, patch}});
    x = rp::transpose(rp::reshape(x, {batch, width, -1}), {0, 2, 1});  // [n, places, width]
    const auto token = replica.variable<T>("token", {1, 1, width}, narrow);
    x = rp::concat({rp::broadcast_to(token.read(), {batch, 1, width}), x}, 1);
    x += replica.variable<T>("places", {1, x.shape()[1], width}, narrow).read();
    for (std::int64_t i = 0; i < depth; ++i) x = transformer_block(replica, x, "blocks." + std::to_string(i), heads, false);
    x = rp::reshape(rp::slice_axis(rp::nn::layer_norm(replica, x, "norm"), 1, 0, 1), {batch, width});
    return rp::mean(rp::softmax_cross_entropy(rp::nn::linear(replica, x, "head", {.features = classes}), labels));
  }
};

// The table of words is the last layer, too. Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
struct Gpt {
  std::int64_t batch, context, classes, width, heads, depth;  // classes: the words

  rp::Shape numbers() const { return {1}; }  // unused: it reads words alone
  rp::Shape labels() const { return {batch, context + 1}; }

  template <rp::FloatingElement T>
  rp::Tensor<T> loss(rp::ReplicaContext& replica, rp::Tensor<T>, rp::Tensor<std::int32_t> text) const {
    const auto narrow = rp::Initializer::normal(0, 0.02);
    const auto table = replica.variable<T>("words", {classes, width}, narrow).read();
    auto x = rp::gather(table, rp::slice_axis(text, 1, 0, -1)) + replica.variable<T>("places", {context, width}, narrow).read();  // [n, t, width]
    for (std::int64_t i = 0; i < depth; ++i) x = transformer_block(replica, x, "blocks." + std::to_string(i), heads, true);
    const auto logits = rp::matmul(rp::nn::layer_norm(replica, x, "norm"), table, {.transpose_b = true});  // [n, t, words]
    return rp::mean(rp::softmax_cross_entropy(logits, rp::slice_axis(text, 1, 1)));
  }
};

// A GRU that classifies every place. Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
struct Gru {
  std::int64_t places, batch, inputs, features, classes;

  rp::Shape numbers() const { return {places, batch, inputs}; }
  rp::Shape labels() const { return {places, batch}; }

  template <rp::FloatingElement T>
  rp::Tensor<T> loss(rp::ReplicaContext& replica, rp::Tensor<T> x, rp::Tensor<std::int32_t> labels) const {
    const auto outputs = rp::nn::gru(replica, x, "gru", {.features = features}).outputs;  // [places, batch, features]
    return rp::mean(rp::softmax_cross_entropy(rp::nn::linear(replica, outputs, "head", {.features = classes}), labels));
  }
};

}  // namespace architectures
