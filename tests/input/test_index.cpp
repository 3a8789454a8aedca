// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <replicator/data/index.hpp>
#include <set>
#include <vector>

namespace test_index {

using namespace replicator;
using namespace replicator::detail;
using data::Index;
using data::Permutation;
using data::Shard;

namespace {
Index index_of(std::int64_t size, const Shard& shard, bool shuffled = true) {
  Index index{size};
  if (shuffled) index.shuffle({});
  index.shard(shard);
  return index;
}
}  // namespace

TEST_CASE("a permutation gives every number below its size once") {
  REQUIRE(rc::check([] {
    const auto size = *rc::gen::inRange<std::int64_t>(1, 700);
    const Permutation permutation{size, *rc::gen::arbitrary<std::uint64_t>(), *rc::gen::inRange(0, 1000)};
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < size; ++i) {
      const auto item = permutation(i);
      RC_ASSERT(item >= 0 && item < size);
      RC_ASSERT(seen.insert(item).second);
    }
  }));
}

TEST_CASE("a permutation of many items stays inside") {
  const std::int64_t size = (std::int64_t{1} << 40) + 12345;
  const Permutation permutation{size, 7, 3};
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) seen.insert(permutation(size - 1 - i));
  CHECK(seen.size() == 1000);
  CHECK((*seen.begin() >= 0 && *seen.rbegin() < size));
}

TEST_CASE("orders of different epochs and seeds have nothing in common") {
  const std::int64_t size = 1000;
  const Permutation one{size, 1, 0}, later{size, 1, 1}, other{size, 2, 0};
  int in_place = 0, same_later = 0, same_other = 0, ascents = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    in_place += one(i) == i;
    same_later += one(i) == later(i);
    same_other += one(i) == other(i);
    ascents += i > 0 && one(i) > one(i - 1);
  }
  // Each count is about Poisson(1), ascents about normal(499.5, 9.1).
  CHECK(in_place < 10);
  CHECK(same_later < 10);
  CHECK(same_other < 10);
  CHECK(ascents > 430);
  CHECK(ascents < 570);
}

TEST_CASE("every place of a small permutation is equally likely") {
  std::map<std::int64_t, int> first;
  for (std::int64_t epoch = 0; epoch < 6000; ++epoch) ++first[Permutation{6, 11, epoch}(2)];
  REQUIRE(first.size() == 6);
  for (const auto& [item, count] : first) CHECK(std::abs(count - 1000) < 150);  // five standard deviations
}

TEST_CASE("all replicas together read every item once per epoch") {
  REQUIRE(rc::check([] {
    const auto size = *rc::gen::inRange<std::int64_t>(1, 60);
    const auto replicas = *rc::gen::inRange(1, 9);
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    std::map<std::int64_t, std::set<std::int64_t>> items;  // by epoch
    for (int replica = 0; replica < replicas; ++replica) {
      const Index index = index_of(size, {.seed = seed, .replica = replica, .replicas = replicas});
      for (std::int64_t position = 0; position < 2 * size; ++position) {
        const auto place = index(position);
        RC_ASSERT(items[place.epoch].insert(place.item).second);
      }
    }
    RC_ASSERT(static_cast<int>(items.size()) == 2 * replicas);
    for (const auto& [epoch, seen] : items) RC_ASSERT(static_cast<std::int64_t>(seen.size()) == size);
  }));
}

TEST_CASE("the global batch does not depend on the number of replicas") {
  const auto batch = [](int replicas, std::int64_t step) {
    std::set<std::pair<std::int64_t, std::int64_t>> items;
    for (int replica = 0; replica < replicas; ++replica) {
      const Index index = index_of(50, {.seed = 5, .replica = replica, .replicas = replicas});
      for (std::int64_t i = 0; i < 24 / replicas; ++i) {
        const auto place = index(step * 24 / replicas + i);
        items.emplace(place.epoch, place.item);
      }
    }
    return items;
  };
  for (std::int64_t step = 0; step < 5; ++step)
    for (const int replicas : {2, 3, 8}) CHECK(batch(replicas, step) == batch(1, step));
}

TEST_CASE("without shuffle the items come in order") {
  const Index index = index_of(5, {.replica = 1, .replicas = 2}, false);
  std::vector<std::int64_t> items;
  for (std::int64_t position = 0; position < 5; ++position) items.push_back(index(position).item);
  CHECK(items == std::vector<std::int64_t>{1, 3, 0, 2, 4});
}

TEST_CASE("a finite run is equally long on all replicas") {
  CHECK(index_of(10, {.replicas = 3}).limit() == -1);
  CHECK(index_of(10, {.replica = 2, .replicas = 3, .epoch_limit = 1}).limit() == 3);
  CHECK(index_of(10, {.replica = 0, .replicas = 3, .epoch_limit = 2}).limit() == 6);
  Index index = index_of(10, {.epoch_limit = 3});
  index.take(12);
  CHECK(index.limit() == 12);
  index.take(20);
  CHECK(index.limit() == 12);
  index.epochs(1);
  CHECK(index.limit() == 10);
}

TEST_CASE("so many epochs that their items cannot be counted are refused, by whichever way they come") {
  constexpr std::int64_t many = std::int64_t{1} << 60;
  Index index = index_of(10, {});
  CHECK_THROWS_WITH(
      index.epochs(many),
      "epochs(1152921504606846976) of 10 items are more than 2^62 items: without epochs() an input goes on for ever");
  CHECK_THROWS_WITH(index_of(10, {.epoch_limit = many}), Catch::Contains("of 10 items are more than"));
  CHECK_THROWS_AS(index.epochs(std::numeric_limits<std::int64_t>::max()), BuildError);
  index.epochs(many / 10);
  CHECK(index.limit() == many / 10 * 10);
  CHECK(index.share().most == many / 10 * 10);
}

TEST_CASE("stages in a wrong order are refused") {
  Index index = index_of(10, {});
  CHECK_THROWS_WITH(index.shuffle({}), Catch::Contains("put it before"));
  CHECK_THROWS_AS(index.shard({}), BuildError);
  CHECK_THROWS_WITH(index_of(10, {.replica = 3, .replicas = 3}), Catch::Contains("replica 3 of 3"));
  CHECK_THROWS_AS(index.epochs(-1), BuildError);
  // The first 5 items, shuffled, or dealt to replicas, is not what these would give.
  Index taken{10};
  taken.take(5);
  CHECK_THROWS_WITH(taken.shuffle({}), "shuffle() stands behind take(), which takes the first items of the order: put shuffle() before it");
  CHECK_THROWS_WITH(taken.shard({}), "shard() stands behind take(), which counts the items of one replica: put shard() before it");
}

}  // namespace test_index
