// SPDX-License-Identifier: Apache-2.0
// Groups of replicas in resolution: agreement, uniformity, buckets, and invalid groups.
#include <catch2/catch.hpp>

#include <source_location>

#include <replicator/resolve/all_to_all.hpp>

#include "graphs.hpp"

namespace test_groups {

using namespace replicator;
using namespace replicator::detail;
using test::at_line;
using test::resolution_error;
using test::traced;
using Where = std::source_location;
using T = Tensor<float>;

namespace {

template <class Step>
std::string error_at(int replicas, Step step) {
  return test::error_of([&] { resolve(traced(replicas, step)); });
}

}  // namespace

TEST_CASE("replicas that name different groups are told both") {
  Where where;
  const auto graphs = traced(4, [&](ReplicaContext& replica, T x) {
    where = Where::current(), all_reduce(x, Reduction::sum, {.group = replica.id() == 2 ? group_rows(4, 2) : group_columns(4, 2)});
  });
  CHECK(resolution_error(graphs) == "replica 2: all_reduce at " + at_line(where) +
                                        " has the groups [0, 1], [2, 3]; replica 0 has the groups [0, 2], [1, 3] at " +
                                        at_line(where) + ": every replica must name the groups of all replicas, and the same ones");
}

TEST_CASE("a group of everybody is no group") {
  const auto graphs = traced(2, [](ReplicaContext& replica, T x) {
    if (replica.id() == 0) all_reduce(x, Reduction::sum, {.group = {{0, 1}}});
    else all_reduce(x, Reduction::sum);
  });
  CHECK(resolution_error(graphs) == "nothing");
}

TEST_CASE("what is no partition of the replicas is refused at its line") {
  Where where;
  const auto refused = [&](const Groups& groups, const std::string& why) {
    const auto found = error_at(4, [&](ReplicaContext&, T x) { where = Where::current(), all_reduce(x, Reduction::sum, {.group = groups}); });
    CHECK(found == "replica 0: all_reduce at " + at_line(where) + ": asked for the groups " + groups.text() + why);
  };
  const std::string mend = ": name every replica once, in ascending order";
  refused({{0, 1}, {2}}, " of 4 replicas, but replica 3 is in no group" + mend);
  refused({{0, 1}, {2, 3, 4}}, " of 4 replicas, but there is no replica 4, only 0 to 3" + mend);
  refused({{0, 1}, {1, 2, 3}}, " of 4 replicas, but replica 1 is named twice" + mend);
  refused({{0, 1, 3, 2}}, " of 4 replicas, but replica 2 is named after 3: members ascend" + mend);
}

TEST_CASE("groups of several sizes are refused where shapes or means would differ") {
  const Groups uneven{{0, 1, 2}, {3}};
  Where where;
  auto found = error_at(4, [&](ReplicaContext&, T x) { where = Where::current(), all_gather(x, {.group = uneven}); });
  CHECK(found == "replica 0: all_gather at " + at_line(where) +
                     ": asked for the groups [0, 1, 2], [3], whose sizes differ, so the results would have different shapes: make all groups equally large");
  found = error_at(4, [&](ReplicaContext&, T x) { where = Where::current(), all_reduce(x, Reduction::mean, {.group = uneven}); });
  CHECK(found == "replica 0: all_reduce at " + at_line(where) +
                     ": asked for the groups [0, 1, 2], [3], whose sizes differ, so a mean has no single divisor: take the sum and divide it");
  found = error_at(4, [&](ReplicaContext&, T x) { where = Where::current(), broadcast(x, 1, {.group = uneven}); });
  CHECK(found == "replica 0: broadcast at " + at_line(where) + ": the root 1 is not one of the 1 replicas of a group");
  CHECK(error_at(4, [&](ReplicaContext&, T x) { all_reduce(x, Reduction::max, {.group = uneven}); }) == "nothing");
}

TEST_CASE("what cannot be cut into equal parts is refused with its axis") {
  Where where;
  auto found = error_at(3, [&](ReplicaContext&, T x) { where = Where::current(), all_to_all(x); });
  CHECK(found == "replica 0: all_to_all at " + at_line(where) +
                     ": the first extent is split over 3 replicas, found the shape [4, 2]: make it a multiple");
  found = error_at(4, [&](ReplicaContext&, T x) { where = Where::current(), all_to_all(x, 1, 0); });
  CHECK(found == "replica 0: all_to_all at " + at_line(where) + ": axis 1 is split over 4 replicas, found the shape [4, 2]: make it a multiple");
  found = error_at(2, [&](ReplicaContext&, T x) { where = Where::current(), all_to_all(x, 2, 0); });
  CHECK(found == "all_to_all at " + at_line(where) + ": asked for axis 2 of a tensor of 2 dimensions: axes count from 0, or from -1 at the end");
  CHECK(error_at(4, [](ReplicaContext&, T x) { all_to_all(x, 1, 0, {.group = group_rows(4, 2)}); }) == "nothing");
}

TEST_CASE("the result of a group and of all_to_all varies: it cannot be assigned to a mirrored variable") {
  Where where;
  const auto assigned = [&](auto make) {
    return error_at(4, [&](ReplicaContext& replica, T x) {
      auto w = replica.variable<float>("w", {4, 2}, Initializer::zeros());
      where = Where::current(), w.assign(make(x));
    });
  };
  const auto refused = [&](auto make) {
    const std::string found = assigned(make);
    CHECK(found == "\"w\" is mirrored, but the value assigned at " + at_line(where) +
                       " differs between replicas: an all_reduce is missing, or make it replica_local");
  };
  refused([](T x) { return all_reduce(x, Reduction::sum, {.group = group_rows(4, 2)}); });
  refused([](T x) { return broadcast(x, 0, {.group = group_rows(4, 2)}); });
  refused([](T x) { return all_to_all(x); });
  // A sum over the rows of sums over the columns is one over all, but only an all_reduce of all says so.
  CHECK(assigned([](T x) { return all_reduce(all_reduce(x, Reduction::sum, {.group = group_rows(4, 2)}), Reduction::mean); }) == "nothing");
}

TEST_CASE("sums in the same groups share a bucket, others do not") {
  const auto graphs = traced(4, [](ReplicaContext& replica, T x) {
    for (const auto& groups : {group_rows(4, 2), group_columns(4, 2), group_rows(4, 2), Groups{}})
      replica.graph().results().push_back(all_reduce(x * 2.0f, Reduction::sum, {.group = groups}).any().value());
  });
  const auto resolution = resolve(graphs);
  CHECK(resolution.buckets.size() == 3);
  CHECK(resolution.bucket_of[0] == resolution.bucket_of[2]);
}

}  // namespace test_groups
