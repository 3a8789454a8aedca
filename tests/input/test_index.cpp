// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <replicator/data/alias_table.hpp>
#include <replicator/data/fill_alias_table.hpp>
#include <replicator/data/index.hpp>
#include <replicator/data/index_stages.hpp>
#include <set>
#include <vector>

namespace test_index {

using namespace replicator;
using namespace replicator::detail;
using data::AliasTable;
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

TEST_CASE("an index refuses items that cannot be") {
  CHECK_THROWS_WITH(Index{0}(0), "item 0 was asked for of an index over 0 items: items are counted from 0, and there must be one");
  Index shuffled{5};
  shuffled.shuffle({});
  CHECK_THROWS_WITH(shuffled(-1), Catch::StartsWith("item -1 was asked for of an index over 5 items"));
}

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

TEST_CASE("the probability of an item is its weight over the sum of all") {
  REQUIRE(rc::check([] {
    const auto numbers = *rc::gen::container<std::vector<int>>(*rc::gen::inRange<std::size_t>(1, 40), rc::gen::inRange(0, 1000));
    const std::vector<double> weights{numbers.begin(), numbers.end()};
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    RC_PRE(sum > 0);
    const AliasTable table{weights};
    for (std::size_t i = 0; i < weights.size(); ++i) {
      RC_ASSERT(std::abs(table.probability(static_cast<std::int64_t>(i)) - weights[i] / sum) < 1e-12);
      RC_ASSERT((table.probability(static_cast<std::int64_t>(i)) == 0) == (weights[i] == 0));
    }
  }));
  CHECK(AliasTable{{1e-300, 1e300, 0}}.probability(1) == Approx(1));
  // The errors of a million additions would all fall to one item.
  CHECK(std::abs(AliasTable{std::vector<double>(1'000'000, 0.1)}.probability(0) - 1e-6) < 0x1p-40);
  CHECK(AliasTable{std::vector<double>{5}}(3, 8) == 0);
}

TEST_CASE("draws come as often as their weights say, and an item of weight 0 never") {
  const std::vector<double> weights{0, 1, 2, 0, 5, 0.5, 1.5};  // the sum is 10
  const AliasTable table{weights};
  constexpr int draws = 100'000;
  std::vector<int> counts(weights.size()), pairs(weights.size());
  for (int i = 0; i < draws; ++i) {
    const auto item = table(17, i), next = table(17, i + 1);
    ++counts[static_cast<std::size_t>(item)];
    if (item == 4) ++pairs[static_cast<std::size_t>(next)];
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto near = [&](int count, int of) {
      const double p = weights[i] / 10;
      return std::abs(count - of * p) <= 5 * std::sqrt(of * p * (1 - p));  // five standard deviations
    };
    CHECK(near(counts[i], draws));
    CHECK(near(pairs[i], counts[4]));  // the draw behind one does not depend on it
  }
}

TEST_CASE("all replicas together draw what one would, and any position is found without the others") {
  const auto table = std::make_shared<const AliasTable>(std::vector<double>{3, 1, 0, 2, 9});
  const auto index = [&](const Shard& shard) {
    Index result{5};
    result.sample(table, {});
    result.shard(shard);
    return result;
  };
  const Index whole = index({.seed = 8});
  for (const int replicas : {1, 2, 3, 8})
    for (int replica = 0; replica < replicas; ++replica) {
      const Index part = index({.seed = 8, .replica = replica, .replicas = replicas});
      for (std::int64_t position = 49; position >= 0; --position) {
        const auto place = part(position);
        CHECK(place.number == position * replicas + replica);
        CHECK(place.item == whole(place.number).item);
        CHECK(place.epoch == place.number / 5);
      }
    }
  const auto drawn = [](const Index& from) {
    std::vector<std::int64_t> items;
    for (std::int64_t i = 0; i < 50; ++i) items.push_back(from(i).item);
    return items;
  };
  CHECK(drawn(index({.seed = 9})) != drawn(whole));
  Index own{5};
  own.sample(table, 8);
  own.shard({.seed = 9});
  CHECK(drawn(own) == drawn(whole));
  own.epochs(2);
  CHECK(own.limit() == 10);
}

TEST_CASE("weights that give no probabilities are refused") {
  CHECK_THROWS_WITH((AliasTable{{1, -2}}), "sample(): the weight of item 1 is -2; weights are finite numbers of at least 0");
  CHECK_THROWS_AS((AliasTable{std::vector<double>{std::nan("")}}), BuildError);
  CHECK_THROWS_AS((AliasTable{{1, std::numeric_limits<double>::infinity()}}), BuildError);
  CHECK_THROWS_WITH((AliasTable{{0, 0}}), "sample(): the sum of 2 weights is 0; it must be a finite number above 0");
  CHECK_THROWS_AS(AliasTable{std::vector<double>{}}, BuildError);
  CHECK_THROWS_WITH((AliasTable{{1e308, 1e308, 1}}), Catch::Contains("the sum of 3 weights is inf"));
  const auto table = std::make_shared<const AliasTable>(std::vector<double>{1, 2});
  CHECK_THROWS_WITH(Index{3}.sample(table, {}), "sample() has 2 weights for 3 items: each item needs one");
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
  const auto weights = std::make_shared<const AliasTable>(std::vector<double>(10, 1));
  CHECK_THROWS_WITH(index.sample(weights, {}), Catch::Contains("sample() stands behind shard(): put it before"));
  CHECK_THROWS_WITH(taken.sample(weights, {}), Catch::Contains("sample() stands behind take()"));
  Index shuffled{10}, sampled{10};
  shuffled.shuffle({});
  sampled.sample(weights, {});
  const auto message = " stands behind another stage that chooses the order: leave one of them out; sample() draws at random by itself";
  CHECK_THROWS_WITH(shuffled.sample(weights, {}), "sample()" + std::string{message});
  CHECK_THROWS_WITH(sampled.shuffle({}), "shuffle()" + std::string{message});
  CHECK_THROWS_WITH(taken.shard({}), "shard() stands behind take(), which counts the items of one replica: put shard() before it");
}

}  // namespace test_index
