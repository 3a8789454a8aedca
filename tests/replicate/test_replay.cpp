// SPDX-License-Identifier: Apache-2.0
// --replay: one replica runs its recorded steps alone, with the bits it had.
#include <catch2/catch.hpp>

#include <rapidcheck.h>

#include <cstdio>
#include <fcntl.h>
#include <string>
#include <tuple>
#include <unistd.h>

#include <replicator/collectives/placeholders.hpp>
#include <replicator/nn/nn.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/replicate/recording.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "deployments.hpp"
#include "run_random.hpp"

using namespace replicator;
using test::error_of;
using test::on_devices;

namespace {

Deployment recording(Deployment where, int replica, std::uint64_t first, std::uint64_t end, const std::string& file) {
  where.see.record = RecordOptions{replica, {first, end}, file};
  return where;
}
// All else that a deployment says is that of the recording.
Deployment replaying(const std::string& file) {
  Deployment where;
  where.see.replay = file;
  return where;
}

// What f writes to stderr.
template <class F>
std::string told(const std::string& folder, F f) {
  const auto file = folder + "/stderr";
  std::fflush(stderr);
  const int kept = ::dup(STDERR_FILENO), to = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ::dup2(to, STDERR_FILENO);
  ::close(to);
  f();
  std::fflush(stderr);
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  std::vector<std::byte> bytes;
  io::read_file(file, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::tuple<Array<float>, Array<float>> element(int replica, std::int64_t position) {
  PhiloxStream random{5, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(replica)};
  auto x = test::random_rows(8, random);
  return {std::move(x), test::random_rows(8, random)};
}
auto input(const InputContext& ctx) {
  return data::from_generator([r = ctx.replica()](std::int64_t i) { return element(r, i); });
}
// A small network with batch norm, dropout and momentum.
auto train_step(ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
  auto hidden = relu(nn::batch_norm(replica, "norm", nn::linear(replica, "in", x, {.outputs = 16})));
  auto out = nn::linear(replica, "out", dropout(hidden, 0.25), {.outputs = 3});
  auto loss = mean(map([](auto a, auto b) { return (a - b) * (a - b); }, out, y));
  nn::sgd({.learning_rate = 0.1f, .momentum = 0.9f}).minimize(replica, loss);
  return std::tuple{loss, out};
}

// The losses of replica 0, as a user's main would show them.
std::string run(Deployment where, int steps) {
  Replicator repl{std::move(where)};
  auto train = repl.replicate(input, train_step);
  std::string text;
  for (auto [loss, out] : train.steps(steps)) text += std::to_string(train.steps_done()) + ":" + std::to_string(rp_mean(loss)) + " ";
  return text;
}

}  // namespace
