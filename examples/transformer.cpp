// SPDX-License-Identifier: Apache-2.0
// Trains a language model on the letters of a text, and generates text with it:
//   ./transformer --text shakespeare.txt --width 128 --layers 4 --steps 2000 --replicas 4 --devices cpu:0-3
// The network is a decoder with a norm before each part of a block.
// Sources: Vaswani et al., "Attention is all you need", 2017; Radford et al., "Language models are unsupervised multitask
// learners", 2019.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include <replicator/io/read_text.hpp>
#include <replicator/replicator.hpp>

#include "support/not_negative.hpp"
#include "support/program.hpp"

namespace rp = replicator;

namespace {

struct Options {
  std::string text;
  std::int64_t context = 64;
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
  double dropout = 0.1;
  std::int64_t global_batch = 32;
  std::int64_t steps = 400;
  double learning_rate = 3e-3;
  std::int64_t validate_every = 0;
  std::string tensorboard;
  std::int64_t write = 300;
  double temperature = 0.8;
};

void add_flags(CLI::App& app, Options& o) {
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 30);
  app.add_option("--text", o.text, "text file to learn the letters (bytes) of; without it, made-up sentences")->check(CLI::ExistingFile);
  app.add_option("--context", o.context, "letters that the model sees")->check(positive)->capture_default_str();
  app.add_option("--width", o.width, "features of a letter, a multiple of --heads")->check(positive)->capture_default_str();
  app.add_option("--heads", o.heads, "heads of attention")->check(positive)->capture_default_str();
  app.add_option("--layers", o.layers, "blocks of attention and perceptron")->check(positive)->capture_default_str();
  app.add_option("--dropout", o.dropout, "part of the activations that is dropped in training")->check(CLI::Range(0.0, 0.99))->capture_default_str();
  app.add_option("--global-batch", o.global_batch, "windows of text in a step, over all replicas")->check(positive)->capture_default_str();
  app.add_option("--steps", o.steps, "steps to train")->check(positive)->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "peak of AdamW's rate, which rises in a tenth of the steps and falls along a cosine")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_option("--validate-every", o.validate_every, "validate after every so many steps; 0: only at the end")
      ->check(examples::not_negative)
      ->capture_default_str();
  app.add_option("--tensorboard", o.tensorboard, "folder for the curves of this run");
  app.add_option("--write", o.write, "letters to write at the end")->check(examples::not_negative)->capture_default_str();
  app.add_option("--temperature", o.temperature, "below 1 likely letters become more likely, above 1 less likely")->check(CLI::PositiveNumber)->capture_default_str();
}

// --- text ----------------------------------------------------------------------------------------------------------

// "two old hens follow one red fox." Verb agrees with subject, and noun with number. Of a sentence of 35.6 letters on
// average, 9.4 nats are free choice. So no model can have a loss below 0.26 for each letter.
std::string made_up_text(std::uint64_t seed) {
  static constexpr std::array numbers{"one", "two", "three", "four"}, adjectives{"red", "old", "small", "quick"};
  static constexpr std::array nouns{"dog", "hen", "owl", "cat"};
  static constexpr std::array verbs{"see", "hear", "follow"};
  rp::PhiloxStream random{seed, 0};
  const auto one_of = [&](const auto& words) { return std::string{words[random.below(static_cast<std::uint32_t>(words.size()))]}; };
  std::string text;
  const auto add_group = [&] {
    const auto number = one_of(numbers);
    text += number + ' ' + one_of(adjectives) + ' ' + one_of(nouns) + (number == "one" ? "" : "s");
    return number == "one";
  };
  for (int sentence = 0; sentence < 3000; ++sentence) {
    const bool singular = add_group();
    text += ' ' + one_of(verbs) + (singular ? "s " : " ");
    add_group();
    text += ".\n";
  }
  return text;
}

struct Text {
  std::string alphabet;                     // its distinct letters, in order
  std::vector<std::int32_t> train, unseen;  // indices into the alphabet; the last tenth is held out
};

