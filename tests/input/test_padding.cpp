// SPDX-License-Identifier: Apache-2.0
// Padded last batches: every element has weight 1 exactly once.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <replicator/data/batch.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/data/prefetch_thread.hpp>
#include <replicator/data/take.hpp>
#include <replicator/data/transform.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace test_padding {

using namespace replicator;
using namespace replicator::detail;
using data::Last;

namespace {

struct Numbers {
  std::int64_t count;
  std::int64_t size() const { return count; }
  Array<std::int64_t> operator[](std::int64_t item) const { return {{2}, {item, -item}}; }
};
auto numbers(std::int64_t count) { return data::TableSource<Numbers>{Numbers{count}}; }

// How often each number came with weight 1, and how many batches there were.
struct Seen {
  std::map<std::int64_t, int> real;
  std::int64_t batches = 0;

  void operator()(const std::tuple<Array<std::int64_t>, Array<float>>& element, std::int64_t batch) {
    const auto& [x, weight] = element;
    ++batches;
    REQUIRE(x.shape() == Shape{batch, 2});
    REQUIRE(weight.shape() == Shape{batch});
    for (std::int64_t i = 0; i < batch; ++i) {
      REQUIRE((weight[i] == 0 || weight[i] == 1));
      REQUIRE(x[2 * i] == -x[2 * i + 1]);
      if (weight[i] == 1) ++real[x[2 * i]];
    }
  }
};

}  // namespace

static_assert(data::Seekable<decltype(numbers(1) | data::batch(2, {.last = Last::pad}))>);

TEST_CASE("with padding every element has weight 1 exactly once, and all replicas give as many batches of one shape") {
  REQUIRE(rc::check([] {
    const auto count = *rc::gen::inRange<std::int64_t>(1, 80);
    const auto replicas = *rc::gen::inRange(1, 9);
    const auto size = *rc::gen::inRange<std::int64_t>(1, 12);
    const auto passes = *rc::gen::inRange<std::int64_t>(1, 3);
    const auto source = numbers(count);
    std::map<std::int64_t, int> all;
    std::optional<std::int64_t> batches;
    for (int replica = 0; replica < replicas; ++replica) {
      auto elements = data::TableSource{source} | data::shuffle() |
                      data::shard({.seed = 3, .replica = replica, .replicas = replicas}) | data::epochs(passes) |
                      data::transform([](Array<std::int64_t> x) { return x; });
      Seen seen;
      const auto see = [&](auto input) {
        for (const auto& element : input) seen(element, size);
      };
      if (replica % 2 == 0) see(std::move(elements) | data::batch(size, {.last = Last::pad}) | data::prefetch(1));
      else see(std::move(elements) | data::prefetch(2) | data::batch(size, {.last = Last::pad}));
      if (!batches) batches = seen.batches;
      RC_ASSERT(seen.batches == *batches);
      for (const auto& [number, times] : seen.real) all[number] += times;
    }
    RC_ASSERT(static_cast<std::int64_t>(all.size()) == count);
    for (const auto& [number, times] : all) RC_ASSERT(times == passes);
    RC_ASSERT(*batches == ((count * passes + replicas - 1) / replicas + size - 1) / size);
  }));
}

TEST_CASE("a padded input without end has weight 1 everywhere, and one that take() cuts is filled up") {
  auto endless = numbers(5) | data::batch(3, {.last = Last::pad});
  for (int i = 0; i < 4; ++i) {
    const auto element = endless.next();
    for (const float w : std::get<1>(*element)) CHECK(w == 1);
  }
  auto cut = numbers(5) | data::transform([](Array<std::int64_t> x) { return x; }) | data::take(4) | data::batch(3, {.last = Last::pad});
  Seen seen;
  for (const auto& element : cut) seen(element, 3);
  CHECK(seen.batches == 2);
  CHECK(seen.real == std::map<std::int64_t, int>{{0, 1}, {1, 1}, {2, 1}, {3, 1}});
}

