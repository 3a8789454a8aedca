// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <array>
#include <string_view>

#include <replicator/core/nearest_word.hpp>

namespace test_nearest_word {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("an edit distance counts insertions, omissions and replacements") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("--device", "--devices") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("sitting", "kitten") == 3);
}

TEST_CASE("the nearest word is the one with the least distance, the first of several, or none that is far away") {
  constexpr std::array<std::string_view, 4> words{"--seed", "--skew", "--devices", "--replicas"};
  CHECK(nearest_word("--device", words) == "--devices");
  CHECK(nearest_word("--seew", words) == "--seed");
  CHECK(nearest_word("--repicla", words) == "--replicas");
  CHECK(nearest_word("--banana", words).empty());
  CHECK(nearest_word("x", words).empty());
}

}  // namespace test_nearest_word
