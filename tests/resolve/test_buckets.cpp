// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <span>
#include <vector>

#include "graphs.hpp"

namespace test_buckets {

using namespace replicator;
using namespace replicator::detail;
using test::traced;

namespace {

// One all_reduce of each size, of one dtype, in this order.
std::vector<Graph> gradients_of_sizes(const std::vector<std::int64_t>& sizes, int replicas = 2) {
  return traced(replicas, [&](ReplicaContext& replica, Tensor<float> x) {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      all_reduce(sum(x) + full<float>(replica, {sizes[i]}, static_cast<float>(i)), Reduction::sum);
  });
}

std::vector<std::vector<std::uint32_t>> members(const Resolution& resolution) {
  std::vector<std::vector<std::uint32_t>> result;
  for (const auto& bucket : resolution.buckets) result.push_back(bucket.members);
  return result;
}
using Members = std::vector<std::vector<std::uint32_t>>;

Resolution resolved(const std::vector<Graph>& graphs, std::int64_t bucket_bytes) {
  return resolve(graphs, {bucket_bytes, {}});
}

// Every collective is in one place of one bucket, and bucket_of and member_of say which.
void check_places(const Resolution& resolution) {
  std::vector<int> seen(resolution.collectives.size());
  for (std::uint32_t b = 0; b < resolution.buckets.size(); ++b) {
    const auto& bucket = resolution.buckets[b];
    RC_ASSERT(bucket.members.size() == bucket.offsets.size());
    std::int64_t end = 0;
    for (std::uint32_t m = 0; m < bucket.members.size(); ++m) {
      const auto k = bucket.members[m];
      ++seen.at(k);
      RC_ASSERT(resolution.bucket_of.at(k) == b);
      RC_ASSERT(resolution.member_of.at(k) == m);
      RC_ASSERT(bucket.offsets[m] >= end);
      RC_ASSERT(bucket.offsets[m] % 16 == 0);
      end = bucket.offsets[m] + resolution.collectives[k].type.shape.elements();
    }
    RC_ASSERT(bucket.elements >= end);
  }
  RC_ASSERT(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
}

}  // namespace

TEST_CASE("small all_reduces share a bucket until it is full, in the order in which they are ready") {
  const auto graphs = gradients_of_sizes({16, 16, 16, 16, 16});
  CHECK(members(resolved(graphs, 2 * 64)) == Members{{0, 1}, {2, 3}, {4}});
  CHECK(members(resolved(graphs, 2 * 64 - 1)) == Members{{0}, {1}, {2}, {3}, {4}});
  CHECK(members(resolved(graphs, 3 * 64)) == Members{{0, 1, 2}, {3, 4}});
  CHECK(members(resolved(graphs, 1 << 20)) == Members{{0, 1, 2, 3, 4}});
  CHECK(members(resolved(graphs, 1)) == Members{{0}, {1}, {2}, {3}, {4}});
}

TEST_CASE("one that fills half a bucket or more has its own, and the small ones around it stay together") {
  CHECK(members(resolved(gradients_of_sizes({16, 1000, 16, 16}), 256)) == Members{{0, 2, 3}, {1}});
}

TEST_CASE("members begin on cache lines of their own") {
  const auto resolution = resolved(gradients_of_sizes({3, 17, 1}), 1 << 20);
  REQUIRE(resolution.buckets.size() == 1);
  CHECK(resolution.buckets[0].offsets == std::vector<std::int64_t>{0, 16, 48});
  CHECK(resolution.buckets[0].elements == 64);
}

TEST_CASE("only all_reduces of one reduction, order and dtype are merged") {
  const auto graphs = traced(2, [](ReplicaContext&, Tensor<float> x) {
    all_reduce(x, Reduction::sum);
    all_reduce(x, Reduction::mean);
    all_reduce(cast<double>(x), Reduction::sum);
    all_reduce(x, Reduction::sum, {true, {}});
    all_gather(x);
    all_gather(x);
    all_reduce(x * 2.0f, Reduction::sum);
  });
  auto found = members(resolved(graphs, 1 << 20));
  std::sort(found.begin(), found.end());
  CHECK(found == Members{{0, 6}, {1}, {2}, {3}, {4}, {5}});
}

TEST_CASE("what is computed from a collective's result waits for it in another bucket") {
  const auto graphs = traced(2, [](ReplicaContext&, Tensor<float> x) {
    const auto y = all_reduce(x, Reduction::sum);
    all_reduce(y * x, Reduction::sum);
    all_reduce(x * 3.0f, Reduction::sum);
  });
  auto found = members(resolved(graphs, 1 << 20));
  CHECK(found == Members{{0, 2}, {1}});
}

TEST_CASE("where one replica needs a collective's result for the next and others do not, all do the next one later") {
  const auto graphs = traced(3, [](ReplicaContext& replica, Tensor<float> x) {
    const auto y = all_reduce(x, Reduction::sum);
    const auto z = all_reduce(replica.id() == 1 ? y * x : x * 2.0f, Reduction::sum);
    all_reduce(replica.id() == 2 ? z * x : x * 3.0f, Reduction::sum);
  });
  const auto all = resolved(graphs, 1 << 20);
  CHECK(members(all) == Members{{0}, {1}, {2}});
  for (std::uint32_t k = 0; k < 3; ++k) CHECK(all.collectives[k].segment == k);
  for (const auto& one : all.classes)
    for (std::uint32_t k = 0; k < 3; ++k) CHECK(one.segment[one.collective[k]] == k);

  int asked = 0;
  ResolveOptions options{1 << 20};
  options.latest_of_processes = [&](std::vector<std::uint32_t>& segments) {  // another process does the first one two segments later
    ++asked;
    const bool same = segments[0] == 2;
    segments[0] = 2;
    return same;
  };
  const auto part = resolve(std::span{graphs}.first(1), options);
  CHECK(asked == 4);  // twice before reductions are merged, and twice after that
  CHECK(part.collectives[0].segment == 2);
  CHECK(part.collectives[1].segment == 0);
}

TEST_CASE(
    "collectives are started in the order in which their contributions are computed, not in which they were asked "
    "for") {
  const auto graphs = traced(2, [](ReplicaContext&, Tensor<float> x) {
    const auto early = sum(x, {0}), late = sum(x, {1});
    all_reduce(late, Reduction::sum);
    all_reduce(early, Reduction::sum);
  });
  CHECK(members(resolved(graphs, 1)) == Members{{1}, {0}});
}

TEST_CASE("buckets of any size hold every collective once, none above the size unless alone") {
  REQUIRE(rc::check([] {
    const auto sizes = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 300));
    const auto bytes = *rc::gen::inRange<std::int64_t>(1, 4000);
    const auto resolution = resolved(gradients_of_sizes(sizes), bytes);
    check_places(resolution);
    for (const auto& bucket : resolution.buckets) {
      const auto last = bucket.offsets.back() + resolution.collectives[bucket.members.back()].type.shape.elements();
      RC_ASSERT(bucket.members.size() == 1 || last * 4 <= bytes);
    }
  }));
}