TEST_CASE("an input that knows no replicas is padded with its last element") {
  auto input = data::from_generator([n = 0]() mutable -> std::optional<std::tuple<Array<float>, Array<bool>>> {
                 if (n == 4) return std::nullopt;
                 ++n;
                 return std::tuple{Array<float>{Shape{}, {static_cast<float>(n)}}, Array<bool>{{0}}};
               }) |
               data::batch(3, {.last = Last::pad});
  const auto first = input.next(), second = input.next();
  REQUIRE((first && second));
  CHECK_FALSE(input.next());
  const auto& [x, empty, weight] = *second;
  CHECK(std::vector<float>(x.begin(), x.end()) == std::vector<float>{4, 4, 4});
  CHECK(empty.shape() == Shape{3, 0});
  CHECK(std::vector<float>(weight.begin(), weight.end()) == std::vector<float>{1, 0, 0});
}

TEST_CASE("a padded input seeks by batches") {
  auto input = numbers(7) | data::epochs(1) | data::batch(3, {.last = Last::pad});
  input.seek(2);
  const auto last = input.next();
  CHECK(std::get<0>(*last)[0] == 6);
  CHECK(std::get<1>(*last)[1] == 0);
  CHECK_FALSE(input.next());
  input.seek(0);
  CHECK(std::get<0>(*input.next())[0] == 0);
}

TEST_CASE("a replica that reads less than a batch of a finite source is told so at once, where the rest would be dropped") {
  const data::Shard shard{.replica = 0, .replicas = 2};
  const auto part = [&] { return numbers(14) | data::shard(shard) | data::epochs(1); };
  const auto message = Catch::Contains("batch(8) would never give anything: this replica reads 7 elements; take a smaller batch");
  CHECK_THROWS_WITH(part() | data::batch(8), message);
  CHECK_THROWS_WITH(part() | data::transform([](Array<std::int64_t> x) { return x; }) | data::batch(8), message);
  CHECK_THROWS_WITH(numbers(14) | data::transform([](Array<std::int64_t> x) { return x; }) | data::take(7) | data::batch(8), message);
  // Seven replicas do not get one of six elements each, so a smaller batch is no help.
  CHECK_THROWS_WITH(numbers(6) | data::shard(data::Shard{.replica = 0, .replicas = 7}) | data::epochs(1) | data::batch(8),
                    Catch::EndsWith("this replica reads 0 elements: shard() leaves none where there are fewer elements than replicas; read more epochs, run "
                                    "fewer replicas, or take {.last = rp::data::Last::pad}"));
  CHECK_NOTHROW(part() | data::batch(7));
  CHECK_NOTHROW(part() | data::batch(8, {.last = Last::keep}));
  CHECK_NOTHROW(part() | data::batch(8, {.last = Last::pad}));
  CHECK_NOTHROW(numbers(14) | data::shard(shard) | data::batch(8));  // without end
}

TEST_CASE("transform takes the components or the whole element, and its exceptions take the place of one element") {
  auto pairs = data::zip(numbers(3), numbers(3)) | data::epochs(1) |
               data::transform([](Array<std::int64_t> a, Array<std::int64_t> b) {
                 if (a[0] == 1) throw DataError{"number one"};
                 return Array<std::int64_t>{{}, {a[0] + b[0]}};
               }) |
               data::transform([](const Array<std::int64_t>& sum) { return std::tuple{sum, sum}; });
  CHECK(std::get<0>(*pairs.next()).item() == 0);
  CHECK_THROWS_AS(pairs.next(), DataError);
  CHECK(std::get<1>(*pairs.next()).item() == 4);
  CHECK_FALSE(pairs.next());
}

TEST_CASE("sources of different sizes cannot be zipped, and an empty one is no source") {
  CHECK_THROWS_WITH(data::zip(numbers(3), numbers(4)), "zip: source 0 has 3 elements, source 1 has 4 elements: they must belong together");
  const data::TableSource<Numbers> labels{Numbers{4}, "labels.npy"};
  CHECK_THROWS_WITH(data::zip(numbers(3), labels), Catch::Contains("source 0 has 3 elements, source 1 (labels.npy) has 4 elements"));
  CHECK_THROWS_WITH(numbers(0), Catch::Contains("no elements"));
}

}  // namespace test_padding
