// SPDX-License-Identifier: Apache-2.0
// Rendered bodies: every task is drawn without a screen, and the same episode shows the same pixels.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <replicator/rl/offscreen.hpp>

#include "../../examples/d4pg/tasks.hpp"

namespace test_offscreen {

namespace rp = replicator;
namespace rl = rp::rl;

static_assert(rl::Environment<rl::SeenBodyEnvironment>);

namespace {

using Pixels = std::vector<std::uint8_t>;
constexpr std::size_t frame = 3 * 64 * 64;

Pixels seen(const rl::SeenBodyEnvironment& environment) {
  Pixels pixels(3 * frame);
  environment.observe(pixels);
  return pixels;
}

}  // namespace

TEST_CASE("every body is seen: three equal pictures at first, other ones when it moves, the same pixels in the same episode and in another thread") {
  for (const auto& name : d4pg::task_names()) {
    INFO(name);
    const rl::Body body{d4pg::task_of(name)};
    rl::SeenBodyEnvironment environment{body}, another{body};
    environment.reset(3);
    const auto first = seen(environment);
    CHECK(std::equal(first.begin(), first.begin() + frame, first.begin() + frame));
    CHECK(std::equal(first.begin(), first.begin() + frame, first.begin() + 2 * frame));
    const auto [darkest, brightest] = std::minmax_element(first.begin(), first.end());
    CHECK(*brightest - *darkest > 60);
    const std::vector<float> action(static_cast<std::size_t>(environment.action_size()), 0.9f);
    another.reset(3);
    for (int i = 0; i < 6; ++i) environment.act(action);
    std::thread{[&] {
      for (int i = 0; i < 6; ++i) another.act(action);
    }}.join();
    const auto moved = seen(environment);
    CHECK(moved == seen(another));
    CHECK_FALSE(std::equal(moved.begin(), moved.begin() + frame, moved.begin() + 2 * frame));
  }
}

TEST_CASE("pictures that are too large for the model, or for where they go, are refused") {
  const rl::Body body{d4pg::pendulum_task()};
  CHECK_THROWS_WITH((rl::Renderer{body.model(), 64, 10000}), "pictures of 64 x 10000 pixels were asked for, but the model allows at most 480 x 640");
  rl::Renderer renderer{body.model(), 8, 8};
  rl::BodyEnvironment environment{body};
  std::vector<std::uint8_t> small(3 * 64 - 1);
  CHECK_THROWS_WITH(renderer.draw(environment.data(), small), "a picture of 8 x 8 pixels was to be drawn into 191 bytes: it has 3 for each pixel");
}

}  // namespace test_offscreen
