// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/loads_to_messages.hpp>
#include <replicator/collectives/schedule.hpp>
#include <string>

namespace test_schedule {

namespace rc = replicator::detail::collectives;

TEST_CASE("replicas are dealt in contiguous blocks, the bigger ones first") {
  for (int ranks = 1; ranks <= 20; ++ranks)
    for (int replicas = ranks; replicas <= 50; ++replicas) {
      const rc::ReplicaBlocks blocks{replicas, ranks};
      REQUIRE(blocks.begin(0) == 0);
      REQUIRE(blocks.end(ranks - 1) == replicas);
      for (int rank = 0; rank < ranks; ++rank) {
        REQUIRE(blocks.count(rank) == replicas / ranks + (rank < replicas % ranks));
        for (int replica = blocks.begin(rank); replica < blocks.end(rank); ++replica)
          REQUIRE(blocks.rank_of(replica) == rank);
      }
    }
  CHECK_THROWS_WITH((rc::ReplicaBlocks{2, 3}),
                    "2 replicas cannot be dealt to 3 devices: every device needs at least one");
}

TEST_CASE("parts cover all elements, begin at multiples of 16 and may be empty") {
  for (const std::int64_t elements : {0, 1, 2, 5, 16, 17, 100, 1000, 100003})
    for (int parts = 1; parts <= 9; ++parts) {
      REQUIRE(rc::part_begin(elements, parts, 0) == 0);
      REQUIRE(rc::part_begin(elements, parts, parts) == elements);
      for (int i = 0; i < parts; ++i) {
        const auto begin = rc::part_begin(elements, parts, i);
        REQUIRE(begin <= rc::part_begin(elements, parts, i + 1));
        REQUIRE((begin % 16 == 0 || begin == elements));
      }
    }
}

TEST_CASE("owner_computes moves as many bytes as a ring on 2^k ranks, and little more else") {
  for (const int ranks : {2, 4, 8, 16, 32})
    for (const int per_rank : {1, 2, 4}) {
      const rc::Schedule schedule = rc::owner_computes({ranks * per_rank, ranks});
      CHECK(rc::bytes_factor(schedule) == 1.0);
      CHECK(rc::steps(schedule) == 2);
    }
  for (int ranks = 2; ranks <= 16; ++ranks)
    for (int replicas = ranks; replicas <= 40; ++replicas) {
      int log2 = 0;
      while ((1 << log2) < ranks) ++log2;
      CHECK(rc::steps(rc::owner_computes({replicas, ranks})) <= 1 + log2);
    }
  CHECK(rc::bytes_factor(rc::owner_computes({8, 3})) == 1.25);
  CHECK(rc::bytes_factor(rc::owner_computes({64, 12})) == Approx(1.36).margin(0.005));
  CHECK(rc::bytes_factor(rc::ring({8, 3})) == 1.0);
  CHECK(rc::steps(rc::ring({8, 4})) == 6);
  CHECK(rc::steps(rc::direct({8, 4})) == 1);
}

TEST_CASE("the choice of an all-reduce depends on bytes, ranks and any_order, and says why") {
  CHECK(rc::choose_all_reduce(1 << 20, 1, 8, false).reason == "local: one rank holds all replicas");
  CHECK(rc::choose_all_reduce(1 << 20, 3, 8, false).reason ==
        "owner_computes: 1048576 B on 3 ranks, 1.25 times the bytes of a ring, same bits on every placement");
  CHECK(rc::choose_all_reduce(1 << 20, 3, 8, true).schedule.name == "ring");
  CHECK(rc::choose_all_reduce(1 << 20, 4, 8, true).schedule.name == "owner_computes");
  CHECK(rc::choose(rc::Kind::broadcast, 100, {4, 4}, 2).schedule.name == "flat_broadcast");
  CHECK(rc::choose(rc::Kind::broadcast, 1 << 20, {4, 4}, 2).schedule.root == 2);
}

TEST_CASE("direct is chosen while the latency that it saves is worth more than the additions that every rank repeats") {
  using replicator::detail::transport::Latency;
  const auto choice = [](std::int64_t bytes, int ranks, Latency latency) { return rc::choose(rc::Kind::all_reduce, bytes, {8, ranks}, 0, false, {}, {}, latency); };
  for (const Latency latency : {Latency::memory, Latency::crowded_memory, Latency::messages})
    for (int ranks = 2; ranks <= 8; ++ranks) {
      const auto limit = rc::direct_limit_bytes(ranks, latency);
      CHECK(choice(limit, ranks, latency).schedule.name == "direct");
      CHECK(choice(limit + 1, ranks, latency).schedule.name == "owner_computes");
      CHECK(limit > rc::direct_limit_bytes(ranks + 1, latency));
    }
  for (const int ranks : {2, 3, 64}) {
    CHECK(rc::direct_limit_bytes(ranks, Latency::memory) < rc::direct_limit_bytes(ranks, Latency::crowded_memory));
    CHECK(rc::direct_limit_bytes(ranks, Latency::crowded_memory) < rc::direct_limit_bytes(ranks, Latency::messages));
  }
  CHECK(choice(1600, 2, Latency::memory).reason == "direct: 1600 B on 2 ranks, at most 1600 B between cores: one latency, every rank evaluates the tree");
  CHECK(choice(256, 3, Latency::crowded_memory).reason ==
        "direct: 256 B on 3 ranks, at most 15360 B between more ranks than cores: one latency, every rank evaluates the tree");
  CHECK(rc::choose(rc::Kind::all_reduce, 256, {8, 4}, 0, false, {}, replicator::group_columns(8, 2), Latency::messages).reason ==
        "direct: 256 B in 2 groups on at most 4 ranks each, at most 14563 B by messages: one latency, every rank evaluates the tree");
  // Small messages of a step between hosts are still one message.
  CHECK(choice(4096, 8, Latency::messages).schedule.name == "direct");
}

TEST_CASE("an all-reduce can be asked for by name; where it would change bits, only with any_order") {
  const auto choose = [](std::string name, rc::ReplicaBlocks blocks, bool any_order) {
    return rc::choose(rc::Kind::all_reduce, 1 << 20, blocks, 0, any_order, rc::parse_all_reduce(name, {2, 2}));
  };
  for (const auto name : rc::all_reduce_names) {
    CHECK(choose(std::string{name}, {4, 4}, true).schedule.name == name);
    CHECK(choose(std::string{name}, {4, 1}, false).reason == "local: one rank holds all replicas");
    if (name != "ring") CHECK(choose(std::string{name}, {4, 4}, false).schedule.name == name);
  }
  CHECK(choose("naive", {4, 3}, false).reason == "naive: asked for by --schedule");
  CHECK(choose("hierarchical", {4, 4}, false).reason == "hierarchical:2x2: asked for by --schedule");
  CHECK(choose("hierarchical:1x4", {4, 4}, false).reason == "hierarchical:1x4: asked for by --schedule");
  CHECK(choose("auto", {4, 4}, false).schedule.name == "owner_computes");
  CHECK_THROWS_WITH(choose("ring", {4, 3}, false),
                    "--schedule ring adds 4 replicas on 3 devices in an order of its own, which would change bits: "
                    "choose auto, owner_computes, direct, binary_tree or naive, or allow it with all_reduce(x, "
                    "reduction, {.any_order = true})");
  for (const std::string wrong : {"", "rings", "ring:2", "hierarchical:", "hierarchical:2x", "hierarchical:2y2",
                                  "hierarchical:0", "hierarchical:2x-1", "auto:"})
    CHECK_THROWS_WITH(rc::parse_all_reduce(wrong, {}),
                      "--schedule is \"" + wrong +
                          "\": choose auto, owner_computes, direct, ring, halving_doubling, binary_tree, naive, "
                          "hierarchical, or hierarchical:4x2 for 4 devices on each of 2 hosts");
}

TEST_CASE("steps and bytes of the all-reduces are those of docs/algorithms.md") {
  const rc::ReplicaBlocks blocks{16, 16};
  CHECK(rc::steps(rc::halving_doubling(blocks)) == 8);
  CHECK(rc::bytes_factor(rc::halving_doubling(blocks)) == 1.0);
  CHECK(rc::steps(rc::binary_tree(blocks)) == 8);
  CHECK(rc::steps(rc::naive(blocks)) == 2);
  CHECK(rc::steps(rc::hierarchical(blocks, {4, 4})) == 4);
  CHECK(rc::bytes_factor(rc::hierarchical(blocks, {4, 4})) == 1.0);
  CHECK(rc::steps(rc::hierarchical(blocks, {2, 2, 2, 2})) == rc::steps(rc::halving_doubling(blocks)));
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const int replicas : {ranks, 2 * ranks, 2 * ranks + 3}) {
      const bool borders = replicas == ranks || (replicas == 2 * ranks && (ranks & (ranks - 1)) == 0);
      for (const auto& rank : rc::traffic(rc::binary_tree({replicas, ranks}))) {
        REQUIRE(rank.in <= (borders ? 3 : 4));
        REQUIRE(rank.out <= (borders ? 4 : 5));
      }
      REQUIRE(rc::bytes_factor(rc::halving_doubling({replicas, ranks})) == Approx(1));
    }
  CHECK(rc::traffic(rc::naive(blocks))[0].in == 15);
  CHECK(rc::traffic(rc::naive(blocks))[0].out == 15);
  CHECK(rc::traffic(rc::naive(blocks))[1].in == 1);
}