TEST_CASE("resolution is a pure function of the graphs: again, and with replicas in other classes, it is the same") {
  const auto graphs = traced(4, [](ReplicaContext& replica, Tensor<float> x) {
    if (replica.id() % 2) x = x * 2.0f;
    auto w = replica.variable<float>("w", {4, 2}, Initializer::zeros());
    w.assign(w.read() + all_reduce(x, Reduction::mean));
    all_gather(x);
  });
  const auto first = resolve(graphs), second = resolve(graphs);
  CHECK(first.class_of == std::vector<std::uint32_t>{0, 1, 0, 1});
  CHECK(first.class_of == second.class_of);
  CHECK(first.classes.size() == 2);
  CHECK(members(first) == members(second));
  for (std::size_t c = 0; c < first.classes.size(); ++c) {
    CHECK(digest_of(first.classes[c].graph) == digest_of(second.classes[c].graph));
    CHECK(first.classes[c].uniformity.uniform == second.classes[c].uniformity.uniform);
  }
}

TEST_CASE("resolving what was resolved changes nothing") {
  const auto graphs = traced(2, [](ReplicaContext& replica, Tensor<float> x) {
    auto w = replica.variable<float>("w", {4, 2}, Initializer::zeros());
    const auto y = w.read() * x;
    w.assign(w.read() - all_reduce(y * y + x, Reduction::mean) * 0.1f);
    replica.graph().results().push_back((sum(y) + sum(y * y)).any().value());
  });
  const auto once = resolve(graphs);
  std::vector<Graph> again;
  for (const auto c : once.class_of) again.push_back(once.classes[c].graph);
  const auto twice = resolve(again);
  REQUIRE(twice.classes.size() == once.classes.size());
  CHECK(digest_of(twice.classes[0].graph) == digest_of(once.classes[0].graph));
  CHECK(members(twice) == members(once));
}

TEST_CASE("a process alone is told what others compute and takes only that for uniform") {
  const auto graphs = traced(2, [](ReplicaContext& replica, Tensor<float>) {
    const auto w = replica.variable<float>("w", {4, 2}, Initializer::zeros()).read();
    replica.graph().results().push_back((w * 2.0f).any().value());
  });
  std::size_t asked = 0;
  const auto resolution = resolve(graphs, {.bucket_bytes = 1 << 20, .common_to_processes = [&](const std::set<Digest>& mine) {
                                             asked = mine.size();
                                             return std::set<Digest>{};
                                           }});
  CHECK(asked > 0);
  const auto& one = resolution.classes[0];
  CHECK_FALSE(one.uniformity.uniform[one.graph.results()[0].node]);
}

TEST_CASE("a collective follows the node that makes its input, however late it is asked for") {
  const auto graphs = test::traced(2, [](ReplicaContext& replica, Tensor<float> x) {
    const auto a = sum(x), b = sum(x * a), c = sum(x * b);
    const auto first = all_reduce(a, Reduction::sum), second = all_reduce(b, Reduction::sum);
    const auto again = all_reduce(first, Reduction::max);
    replica.graph().results() = {(first + second + again + c).any().value()};
  });
  const auto resolution = resolve(graphs);
  const auto& one = resolution.classes[0];
  const auto input = [&](std::uint32_t node) { return one.graph.node(node).inputs[0].node; };
  REQUIRE(one.collective.size() == 3);
  CHECK(one.collective[0] == input(one.collective[0]) + 1);
  CHECK(one.collective[1] == input(one.collective[1]) + 1);
  CHECK(input(one.collective[2]) == one.collective[0]);
  CHECK(one.collective[2] == one.collective[0] + 1);
  CHECK(one.collective[0] < one.collective[1]);  // b needs no collective, and comes behind
}

}  // namespace test_buckets