// Throws DataError for a text that is too short for a window of either part.
Text read_text(const Options& o, std::uint64_t seed) {
  std::string all = made_up_text(seed);
  if (!o.text.empty()) {
    auto read = rp::detail::read_text(o.text);
    if (!read) throw rp::DataError{"--text is \"" + o.text + "\", which cannot be read: " + std::strerror(errno)};
    all = std::move(*read);
  }
  if (static_cast<std::int64_t>(all.size()) < 10 * (o.context + 2))
    throw rp::DataError{o.text + " has " + std::to_string(all.size()) + " letters: a context of " + std::to_string(o.context) +
                        " takes at least " + std::to_string(10 * (o.context + 2)) + ", of which a tenth is not trained on"};
  Text text;
  text.alphabet = all;
  std::sort(text.alphabet.begin(), text.alphabet.end());
  text.alphabet.erase(std::unique(text.alphabet.begin(), text.alphabet.end()), text.alphabet.end());
  const auto tokens = [&](std::string_view part) {
    std::vector<std::int32_t> result;
    for (const char letter : part) result.push_back(static_cast<std::int32_t>(text.alphabet.find(letter)));
    return result;
  };
  const auto trained = all.size() - all.size() / 10;
  text.train = tokens(std::string_view{all}.substr(0, trained));
  text.unseen = tokens(std::string_view{all}.substr(trained));
  return text;
}

// Windows at random positions, and the letter behind each letter: [n, context] both
auto windows(const Options& o, const std::vector<std::int32_t>& letters) {
  const auto all = rp::data::token_windows(letters, {.length = o.context, .stride = 1});
  return [&o, all](const rp::InputContext& ctx) { return all | rp::data::shuffle() | rp::data::shard(ctx) | rp::data::batch(ctx.replica_batch(o.global_batch)); };
}

// --- model ---------------------------------------------------------------------------------------------------------

using Letters = rp::Tensor<std::int32_t>;  // [n, t]
using Features = rp::Tensor<float>;        // [n, t, width]

Features self_attention(rp::ReplicaContext& replica, Features x, const Options& o, double dropout) {
  const auto n = x.shape()[0], t = x.shape()[1];
  const auto heads = [&](Features y) { return rp::transpose(rp::reshape(y, {n, t, o.heads, -1}), {0, 2, 1, 3}); };
  const auto [q, k, v] = rp::split<3>(rp::nn::linear(replica, x, "qkv", {.features = 3 * o.width}));  // [n, t, width] each
  const auto y = rp::attention(heads(q), heads(k), heads(v), {.causal = true, .dropout = dropout});   // [n, heads, t, width / heads]
  return rp::nn::linear(replica, rp::reshape(rp::transpose(y, {0, 2, 1, 3}), {n, t, o.width}), "out", {.features = o.width});
}

Features perceptron(rp::ReplicaContext& replica, Features x, const Options& o) {
  const auto h = rp::gelu(rp::nn::linear(replica, x, "up", {.features = 4 * o.width}));  // [n, t, 4 width]
  return rp::nn::linear(replica, h, "down", {.features = o.width});
}

// [n, t] -> [n, t, alphabet]: for each letter, the logits of the next one
rp::Tensor<float> network(rp::ReplicaContext& replica, Letters letters, const Options& o, std::int64_t alphabet, double dropout) {
  const auto places = rp::iota(replica, static_cast<std::int32_t>(letters.shape()[1]));
  const auto narrow = rp::Initializer::normal(0, 0.1);
  Features x = rp::nn::embedding(replica, letters, "letters", {.entries = alphabet, .features = o.width, .initializer = narrow}) +
               rp::nn::embedding(replica, places, "places", {.entries = o.context, .features = o.width, .initializer = narrow});
  for (std::int64_t i = 0; i < o.layers; ++i) {
    const auto scope = replica.scope("block" + std::to_string(i));
    x += rp::dropout(self_attention(replica, rp::nn::layer_norm(replica, x, "norm1"), o, dropout), dropout);
    x += rp::dropout(perceptron(replica, rp::nn::layer_norm(replica, x, "norm2"), o), dropout);
  }
  return rp::nn::linear(replica, rp::nn::layer_norm(replica, x, "norm"), "head", {.features = alphabet});
}

// The loss in nats per letter.
rp::Tensor<float> loss_of(rp::ReplicaContext& replica, Letters letters, Letters next, const Options& o, std::int64_t alphabet, double dropout) {
  return rp::mean(rp::softmax_cross_entropy(network(replica, letters, o, alphabet, dropout), next));
}

// --- steps ---------------------------------------------------------------------------------------------------------

