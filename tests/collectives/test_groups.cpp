// SPDX-License-Identifier: Apache-2.0
// Collectives inside groups, and all_to_all. The checker proves them; runs on every number of ranks are compared with
// closed forms of each group's results.
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <replicator/collectives/check/check.hpp>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/loads_to_messages.hpp>
#include <replicator/collectives/run/run.hpp>

#include "../support/cases.hpp"
#include "ranks.hpp"

namespace test_groups {

namespace rc = replicator::detail::collectives;
namespace rt = replicator::detail::transport;
using replicator::Groups;
using replicator::test::counts_to;
using replicator::test::LoadsOnly;
using replicator::test::MessagesOnly;
using replicator::test::run_ranks;
using replicator::test::soon;

namespace {

// Everybody, rows and columns of every grid, everyone alone, and groups of several sizes that lie across each other.
std::vector<Groups> partitions(int replicas) {
  std::vector<Groups> all{Groups{}};
  for (int columns = 1; columns <= replicas; ++columns) {
    if (replicas % columns != 0) continue;
    all.push_back(replicator::group_rows(replicas, columns));
    all.push_back(replicator::group_columns(replicas, columns));
  }
  std::vector<std::vector<int>> uneven(3);
  for (int replica = 0; replica < replicas; ++replica) uneven[static_cast<std::size_t>(replica * replica % 7 % 3)].push_back(replica);
  std::erase_if(uneven, [](const auto& group) { return group.empty(); });
  all.push_back(uneven);
  return all;
}

// What replica r gives: integers, so that every sum is exact.
std::int64_t given(int replica, std::int64_t i) { return (replica + 1) * 1000 + i; }

// Block by block what a rank must receive, as the comment at Collective::output says.
std::vector<std::int64_t> wanted(const rc::CollectiveSpec& spec, const rc::ReplicaBlocks& blocks, const Groups& groups, int rank) {
  const std::int64_t n = spec.elements;
  std::vector<std::int64_t> out;
  const auto sum = [&](int group, std::int64_t i) {
    std::int64_t total = 0;
    for (const int member : groups.members(group)) total += given(member, i);
    return total;
  };
  if (rc::scatters(spec.kind))
    for (int replica = blocks.begin(rank); replica < blocks.end(rank); ++replica) {
      const int group = groups.group_of(replica);
      const std::int64_t first = groups.position(replica) * n;
      if (spec.kind == rc::Kind::reduce_scatter)
        for (std::int64_t i = 0; i < n; ++i) out.push_back(sum(group, first + i));
      else
        for (const int member : groups.members(group))
          for (std::int64_t i = 0; i < n; ++i) out.push_back(given(member, first + i));
    }
  else
    for (const int group : rc::groups_on(blocks, groups, rank)) {
      const auto& members = groups.members(group);
      if (spec.kind == rc::Kind::all_gather)
        for (const int member : members)
          for (std::int64_t i = 0; i < n; ++i) out.push_back(given(member, i));
      else
        for (std::int64_t i = 0; i < n; ++i)
          out.push_back(spec.kind == rc::Kind::all_reduce ? sum(group, i) : given(members[static_cast<std::size_t>(spec.root)], i));
    }
  return out;
}

template <class T>
void check_run(const rc::CollectiveSpec& spec, const rc::Schedule& schedule) {
  const rc::ReplicaBlocks& blocks = schedule.blocks;
  const Groups& groups = schedule.groups;
  rt::InProcessGroup group{blocks.ranks()};
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(T{group, rank}, blocks, 1024);
    const auto collective = communicator->prepare(spec, schedule);
    const std::int64_t length = spec.elements * schedule.input_blocks();
    for (int step = 0; step < 3; ++step) {
      const auto inputs = schedule.inputs(rank);
      for (std::size_t index = 0; index < inputs.size(); ++index)
        for (std::int64_t i = 0; i < length; ++i) {
          std::int64_t sum = 0;
          for (int place = inputs[index].begin; place < inputs[index].end; ++place) sum += given(groups.replica_at(place), i);
          reinterpret_cast<std::int64_t*>(collective->input(static_cast<int>(index)))[i] = sum;
        }
      collective->start();
      collective->wait(soon());
      const auto expected = wanted(spec, blocks, groups, rank);
      const auto* found = reinterpret_cast<const std::int64_t*>(collective->output());
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (found[i] != expected[i]) throw replicator::Error{"wrong element " + std::to_string(i)};
    }
  });
}

