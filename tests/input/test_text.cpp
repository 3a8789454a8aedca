// SPDX-License-Identifier: Apache-2.0
// Windows of tokens: which there are, and which tokens they hold.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <replicator/data/batch.hpp>
#include <replicator/data/files/text.hpp>
#include <replicator/data/files/token_windows.hpp>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "temporary_folder.hpp"

namespace test_text {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;

namespace {

using Tokens = std::vector<std::int32_t>;

Tokens values(const Array<std::int32_t>& array) { return {array.begin(), array.end()}; }

// 0, 1, 2, ...
Tokens counted(std::int64_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// A user's tokenizer: words have the length as their number.
Tokens lengths_of_words(std::string_view text) {
  Tokens tokens{0};
  for (const char c : text)
    if (c == ' ') tokens.push_back(0);
    else ++tokens.back();
  return tokens;
}

}  // namespace

static_assert(data::Tokenizer<decltype(data::byte_tokens)> && data::Tokenizer<decltype(lengths_of_words)>);

TEST_CASE("a window has tokens, and for each the token behind it as target") {
  const auto windows = data::token_windows(counted(10), {.length = 3});
  REQUIRE(windows.size() == 3);
  const auto [x, y] = windows(1);
  CHECK(values(x) == Tokens{3, 4, 5});
  CHECK(values(y) == Tokens{4, 5, 6});
  CHECK(data::token_windows(counted(9), {.length = 3}).size() == 2);  // the ninth token is no target of a third window
}

TEST_CASE("windows begin every `stride` tokens, and as many as have targets") {
  REQUIRE(rc::check([] {
    const auto length = *rc::gen::inRange<std::int64_t>(1, 9), stride = *rc::gen::inRange<std::int64_t>(1, 9);
    const auto count = *rc::gen::inRange<std::int64_t>(length + 1, 60);
    const auto windows = data::token_windows(counted(count), {.length = length, .stride = stride});
    std::int64_t fitting = 0;
    for (std::int64_t begin = 0; begin + length + 1 <= count; begin += stride) ++fitting;
    RC_ASSERT(windows.size() == fitting);
    for (std::int64_t i = 0; i < fitting; ++i) {
      const auto [x, y] = windows(i);
      for (std::int64_t t = 0; t < length; ++t) {
        RC_ASSERT(x[t] == i * stride + t);
        RC_ASSERT(y[t] == x[t] + 1);
      }
    }
  }));
}

TEST_CASE("bytes are the built-in tokens, and any function can make others") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.txt", "a\xC3\xA4 bcd e");
  const auto bytes = data::text_windows(path, data::byte_tokens, {.length = 3});
  CHECK(values(std::get<0>(bytes(0))) == Tokens{'a', 0xC3, 0xA4});
  CHECK(values(std::get<1>(bytes(0))) == Tokens{0xC3, 0xA4, ' '});
  CHECK(values(std::get<1>(data::text_windows(path, lengths_of_words, {.length = 2})(0))) == Tokens{3, 1});
  std::int32_t next = 0;  // a tokenizer may be an object with a state
  CHECK(values(std::get<0>(data::text_windows(path, [&](std::string_view text) { return Tokens(text.size(), ++next); }, {.length = 2})(1))) == Tokens{1, 1});
}

TEST_CASE("the texts of a folder come in the order of their names, and no window reaches over the end of one") {
  const TemporaryFolder folder;
  folder.write("b.txt", "bcdefg");
  folder.write("a.txt", "hijk");
  folder.write("c.txt", "no");
  folder.write("d.md", "not one of them");
  const auto windows = data::text_windows(folder.path(), data::byte_tokens, {.length = 2});
  std::vector<std::string> found;
  for (std::int64_t i = 0; i < windows.size(); ++i) {
    const auto [x, y] = windows(i);
    found.push_back(std::string{x.begin(), x.end()} + std::string{y.begin(), y.end()});
  }
  CHECK(found == std::vector<std::string>{"hiij", "bccd", "deef"});
}

TEST_CASE("windows are shuffled, dealt to replicas and sought by number, as other sources are") {
  const auto windows = data::token_windows(counted(101), {.length = 4, .stride = 1});
  const auto read = [&](int replica, int replicas, std::int64_t batch) {
    auto input = windows | data::shuffle() | data::shard({.seed = 3, .replica = replica, .replicas = replicas}) | data::batch(12 / replicas);
    input.seek(batch);
    return *input.next();
  };
  for (const std::int64_t batch : {0, 7}) {
    std::multiset<std::int32_t> whole, parts;
    const auto [x, y] = read(0, 1, batch);
    CHECK(x.shape() == Shape{12, 4});
    for (std::int64_t i = 0; i < 12; ++i) whole.insert(x[4 * i]);
    for (int replica = 0; replica < 3; ++replica) {
      const auto [x, y] = read(replica, 3, batch);
      for (std::int64_t i = 0; i < 4; ++i) parts.insert(x[4 * i]);
    }
    CHECK(parts == whole);
  }
}

TEST_CASE("texts and options that give no windows are refused") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.txt", "four");
  CHECK_THROWS_AS(data::text_windows(path, data::byte_tokens, {.length = 4}), DataError);
  CHECK_THROWS_WITH(data::text_windows(path, data::byte_tokens, {.length = 4}), path + ": 4 tokens; a window of length 4 takes at least 5, for the last one has a target, too");
  CHECK_THROWS_WITH(data::token_windows({}), "the text: 0 tokens; a window of length 128 takes at least 129, for the last one has a target, too");
  CHECK_THROWS_WITH(data::text_windows(folder.path() + "/b.txt", data::byte_tokens), Contains("b.txt"));
  CHECK_THROWS_WITH(data::text_windows(path, [](std::string_view) { return Tokens{1, 2, -3}; }), path + ": token 2 is -3; tokens are at least 0");
  CHECK_THROWS_AS(data::token_windows(counted(9), {.length = 0}), BuildError);
  CHECK_THROWS_WITH(data::token_windows(counted(9), {.length = 2, .stride = -1}), "token windows of length 2 and stride -1: the length is at least 1, and the stride at least 1 (or 0 for the length)");
}

}  // namespace test_text