TEST_CASE("the predicted time counts latencies and the busiest rank's bytes") {
  const rc::ReplicaBlocks blocks{16, 16};
  const rc::Link link{2, 1000};
  CHECK(rc::predicted_microseconds(rc::naive(blocks), 1000, link) == Approx(2 * 2 + 15));
  CHECK(rc::predicted_microseconds(rc::ring(blocks), 16000, link) == Approx(30 * 2 + 30));
  CHECK(rc::predicted_microseconds(rc::halving_doubling(blocks), 16000, link) == Approx(8 * 2 + 30));
  CHECK(rc::predicted_microseconds(rc::direct(blocks), 1000, link) == Approx(2 + 15));
}

TEST_CASE("a lowered schedule touches no other rank") {
  const rc::Schedule lowered = rc::lower(rc::owner_computes({8, 3}));
  int messages = 0;
  for (int rank = 0; rank < 3; ++rank)
    for (const auto& channel : lowered.programs[static_cast<std::size_t>(rank)])
      for (const auto& i : channel) {
        messages += i.action == rc::Action::send;
        for (const auto& d : i.after) CHECK(d.rank == rank);
        if (i.action != rc::Action::recv) CHECK(i.left.rank == rank);
        if (i.action == rc::Action::reduce) CHECK(i.right.rank == rank);
      }
  CHECK(messages == rc::moved_chunks(rc::owner_computes({8, 3})));
}

}  // namespace test_schedule
