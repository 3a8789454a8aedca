// SPDX-License-Identifier: Apache-2.0
// Sum tree, n-step transitions, replay and noise, against plain arithmetic.
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <rapidcheck.h>

#include <replicator/rl/exploration.hpp>
#include <replicator/rl/n_step.hpp>
#include <replicator/rl/replay.hpp>
#include <replicator/rl/sum_tree.hpp>

namespace test_replay {

namespace rp = replicator;
namespace rl = rp::rl;
using Catch::Matchers::Contains;

namespace {

struct Kept {
  float observation, action, reward, discount, next;
  bool operator==(const Kept&) const = default;
};

// Observations are 0, 1, 2, ...; the action at t is 10 t.
std::vector<Kept> transitions(const rl::NStepOptions& options, const std::vector<rl::Outcome>& outcomes) {
  rl::NStep<float> steps{options};
  std::vector<Kept> kept;
  for (std::size_t t = 0; t < outcomes.size(); ++t) {
    const float now[] = {static_cast<float>(t)}, action[] = {10 * static_cast<float>(t)}, next[] = {static_cast<float>(t + 1)};
    steps.add(now, action, outcomes[t], next, [&](const rl::Transition<float>& one) {
      kept.push_back({one.observation[0], one.action[0], one.reward, one.discount, one.next[0]});
    });
  }
  return kept;
}

rl::Replay<float> numbered(std::int64_t count, const rl::ReplayOptions& options) {
  rl::Replay<float> replay{rp::Shape{1}, 1, options};
  for (std::int64_t i = 0; i < count; ++i) {
    const float value[] = {static_cast<float>(i)};
    replay.add({value, value, value[0], 0.5f, value});
  }
  return replay;
}

}  // namespace

TEST_CASE("rewards of n steps are discounted and added, and the value behind them by the n-th power") {
  const auto kept = transitions({.steps = 3, .discount = 0.5}, {{1}, {2}, {4}, {8}});
  REQUIRE(kept.size() == 2);
  CHECK(kept[0] == Kept{0, 0, 1 + 0.5f * 2 + 0.25f * 4, 0.125f, 3});
  CHECK(kept[1] == Kept{1, 10, 2 + 0.5f * 4 + 0.25f * 8, 0.125f, 4});
}

TEST_CASE("an episode's last transitions end with it, and nothing is valued behind a final state") {
  const auto kept = transitions({.steps = 3, .discount = 0.5}, {{1}, {2, 0, true}, {4}, {8, 1, true}});
  CHECK(kept == std::vector<Kept>{{0, 0, 2, 0, 2}, {1, 10, 2, 0, 2}, {2, 20, 8, 0.25f, 4}, {3, 30, 8, 0.5f, 4}});
}

TEST_CASE("any episode gives one transition for each step, equal to the plain sums") {
  rc::check([] {
    const auto n = *rc::gen::inRange(1, 6);
    const auto length = *rc::gen::inRange(1, 20);
    const bool final = *rc::gen::arbitrary<bool>();
    const auto rewards = *rc::gen::container<std::vector<int>>(static_cast<std::size_t>(length), rc::gen::inRange(-8, 8));
    std::vector<rl::Outcome> outcomes;
    for (int t = 0; t < length; ++t)
      outcomes.push_back({static_cast<float>(rewards[static_cast<std::size_t>(t)]), t + 1 == length && final ? 0.0f : 1.0f, t + 1 == length});
    const auto kept = transitions({.steps = n, .discount = 0.5}, outcomes);
    RC_ASSERT(kept.size() == outcomes.size());
    for (int t = 0; t < length; ++t) {
      const int end = std::min(t + n, length);
      float reward = 0, discount = 1;
      for (int i = t; i < end; ++i, discount /= 2) reward += discount * outcomes[static_cast<std::size_t>(i)].reward;
      const auto& one = kept[static_cast<std::size_t>(t)];
      const float behind = end == length && final ? 0 : discount;
      RC_ASSERT(one == (Kept{static_cast<float>(t), 10 * static_cast<float>(t), reward, behind, static_cast<float>(end)}));
    }
  });
}

TEST_CASE("a sum tree finds the number in whose part of the line a point lies") {
  rc::check([] {
    const auto weights = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 5)));
    rl::detail::SumTree tree{static_cast<std::int64_t>(weights.size())};
    std::vector<std::int64_t> line;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      tree.set(static_cast<std::int64_t>(i), 7);
      tree.set(static_cast<std::int64_t>(i), weights[i]);
      for (int k = 0; k < weights[i]; ++k) line.push_back(static_cast<std::int64_t>(i));
    }
    RC_ASSERT(tree.total() == static_cast<double>(line.size()));
    for (std::size_t at = 0; at < line.size(); ++at) RC_ASSERT(tree.find(static_cast<double>(at) + 0.5) == line[at]);
    if (!line.empty()) RC_ASSERT(tree.find(tree.total()) == line.back());  // rounding may bring one to the very end
  });
}