constexpr rc::Kind kinds[] = {rc::Kind::all_reduce, rc::Kind::all_gather, rc::Kind::reduce_scatter, rc::Kind::broadcast, rc::Kind::all_to_all};

bool possible(rc::Kind kind, const Groups& groups) {
  return kind == rc::Kind::all_reduce || kind == rc::Kind::broadcast || groups.equal_sizes();
}

}  // namespace

TEST_CASE("groups know their members, positions and places") {
  const Groups columns = replicator::group_columns(6, 3);
  CHECK(columns.text() == "[0, 3], [1, 4], [2, 5]");
  CHECK(replicator::group_rows(6, 3).text() == "[0, 1, 2], [3, 4, 5]");
  CHECK(columns.group_of(4) == 1);
  CHECK(columns.position(4) == 1);
  CHECK(columns.place(4) == 3);
  CHECK(columns.replica_at(3) == 4);
  CHECK(Groups{{2, 3}, {0, 1}} == Groups{{0, 1}, {2, 3}});
  CHECK(Groups{{0, 1}}.everybody());
  CHECK_FALSE(columns.everybody());
}

TEST_CASE("what is no partition of the replicas says why") {
  CHECK(Groups{}.fault(4) == "");
  CHECK(Groups{{0, 1}, {2, 3}}.fault(4) == "");
  CHECK(Groups{{0, 1}, {2, 3}}.fault(5) == "replica 4 is in no group");
  CHECK(Groups{{0, 1}, {2, 3}}.fault(3) == "there is no replica 3, only 0 to 2");
  CHECK(Groups{{0, 1}, {1, 2}}.fault(3) == "replica 1 is named twice");
  CHECK(Groups{{0, 2, 1}}.fault(3) == "replica 1 is named after 2: members ascend");
  CHECK(Groups{{0, 1}, {}}.fault(2) == "a group has no members");
  CHECK_THROWS_WITH(replicator::group_rows(8, 3), Catch::Contains("8 replicas were asked to be a grid of 3 columns at test_groups.cpp:"));
  CHECK_THROWS_WITH(rc::all_gather({3, 1}, {{0, 1}, {2}}), "all_gather in the groups [0, 1], [2], whose sizes differ: make all groups equally large");
  CHECK_THROWS_WITH(
      rc::all_gather({3, 1}, {{0, 1}}),
      "all_gather in the groups [0, 1]: replica 2 is in no group: name every replica once, in ascending order");
  CHECK_THROWS_WITH(rc::broadcast({3, 1}, 1, false, {{0, 1}, {2}}),
                    "broadcast from replica 1 of each group: there is only replica 0");
}

TEST_CASE("every collective in every group is right by the checker, as loads and lowered to messages") {
  for (int replicas = 1; replicas <= 9; ++replicas)
    for (const auto& groups : partitions(replicas))
      for (int ranks = 1; ranks <= replicas; ++ranks)
        for (const auto kind : kinds) {
          if (!possible(kind, groups)) continue;
          for (const std::int64_t bytes : {4, 1 << 20}) {
            const auto schedule = rc::choose(kind, bytes, {replicas, ranks}, 0, false, {}, groups).schedule;
            INFO(schedule.name << ", " << ranks << " ranks, " << replicas << " replicas in " << groups.text());
            REQUIRE(rc::find_fault(schedule) == "");
            REQUIRE(rc::find_fault(rc::lower(schedule)) == "");
          }
        }
}

