// SPDX-License-Identifier: Apache-2.0
// Actors in an environment that counts.
#include <catch2/catch.hpp>

#include <tuple>
#include <vector>

#include <replicator/data/worker_threads.hpp>
#include <replicator/rl/actors.hpp>

namespace test_actors {

namespace rp = replicator;
namespace rl = rp::rl;
using Catch::Matchers::Contains;

namespace {

// Observes how many steps it has done, is rewarded by its action, and ends after 3 steps: finally where the episode's number is odd.
struct Counter {
  using Observation = float;
  float count = 0;
  bool odd = false;

  rp::Shape observation_shape() const { return rp::Shape{1}; }
  std::int64_t action_size() const { return 1; }
  void reset(std::uint64_t episode) { count = 0, odd = episode % 2 == 1; }
  void observe(std::span<float> out) const { out[0] = count; }
  rl::Outcome act(std::span<const float> action) {
    count += 1;
    if (action[0] == 0.75f) throw rp::DataError{"this action is not possible"};
    return {action[0], count == 3 && odd ? 0.0f : 1.0f, count == 3};
  }
};
static_assert(rl::Environment<Counter>);

using Rows = std::vector<std::tuple<float, float, float, float, float>>;

rl::ActorsOptions quiet() { return {.environments = 2, .n_step = {.steps = 2, .discount = 0.5}, .exploration = {.stddev = 0}, .seed = 5}; }

rp::Array<float> actions(float first, float second) { return {{2, 1}, {first, second}}; }

Rows rows_of(rl::Replay<float>& replay) {
  rp::PhiloxStream random{1, 1};
  const auto batch = replay.sample(replay.size(), random);  // all alike: one of each, in their order
  Rows rows;
  for (std::int64_t i = 0; i < replay.size(); ++i)
    rows.emplace_back(batch.observation[i], batch.action[i], batch.reward[i], batch.discount[i], batch.next[i]);
  return rows;
}

// What a replay holds after `turns` of both groups with noise.
Rows explored(int turns, rp::data::WorkerPool* pool) {
  auto options = quiet();
  options.exploration.stddev = 0.2;
  rl::Actors<Counter> actors{options, [] { return Counter{}; }};
  rl::Replay<float> replay{rp::Shape{1}, 1};
  for (int turn = 0; turn < turns; ++turn) {
    actors.act(turn % 2, actions(0.25f, -0.25f), pool);
    actors.store(&replay);
  }
  return rows_of(replay);
}

}  // namespace

TEST_CASE("actors show what their environments show, and store transitions in the order of the environments") {
  rl::Actors<Counter> actors{quiet(), [] { return Counter{}; }};
  rl::Replay<float> replay{rp::Shape{1}, 1};
  CHECK(actors.observations(0).shape() == rp::Shape{2, 1});
  actors.act(0, actions(0.5f, 0.25f));
  CHECK(actors.observations(0)[1] == 1);
  CHECK(actors.observations(1)[1] == 0);  // the other group has done nothing
  CHECK(actors.store(&replay).empty());
  CHECK(replay.size() == 0);
  actors.act(0, actions(1, -1));
  actors.store(&replay);
  CHECK(rows_of(replay) == Rows{{0, 0.5f, 0.5f + 0.5f * 1, 0.25f, 2}, {0, 0.25f, 0.25f - 0.5f * 1, 0.25f, 2}});
}

TEST_CASE("an episode that ends is counted, and the next one begins") {
  rl::Actors<Counter> actors{quiet(), [] { return Counter{}; }};
  std::vector<rl::Episode> ended;
  for (int step = 0; step < 3; ++step) {
    CHECK(ended.empty());
    actors.act(1, actions(0.5f, -0.5f));
    ended = actors.store(nullptr);
  }
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].reward == 1.5);
  CHECK(ended[1].reward == -1.5);
  CHECK(ended[0].steps == 3);
  CHECK(actors.observations(1)[0] == 0);
}

TEST_CASE("behind a final state nothing is valued, behind the end of the time something is") {
  for (const auto& [observation, action, reward, discount, next] : explored(20, nullptr))
    if (next == 3 && observation == 2) CHECK((discount == 0 || discount == 0.5f));
    else if (next == 3) CHECK((discount == 0 || discount == 0.25f));
    else CHECK(discount == 0.25f);
}

TEST_CASE("transitions are the same with any number of threads") {
  rp::data::WorkerPool one{1}, three{3};
  const auto expected = explored(20, nullptr);
  CHECK(expected.size() > 30);
  CHECK(explored(20, &one) == expected);
  CHECK(explored(20, &three) == expected);
}

TEST_CASE("what an environment throws comes out of the actors, and actions of another shape are refused") {
  rl::Actors<Counter> actors{quiet(), [] { return Counter{}; }};
  rp::data::WorkerPool pool{2};
  CHECK_THROWS_WITH(actors.act(0, actions(0, 0.75f), &pool), "this action is not possible");
  CHECK_THROWS_WITH(actors.act(0, rp::Array<float>{{3, 1}}), Contains("[3, 1] were given to environments that take [2, 1]"));
}

}  // namespace test_actors
