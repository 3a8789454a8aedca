// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <list>
#include <ranges>
#include <replicator/data/batch.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/data/prefetch_thread.hpp>
#include <replicator/data/take.hpp>
#include <replicator/replicate/input_source.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "../support/told.hpp"
#include "temporary_folder.hpp"

namespace test_pipeline {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;

namespace {

Array<float> scalar(std::int64_t value) { return {Shape{}, {static_cast<float>(value)}}; }
auto counting() {
  return data::from_generator([](std::int64_t position) { return scalar(position); });
}

// The first elements, each as a list of its numbers.
template <class S>
std::vector<std::vector<float>> read(S& input, std::size_t at_most = 100) {
  std::vector<std::vector<float>> result;
  for (auto& element : input) {
    result.emplace_back(element.begin(), element.end());
    if (result.size() == at_most) break;
  }
  return result;
}
using Lists = std::vector<std::vector<float>>;

struct OwnReader {
  struct iterator {
    using value_type = std::tuple<Array<float>, Array<std::int32_t>>;
    using difference_type = std::ptrdiff_t;
    int i = 0;
    value_type operator*() const { return {scalar(i), Array<std::int32_t>{Shape{}, {-i}}}; }
    iterator& operator++() { return ++i, *this; }
    void operator++(int) { ++i; }
    bool operator==(const iterator&) const = default;
  };
  iterator begin() const { return {}; }
  iterator end() const { return {5}; }
};

}  // namespace

using Counting = decltype(counting());
using Pipeline = decltype(counting() | data::batch(2) | data::take(3) | data::prefetch(2));
static_assert(std::ranges::input_range<Counting>);
static_assert(std::ranges::input_range<Pipeline>);
static_assert(std::movable<Pipeline> && !std::copyable<Pipeline>);
static_assert(data::Input<Counting> && data::Input<Pipeline> && data::Input<OwnReader>);
static_assert(data::Input<std::vector<Array<float>>> && data::Input<std::list<std::tuple<Array<bool>>>>);
static_assert(data::Seekable<Pipeline> && !data::Seekable<OwnReader>);
static_assert(std::same_as<data::InputValue<Pipeline>, Array<float>>);
static_assert(!data::Input<int>);
static_assert(!data::Input<std::vector<float>>);
static_assert(!data::Input<std::vector<std::tuple<>>>);
static_assert(!data::Input<std::vector<std::tuple<Array<float>, float>>>);

TEST_CASE("batches stack elements along a new first dimension") {
  auto input = counting() | data::batch(3);
  CHECK(read(input, 2) == Lists{{0, 1, 2}, {3, 4, 5}});
  auto tuples = OwnReader{} | data::batch(2);
  auto pair = tuples.next();
  pair = tuples.next();
  CHECK(std::get<0>(*pair).shape() == Shape{2});
  CHECK(std::get<0>(*pair)[1] == 3);
  CHECK(std::get<1>(*pair)[1] == -3);
}

TEST_CASE("an uneven last batch is dropped unless it is kept") {
  auto dropping = counting() | data::take(7) | data::batch(3);
  CHECK(read(dropping) == Lists{{0, 1, 2}, {3, 4, 5}});
  CHECK_FALSE(dropping.next());
  auto keeping = counting() | data::take(7) | data::batch(3, {.last = data::Last::keep});
  CHECK(read(keeping) == Lists{{0, 1, 2}, {3, 4, 5}, {6}});
  CHECK_FALSE(keeping.next());
}

TEST_CASE("a second loop goes on behind the first") {
  auto input = counting() | data::prefetch(3);
  CHECK(read(input, 2) == Lists{{0}, {1}});
  CHECK(read(input, 2) == Lists{{2}, {3}});
  CHECK(input.position() == 4);
}

TEST_CASE("seeking a pipeline gives what reading up to there would give") {
  auto input = counting() | data::batch(2) | data::prefetch(2);
  (void)read(input, 3);
  input.seek(10);
  CHECK(input.position() == 10);
  CHECK(read(input, 2) == Lists{{20, 21}, {22, 23}});
  input.seek(0);
  CHECK(read(input, 1) == Lists{{0, 1}});
}

TEST_CASE("a pipeline can be moved while it runs") {
  auto input = std::vector<Array<float>>{scalar(1), scalar(2), scalar(3)} | data::batch(1) | data::prefetch(1);
  CHECK(read(input, 1) == Lists{{1}});
  auto moved = std::move(input);
  CHECK(read(moved) == Lists{{2}, {3}});
}

TEST_CASE("a stage moves out of what can be read once only: elements that could be read again stay the program's") {
  std::vector<Array<float>> own{scalar(1), scalar(2), scalar(3), scalar(4)};
  for (int replica = 0; replica < 2; ++replica) {
    auto input = std::span{own} | data::batch(2);
    CHECK(read(input) == Lists{{1, 2}, {3, 4}});
  }
}

TEST_CASE("a generator ends with nullopt") {
  auto input = data::from_generator([n = 0]() mutable -> std::optional<Array<float>> {
    if (n == 2) return std::nullopt;
    return scalar(n++);
  });
  static_assert(!data::Seekable<decltype(input)>);
  CHECK(read(input) == Lists{{0}, {1}});
}

TEST_CASE("an exception comes in the place of its element") {
  auto input = data::from_generator([](std::int64_t position) {
                 if (position == 5) throw DataError{"element five"};
                 return scalar(position);
               }) |
               data::batch(2) | data::prefetch(4);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(read(input, 2) == Lists{{0, 1}, {2, 3}});
  CHECK(input.position() == 2);
  CHECK_THROWS_WITH(input.next(), Contains("element five"));
  CHECK(input.position() == 3);
  CHECK(read(input, 2) == Lists{{6, 7}, {8, 9}});
}

TEST_CASE("an exception counts as the batch that it takes the place of, in an input that cannot seek too") {
  const auto failing = [] {
    return data::from_generator([n = 0]() mutable {
      if (n++ == 2) throw DataError{"element two"};
      return scalar(n - 1);
    });
  };
  auto input = failing() | data::batch(2);
  CHECK(read(input, 1) == Lists{{0, 1}});
  CHECK_THROWS_WITH(input.next(), Contains("element two"));
  CHECK(input.position() == 2);
  auto padded = failing() | data::batch(2, {.last = data::Last::pad});
  padded.next();
  CHECK_THROWS_WITH(padded.next(), Contains("element two"));
  CHECK(padded.position() == 2);
}

TEST_CASE("prefetch works ahead, but no further than asked") {
  std::atomic<int> made = 0;
  auto input =
      data::from_generator([&](std::int64_t position) { return ++made, scalar(position); }) | data::prefetch(3);
  CHECK(made == 0);
  (void)input.next();
  for (int i = 0; i < 1000 && made < 4; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(made == 4);  // the one that was read, and three
}

TEST_CASE("a prefetching input can be destroyed at any time") {
  for (int round = 0; round < 200; ++round) {
    auto input = counting() | data::take(round % 7) | data::prefetch(1 + round % 3);
    for (int i = 0; i < round % 5; ++i) (void)input.next();
  }
}

TEST_CASE("the end of a prefetching input whose source is long in giving its element says what it waits for") {
  const std::string line = "replicator: a prefetch() that ends or seeks waits until its source has read the current element\n";
  const TemporaryFolder folder;
  const auto told_of_end = [&](std::chrono::milliseconds late, const auto& make_second) {
    std::atomic<bool> at_second = false;
    const auto source = [&](std::int64_t position) {
      if (position == 1) at_second = true, make_second();
      return scalar(position);
    };
    return test::told(folder, [&] {
      auto input = data::from_generator(source) | data::detail::PrefetchStage{.depth = 2, .late_ms = late.count()};
      (void)input.next();
      for (int i = 0; i < 20000 && !at_second; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    });
  };
  CHECK(told_of_end(std::chrono::milliseconds{20}, [&] { test::await_told(folder, line); }) == line);
  CHECK(told_of_end(std::chrono::minutes{1}, [] {}).empty());
}

TEST_CASE("elements of different shapes cannot be batched") {
  auto input =
      data::from_generator([](std::int64_t position) { return Array<float>{Shape{position + 1}}; }) | data::batch(2);
  CHECK_THROWS_WITH(input.next(), Contains("element 1") && Contains("[2]"));
}

TEST_CASE("an element without memory is refused by a batch and by a step") {
  const auto empty = [](std::int64_t) { return Array<float>{}; };
  auto batches = data::from_generator(empty) | data::batch(2);
  CHECK_THROWS_WITH(batches.next(), Contains("array without memory"));
  replicator::detail::RangeSource source{data::from_generator([one = scalar(1)](std::int64_t) mutable { return std::move(one); }), {}};
  CHECK(source.next());
  CHECK_THROWS_WITH(source.next(), Contains("made without a shape (`rp::Array<float>{}`) or moved from"));
}

TEST_CASE("counts that make no sense are refused") {
  CHECK_THROWS_AS(data::batch(0), BuildError);
  CHECK_THROWS_AS(data::prefetch(0), BuildError);
  CHECK_THROWS_AS(data::take(-1), BuildError);
}

}  // namespace test_pipeline