TEST_CASE("every collective gives each group what its members gave, on every number of ranks") {
  for (const int replicas : {1, 2, 4, 6, 9})
    for (const auto& groups : partitions(replicas))
      for (const int ranks : counts_to(replicas))
        for (const auto kind : kinds) {
          if (!possible(kind, groups)) continue;
          rc::CollectiveSpec spec;
          spec.kind = kind;
          spec.dtype = replicator::DType::int64;
          spec.groups = groups;
          for (const std::int64_t elements : {3, 3000}) {
            spec.elements = elements;
            const auto schedule = rc::choose(kind, elements * 8, {replicas, ranks}, 0, false, {}, groups).schedule;
            INFO(schedule.name << ", " << elements << " elements, " << ranks << " ranks, " << replicas << " replicas in " << groups.text());
            check_run<rt::InProcess>(spec, schedule);
            if (ranks != replicas) continue;
            check_run<LoadsOnly>(spec, schedule);
            check_run<MessagesOnly>(spec, schedule);
          }
        }
}

TEST_CASE("all_to_all moves every part once") {
  for (const auto& [replicas, ranks] : {std::pair{4, 4}, {6, 3}, {7, 2}}) {
    const rc::ReplicaBlocks blocks{replicas, ranks};
    std::int64_t away = 0;
    for (int rank = 0; rank < ranks; ++rank) away += blocks.count(rank) * (replicas - blocks.count(rank));
    CHECK(rc::moved_chunks(rc::all_to_all(blocks)) == away);
    CHECK(rc::steps(rc::all_to_all(blocks)) == (ranks > 1 ? 1 : 0));
  }
}

TEST_CASE("an all-reduce inside groups is compared with a ring in each") {
  CHECK(rc::bytes_factor(rc::owner_computes({8, 4}, replicator::group_columns(8, 2))) == 1);
  CHECK(rc::bytes_factor(rc::owner_computes({8, 4}, replicator::group_rows(8, 2))) == 1);  // nothing moves
  CHECK(rc::bytes_factor(rc::owner_computes({8, 3})) == 1.25);
  CHECK(rc::choose(rc::Kind::all_reduce, 1 << 20, {8, 4}, 0, false, {}, replicator::group_rows(8, 2)).reason ==
        "local: every group lies on one rank");
  CHECK(rc::choose(rc::Kind::all_reduce, 1 << 20, {8, 4}, 0, false, {}, replicator::group_columns(8, 2)).reason ==
        "owner_computes: 1048576 B in 2 groups on at most 4 ranks each, same bits on every placement");
}

TEST_CASE("the mean of a group divides by its members, and groups of several sizes have none") {
  rt::InProcessGroup group{1};
  const auto communicator = rc::make_communicator(rt::InProcess{group, 0}, {4, 1});
  rc::CollectiveSpec spec;
  spec.reduction = replicator::Reduction::mean;
  spec.elements = 1;
  spec.groups = {{0, 1}, {2, 3}};
  const auto collective = communicator->prepare(spec, rc::owner_computes({4, 1}, spec.groups));
  REQUIRE(collective->inputs() == 2);
  *reinterpret_cast<float*>(collective->input(0)) = 3;
  *reinterpret_cast<float*>(collective->input(1)) = 8;
  collective->start();
  collective->wait(soon());
  CHECK(reinterpret_cast<const float*>(collective->output())[0] == 1.5f);
  CHECK(reinterpret_cast<const float*>(collective->output())[1] == 4);
  CHECK_THROWS_WITH(communicator->prepare(spec, rc::owner_computes({4, 1})),
                    "all_reduce cannot run by the schedule \"owner_computes\": that is one for the groups [0, 1, 2, 3], not [0, 1], [2, 3]");
  spec.groups = {{0, 1, 2}, {3}};
  CHECK_THROWS_WITH(communicator->prepare(spec, rc::owner_computes({4, 1}, spec.groups)), Catch::Contains("a mean needs groups of one size"));
}

}  // namespace test_groups