auto train_step(const Options& o, std::int64_t alphabet) {
  const auto adamw = rp::nn::adamw({.learning_rate = rp::nn::warmup_cosine(o.learning_rate, o.steps / 10, o.steps),
                                    .beta2 = 0.99,
                                    .weight_decay = 0.1,
                                    .decay_vectors = false});
  return [&o, alphabet, adamw](rp::ReplicaContext& replica, Letters letters, Letters next) {
    const auto loss = loss_of(replica, letters, next, o, alphabet, o.dropout);
    rp::nn::clipped(adamw, 1.0).minimize(replica, loss);
    return loss;
  };
}

// The mean loss of eight batches of held-out text, the same batches each time.
double validate(rp::Replicator& repl, const Options& o, const Text& text) {
  auto step = repl.replicate(
      windows(o, text.unseen),
      [&](rp::ReplicaContext& replica, Letters letters, Letters next) { return loss_of(replica, letters, next, o, static_cast<std::int64_t>(text.alphabet.size()), 0); },
      {.checkpointed = false});
  double sum = 0;
  for (int i = 0; i < 8; ++i) sum += static_cast<double>(rp::mean(std::get<0>(step.step())));
  return sum / 8;
}

// Continues the first letters of the held-out text. The text so far is a variable: each step reads it and appends a
// letter. Every replica draws a letter; that of replica 0 is broadcast, so all write the same text.
std::string write(rp::Replicator& repl, const Options& o, const Text& text) {
  const rp::Array<std::int32_t> prompt{{1, o.context}, std::span{text.unseen}.first(static_cast<std::size_t>(o.context))};
  const auto temperatures = [&](const rp::InputContext& ctx) {
    ctx.same_on_all_replicas();
    return rp::data::from_generator([&](std::int64_t) { return rp::Array<float>{{}, {static_cast<float>(o.temperature)}}; });
  };
  auto step = repl.replicate(
      temperatures,
      [&](rp::ReplicaContext& replica, rp::Tensor<float> temperature) {
        const auto written = replica.variable<std::int32_t>("written", prompt.shape(), rp::Initializer::value(prompt), {.trainable = false});
        const auto logits = network(replica, written.read(), o, static_cast<std::int64_t>(text.alphabet.size()), 0);  // [1, context, alphabet]
        const auto next = rp::broadcast(rp::categorical(rp::slice_axis(logits, 1, -1) / temperature), 0);             // [1, 1]
        written.assign(rp::concat({rp::slice_axis(written.read(), 1, 1), next}, 1));
        return next;
      },
      {.checkpointed = false});
  std::string result;
  for (const auto letter : prompt) result += text.alphabet[static_cast<std::size_t>(letter)];
  result += '|';
  for (const auto& [next] : step.steps(o.write)) result += text.alphabet[static_cast<std::size_t>(next[next.first()].item())];
  return result;
}

int train(rp::Deployment deployment, const Options& o) {
  if (o.width % o.heads != 0)
    throw rp::BuildError{"--width " + std::to_string(o.width) + " is no multiple of --heads " + std::to_string(o.heads)};
  rp::Replicator repl{std::move(deployment)};
  const bool speaks = repl.process() == 0;
  const Text text = read_text(o, repl.deployment().seed);
  if (speaks)
    std::cout << text.train.size() << " letters to train on, " << text.unseen.size() << " others, " << text.alphabet.size() << " different ones" << std::endl;

  auto step = repl.replicate(windows(o, text.train), train_step(o, static_cast<std::int64_t>(text.alphabet.size())));
  rp::TrainLoopOptions options{.steps = o.steps,
                               .batch = o.global_batch * o.context,
                               .examples = "letters",
                               .figures = {{"loss"}},
                               .validate = [&] { return std::vector{validate(repl, o, text)}; },
                               .validated = {{"loss"}},
                               .validate_every = o.validate_every,
                               .tensorboard = o.tensorboard};
  if (const int stopped = rp::TrainLoop{repl, std::move(options)}.run(step)) return stopped;
  const auto digest = repl.digest();
  const auto written = write(repl, o, text);
  if (speaks) std::cout << written << "\nweights sha256: " << digest << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Trains a transformer on the letters of a text and lets it write. The same replicas, batch and seed give the same weights, wherever the "
      "replicas run.",
      "transformer"};
  add_flags(app, options);
  return example::run(app, argc, argv, [&](rp::Deployment deployment) { return train(std::move(deployment), options); });
}
