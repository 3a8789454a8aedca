// SPDX-License-Identifier: Apache-2.0
// Marks of contents: the vector loops give the mark that their comment promises, on every processor and for every length, and
// contents that differ have different marks.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <replicator/core/mark_content.hpp>
#include <replicator/core/philox.hpp>

namespace test_content_mark {

using namespace replicator;
using namespace replicator::detail;

namespace {

// As the comment in content_mark.hpp says, a word at a time.
std::uint64_t plain_mark(std::span<const std::byte> data) {
  std::vector<std::uint32_t> words((data.size() + 7) / 8 * 2);
  if (!data.empty()) std::memcpy(words.data(), data.data(), data.size());
  std::uint64_t mark = 0;
  for (std::size_t block = 0; block < words.size(); block += 1024) {
    mark *= 0x9E3779B97F4A7C15;
    const auto factor = [&](std::size_t i) { return static_cast<std::uint32_t>(words[i] + marks::keys[i - block]); };
    for (std::size_t i = block; i < std::min(block + 1024, words.size()); i += 2)
      mark += std::uint64_t{factor(i)} * factor(i + 1) + (std::uint64_t{words[i]} << 32) + (std::uint64_t{words[i + 1]} << 32);
  }
  return mark + data.size();
}

template <class T>
std::uint64_t mark_of(const std::vector<T>& values) { return content_mark(std::as_bytes(std::span{values})); }

// How many of many random changes of such values leave the mark as it was.
template <class T, class Make, class Change>
int unseen(std::size_t size, Make make, Change change) {
  PhiloxStream random{3, 0, 0};
  int result = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<T> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = make(i, random);
    auto changed = values;
    const auto place = [&](std::size_t count) { return static_cast<std::size_t>(random.uniform() * static_cast<float>(count)); };
    const auto i = place(size / 2), j = size / 2 + place(size / 2 - 2);
    change(changed, i, j);
    if (values != changed) result += mark_of(values) == mark_of(changed);
  }
  return result;
}

}  // namespace

TEST_CASE("a content's mark is the same by every loop, at every length and alignment") {
  std::vector<std::byte> bytes(9000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  const auto check = [&](std::size_t begin, std::size_t length) {
    const std::span data{bytes.data() + begin, length};
    const auto expected = plain_mark(data);
    CHECK(content_mark(data) == expected);
    CHECK(length + marks::polynomial(data, [](auto block) { return marks::sum_of_block(block); }) == expected);
  };
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 260; ++length) check(begin, length);
    for (const std::size_t length : {4095, 4096, 4097, 4104, 8191, 8192, 8193, 8900}) check(begin, length);
  }
}

TEST_CASE("contents that differ in one word have different marks, whatever the word and its key are") {
  // Words for which a factor is 0, 1, half of all numbers, or the largest one.
  for (const std::uint32_t low : {0u, 1u, 0x80000000u, 0xFFFFFFFFu})
    for (const std::uint32_t high : {0u, 1u, 0x80000000u, 0xFFFFFFFFu})
      for (int bit = 0; bit < 64; ++bit) {
        const std::vector<std::uint32_t> pair = {low - marks::keys[0], high - marks::keys[1]};
        auto other = pair;
        other[static_cast<std::size_t>(bit / 32)] ^= 1u << bit % 32;
        CHECK(mark_of(other) != mark_of(pair));
      }
}

TEST_CASE("contents that differ in one bit have different marks") {
  std::vector<std::byte> bytes(9000);
  const auto mark = content_mark(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += bit < 1000 ? 1 : 37) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    CHECK(content_mark(bytes) != mark);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
}

TEST_CASE("contents that differ in the signs of any two numbers, or have two numbers exchanged, have different marks") {
  std::vector<float> numbers(70);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1.0f + static_cast<float>(i);
  const auto before = mark_of(numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    for (std::size_t j = i + 1; j < numbers.size(); ++j) {
      for (const auto at : {i, j}) numbers[at] = -numbers[at];
      CHECK(mark_of(numbers) != before);
      for (const auto at : {i, j}) numbers[at] = -numbers[at];
      std::swap(numbers[i], numbers[j]);
      CHECK(mark_of(numbers) != before);
      std::swap(numbers[i], numbers[j]);
    }
  CHECK(mark_of(numbers) == before);
}

// Such changes cancel each other where keys have a pattern.
TEST_CASE("contents with a pattern that are exchanged or changed by a pattern have different marks") {
  const auto small = [](std::size_t, PhiloxStream& random) { return static_cast<std::int64_t>(random.uniform() * 8); };
  CHECK(unseen<std::int64_t>(64, small, [](auto& values, std::size_t i, std::size_t) { values[i] += 1, values[i + 1] -= 2, values[i + 2] += 1; }) == 0);
  CHECK(unseen<std::int64_t>(4096, small, [](auto& values, std::size_t i, std::size_t j) { std::swap(values[i], values[j]); }) == 0);
  // Classes as ones and zeros, of two and of four.
  for (const std::size_t classes : {2, 4}) {
    const auto labels = [classes, label = std::size_t{0}](std::size_t i, PhiloxStream& random) mutable {
      if (i % classes == 0) label = static_cast<std::size_t>(random.uniform() * static_cast<float>(classes));
      return i % classes == label ? 1.0f : 0.0f;
    };
    CHECK(unseen<float>(512, labels, [classes](auto& values, std::size_t i, std::size_t j) {
            const auto row = [&](std::size_t at) { return values.begin() + static_cast<std::ptrdiff_t>(at / classes * classes); };
            std::swap_ranges(row(i), row(i) + static_cast<std::ptrdiff_t>(classes), row(j));
          }) == 0);
  }
  // (x, y) .. (y, x) becomes (y, x) .. (x, y).
  const auto uniform = [](std::size_t, PhiloxStream& random) { return random.uniform(); };
  CHECK(unseen<float>(256, uniform, [](auto& values, std::size_t i, std::size_t j) { std::swap(values[i / 2 * 2], values[i / 2 * 2 + 1]), std::swap(values[j / 2 * 2], values[j / 2 * 2 + 1]); }) == 0);
}

TEST_CASE("contents whose blocks of 4 KiB are exchanged have different marks") {
  std::vector<std::uint32_t> words(3 * 1024);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i / 1024);
  const auto mark = mark_of(words);
  std::swap_ranges(words.begin(), words.begin() + 1024, words.begin() + 1024);
  CHECK(mark_of(words) != mark);
}

}  // namespace test_content_mark
