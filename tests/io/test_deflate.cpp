// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <replicator/io/pictures/deflate.hpp>

#include "zlib.hpp"

namespace test_deflate {

using namespace replicator;
using namespace replicator::detail;

namespace {
bool comes_back(const std::vector<std::byte>& data) { return test::inflated(io::detail::zlib_compressed(data), data.size()) == data; }
}  // namespace

TEST_CASE("zlib reads what was compressed") {
  CHECK(rc::check([] {
    std::vector<std::byte> data;
    for (const auto& [repeat, word] : *rc::gen::container<std::vector<std::pair<std::uint8_t, std::vector<std::uint8_t>>>>(
             rc::gen::pair(rc::gen::arbitrary<std::uint8_t>(), rc::gen::container<std::vector<std::uint8_t>>(rc::gen::arbitrary<std::uint8_t>()))))
      for (int i = 0; i < repeat; ++i)
        for (const auto value : word) data.push_back(static_cast<std::byte>(value));
    RC_ASSERT(comes_back(data));
  }));
}

TEST_CASE("every length and every distance of a repetition comes back") {
  std::uint32_t state = 1;
  const auto noise = [&] { return static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24); };
  std::vector<std::byte> data(70000);
  std::generate(data.begin(), data.end(), noise);
  std::vector<std::byte> repeated;
  std::size_t length = 1;
  for (std::size_t distance = 1; distance < 40000; distance += 1 + distance / 16, length = length % 600 + 1) {
    repeated.assign(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(distance));
    for (std::size_t i = 0; i < length; ++i) repeated.push_back(repeated[repeated.size() - distance]);
    repeated.push_back(noise());
    CHECK(comes_back(repeated));
  }
}

TEST_CASE("what repeats shrinks, and noise grows by an eighth at most") {
  const std::vector<std::byte> even(100000, std::byte{255});
  CHECK(comes_back(even));
  CHECK(io::detail::zlib_compressed(even).size() < 1000);
  std::vector<std::byte> high(1000);
  for (std::size_t i = 0; i < high.size(); ++i) high[i] = static_cast<std::byte>(144 + i * i * 7 % 112);
  CHECK(io::detail::zlib_compressed(high).size() <= 1000 * 9 / 8 + 12);
  CHECK(io::detail::zlib_compressed({}).size() == 8);
  CHECK(comes_back({}));
}

}  // namespace test_deflate
