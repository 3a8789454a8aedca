// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include <replicator/rl/random_shift.hpp>

namespace test_random_shift {

namespace rp = replicator;

TEST_CASE("each picture is moved as a whole, by every distance there is, and its edge fills what comes in") {
  constexpr std::int64_t n = 400, channels = 2, height = 6, width = 5, most = 2;
  rp::Array<std::uint8_t> pictures{{n, channels, height, width}};
  const auto value = [](std::int64_t c, std::int64_t y, std::int64_t x) { return static_cast<std::uint8_t>(100 * c + 10 * y + x); };
  const auto each = [&](auto&& f) {
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x) f(c, y, x);
  };
  for (std::int64_t i = 0; i < n; ++i)
    each([&](auto c, auto y, auto x) { pictures[((i * channels + c) * height + y) * width + x] = value(c, y, x); });
  rp::PhiloxStream random{1, 2};
  rp::rl::random_shift(pictures, most, random);
  std::set<std::pair<std::int64_t, std::int64_t>> shifts;
  for (std::int64_t i = 0; i < n; ++i) {
    int fitting = 0;
    for (std::int64_t down = -most; down <= most; ++down)
      for (std::int64_t right = -most; right <= most; ++right) {
        bool fits = true;
        each([&](auto c, auto y, auto x) {
          const auto from = value(c, std::clamp<std::int64_t>(y - down, 0, height - 1), std::clamp<std::int64_t>(x - right, 0, width - 1));
          fits = fits && pictures[((i * channels + c) * height + y) * width + x] == from;
        });
        if (!fits) continue;
        ++fitting;
        shifts.emplace(down, right);
      }
    REQUIRE(fitting == 1);
  }
  CHECK(shifts.size() == 25);
  rp::Array<std::uint8_t> flat{{2, 3}};
  CHECK_THROWS_AS(rp::rl::random_shift(flat, 1, random), rp::BuildError);
}

}  // namespace test_random_shift