TEST_CASE("a sum tree refuses what is no weight and no number, and to draw where all weights are 0") {
  rl::detail::SumTree tree{3};
  CHECK_THROWS_WITH(tree.find(0), Contains("all weights are 0"));
  CHECK_THROWS_WITH(tree.set(3, 1), "number 3 was asked for of a sum tree that has 3");
  CHECK_THROWS_WITH(tree.set(0, -1), Contains("must be finite and not negative"));
  CHECK_THROWS_WITH(tree.set(0, NAN), Contains("must be finite and not negative"));
  CHECK_THROWS_AS(rl::detail::SumTree{0}, rp::BuildError);
}

TEST_CASE("transitions are drawn in proportion to their priorities, and their weights make up for it") {
  auto replay = numbered(4, {.capacity = 4, .priority_exponent = 1, .importance_exponent = 1, .epsilon = 1e-9});
  const std::int64_t items[] = {0, 1, 2, 3};
  const float errors[] = {1, -2, 3, 4};
  replay.set_errors(items, errors);
  rp::PhiloxStream random{1, 2};
  std::array<double, 4> drawn{};
  const int batches = 2000;
  for (int i = 0; i < batches; ++i) {
    const auto batch = replay.sample(5, random);
    for (std::int64_t k = 0; k < 5; ++k) {
      const auto item = static_cast<std::size_t>(batch.items[static_cast<std::size_t>(k)]);
      CHECK(batch.observation[k] == static_cast<float>(item));
      drawn[item] += 1;
    }
  }
  // Of 10000: the standard deviation of a share is below 0.005.
  for (std::size_t i = 0; i < 4; ++i) CHECK(drawn[i] / (5 * batches) == Approx(static_cast<double>(i + 1) / 10).margin(0.02));
  const auto batch = replay.sample(40, random);  // has all of them
  for (std::int64_t k = 0; k < 40; ++k) CHECK(batch.weight[k] == Approx(1 / (static_cast<double>(batch.items[static_cast<std::size_t>(k)]) + 1)));
}

TEST_CASE("weights of the smallest and the largest priorities are numbers, and an error too large for a priority leaves the replay as it was") {
  auto steep = numbered(4, {.capacity = 4, .priority_exponent = 4, .importance_exponent = 4, .epsilon = 1e-3});
  const std::int64_t items[] = {0, 1, 2, 3};
  const float none[] = {0, 0, 0, 0};
  steep.set_errors(items, none);  // priorities of 1e-12, whose power of -4 no float holds
  rp::PhiloxStream random{1, 2};
  const auto alike = steep.sample(4, random);
  for (std::int64_t k = 0; k < 4; ++k) CHECK(alike.weight[k] == 1);

  auto replay = numbered(3, {.capacity = 4, .priority_exponent = 10});
  const std::int64_t item[] = {0};
  const float huge[] = {1e38f};
  CHECK_THROWS_WITH(replay.set_errors(item, huge), Contains("the error 1e+38 of transition 0 gives it a priority so large that the sum over 4 transitions would not be finite: take a smaller power than 10"));
  auto full = numbered(4, {.capacity = 4, .priority_exponent = 8});  // each has a finite priority, all together do not
  CHECK_THROWS_WITH(full.set_errors(item, std::vector<float>{3e38f}), Contains("would not be finite: take a smaller power than 8"));
  const float one[] = {1};
  CHECK_NOTHROW(replay.add({one, one, 0, 1, one}));
}

