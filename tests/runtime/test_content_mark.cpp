// SPDX-License-Identifier: Apache-2.0
// Marks of contents: the vector loops give the sum that their comment promises, on every processor and for every length.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <replicator/core/content_mark.hpp>

namespace test_content_mark {

using namespace replicator::detail;

namespace {
// The number of bytes plus the sum of all words, each times its own odd number, a word at a time.
std::uint64_t plain_mark(std::span<const std::byte> data) {
  std::uint64_t sum = data.size(), factor = marks::first_factor;
  for (std::size_t i = 0; i < data.size(); i += 8, factor += marks::stride) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data() + i, std::min<std::size_t>(8, data.size() - i));
    sum += word * factor;
  }
  return sum;
}
}  // namespace

TEST_CASE("a content's mark is the same by every loop, at every length and alignment") {
  std::vector<std::byte> bytes(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  for (std::size_t begin = 0; begin < 9; ++begin)
    for (std::size_t length = 0; length < 260; ++length) {
      const std::span data{bytes.data() + begin, length};
      const auto expected = plain_mark(data);
      CHECK(content_mark(data) == expected);
      CHECK(length + marks::sum_of_words(data) == expected);
    }
}

TEST_CASE("contents that differ in one bit have different marks") {
  std::vector<std::byte> bytes(100);
  const auto mark = content_mark(bytes);
  for (std::size_t bit = 0; bit < 800; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    CHECK(content_mark(bytes) != mark);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
}

}  // namespace test_content_mark