TEST_CASE("the oldest transitions make room, and errors found for them afterwards change nothing") {
  auto replay = numbered(5, {.capacity = 3, .priority_exponent = 1});
  CHECK(replay.size() == 3);
  CHECK(replay.added() == 5);
  const std::int64_t gone[] = {0, 1};
  const float errors[] = {1000, 1000};
  replay.set_errors(gone, errors);
  rp::PhiloxStream random{1, 2};
  std::map<std::int64_t, int> drawn;
  for (int i = 0; i < 100; ++i)
    for (const auto item : replay.sample(3, random).items) ++drawn[item];
  CHECK(drawn == std::map<std::int64_t, int>{{2, 100}, {3, 100}, {4, 100}});
}

TEST_CASE("a replay says what does not fit") {
  rl::Replay<float> replay{rp::Shape{2}, 1, {.capacity = 3}};
  rp::PhiloxStream random{1, 2};
  CHECK_THROWS_WITH(replay.sample(1, random), "a batch of 1 was asked for of a replay of 0 transitions");
  const float one[] = {1};
  CHECK_THROWS_WITH(replay.add({one, one, 0, 1, one}),
                    Contains("1 and 1 observed values and 1 actions was added to a replay of observations [2] and 1 actions"));
  const std::int64_t items[] = {0};
  const float errors[] = {NAN};
  CHECK_THROWS_WITH(replay.set_errors(items, errors), "the error of transition 0 is not finite");
  const float found[] = {1};
  CHECK_THROWS_WITH(replay.set_errors(items, found), "an error was given for transition 0, but only those below 0 were added");
  CHECK_THROWS_AS((rl::Replay<float>{rp::Shape{2}, 1, {.capacity = 0}}), rp::BuildError);
  CHECK_THROWS_WITH((rl::Replay<float>{rp::Shape{2}, 1, {.capacity = std::int64_t{1} << 61}}),
                    Contains("with two observations [2] of 8 bytes in each: there is no room for it; take a smaller capacity"));
}

TEST_CASE("noise has the deviation that was asked for, keeps actions within -1 and 1, and Ornstein-Uhlenbeck's follows itself") {
  for (const auto kind : {rl::Noise::gaussian, rl::Noise::ornstein_uhlenbeck}) {
    rl::Exploration noise{1, {.noise = kind, .stddev = 0.1, .pull = 0.2}, rp::PhiloxStream{3, 4}};
    double squares = 0, products = 0, before = 0;
    const int count = 20000;
    for (int i = 0; i < count; ++i) {
      float action[] = {0};
      noise(action);
      const double x = static_cast<double>(action[0]);
      squares += x * x;
      products += x * before;
      before = x;
    }
    const double kept = kind == rl::Noise::gaussian ? 0 : 0.8;
    CHECK(squares / count == Approx(0.01 / (1 - kept * kept)).epsilon(0.08));
    CHECK(products / squares == Approx(kept).margin(0.03));
  }
  rl::Exploration wild{1, {.stddev = 100}, rp::PhiloxStream{3, 4}};
  for (int i = 0; i < 100; ++i) {
    float action[] = {0};
    wild(action);
    CHECK(std::abs(action[0]) <= 1);
  }
}

}  // namespace test_replay
