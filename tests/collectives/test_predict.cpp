// SPDX-License-Identifier: Apache-2.0
// Predicted times on a topology, compared with the simulator, and the choice of schedules by these times.
#include <catch2/catch.hpp>

#include <algorithm>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/simulate/run_simulation.hpp>
#include <string>
#include <vector>

namespace test_predict {

namespace rc = replicator::detail::collectives;

namespace {

rc::CollectiveSpec floats(std::int64_t bytes) {
  rc::CollectiveSpec spec;
  spec.elements = bytes / 4;
  return spec;
}
double simulated(const rc::Schedule& schedule, std::int64_t bytes, const rc::Topology& topology) {
  const auto spec = floats(bytes);
  rc::SimulationOptions options;
  options.critical_path = false;
  return rc::simulate(schedule, spec, topology, rc::piece_count(spec, schedule), options).time();
}
rc::Choice choose(std::int64_t bytes, const rc::ReplicaBlocks& blocks, const rc::Topology& topology, bool any_order = false) {
  rc::AllReducePreference wanted;
  wanted.topology = topology;
  return rc::choose(rc::Kind::all_reduce, bytes, blocks, 0, any_order, wanted);
}

// 4 devices on each of 2 hosts: 20 GB/s inside, 1.25 GB/s between.
const rc::Topology slow_outside{{{4, {1, 20000}}, {2, {20, 1250}}}, 10000};

}  // namespace

TEST_CASE("a prediction is the latencies of the longest chain, the busiest link of each dimension and the reductions") {
  const rc::Topology flat{{{2, {3, 1000}}}, 500};
  const auto schedule = rc::owner_computes({2, 2});
  // Each rank reads half of the other's block and adds, then copies the other half: 2 latencies, 8000 B in, 4000 B of sums.
  CHECK(rc::predicted_microseconds(schedule, 8000, flat) == Approx(2 * 3 + 8.0 + 8.0));
  CHECK_THROWS_WITH(rc::predicted_microseconds(schedule, 8000, slow_outside),
                    "the time of \"owner_computes\" for 2 ranks was asked for on a topology of \"4x2\": its dimensions must have all ranks "
                    "as their product");
}

TEST_CASE("predictions are near to what the simulator says, and what they choose is near to its best") {
  const std::vector<rc::Topology> topologies{slow_outside, {{{8, {10, 1000}}}, 10000}, {{{2, {1, 10000}}, {4, {5, 10000}}}, 8000}};
  for (const auto& topology : topologies)
    for (const std::int64_t bytes : {std::int64_t{1} << 10, std::int64_t{1} << 16, std::int64_t{1} << 22}) {
      const rc::ReplicaBlocks blocks{8, 8};
      double best = 1e30;
      for (const std::string name : {"owner_computes", "direct", "halving_doubling", "binary_tree", "hierarchical"}) {
        const auto schedule = rc::all_reduce_by_name({name, rc::detail::sizes_of(topology)}, blocks);
        const double exact = simulated(schedule, bytes, topology);
        const double fast = rc::predicted_microseconds(schedule, bytes, topology);
        INFO(name << " of " << bytes << " B on " << topology.text() << ": simulated " << exact << ", predicted " << fast);
        CHECK(fast < 2 * exact);
        CHECK(fast > exact / 2);
        best = std::min(best, exact);
      }
      const auto choice = choose(bytes, blocks, topology);
      INFO(choice.reason);
      CHECK(simulated(choice.schedule, bytes, topology) < 1.4 * best);
    }
}

TEST_CASE("between slow hosts the hierarchical all-reduce is chosen where it keeps T, or any order is allowed") {
  const rc::Topology even{{{4, {1, 20000}}, {4, {20, 1250}}}, 10000};
  const auto kept = choose(4 << 20, {16, 16}, even);
  INFO(kept.reason);
  CHECK(kept.schedule.name == "hierarchical");
  CHECK_FALSE(kept.schedule.any_order);
  CHECK(kept.microseconds > 0);
  CHECK_THAT(kept.reason, Catch::StartsWith("hierarchical: 4194304 B on 4x4") && Catch::Contains(" ranks, the fastest by prediction; owner_computes ") &&
                              Catch::Contains(", direct ") && Catch::Contains(", binary_tree ") && !Catch::Contains("ring"));

  const rc::Topology uneven{{{3, {1, 20000}}, {3, {20, 1250}}}, 10000};
  const auto refused = choose(4 << 20, {18, 9}, uneven);
  CHECK(refused.schedule.name != "hierarchical");
  CHECK_FALSE(refused.schedule.any_order);
  CHECK_THAT(refused.reason, Catch::Contains("; hierarchical ") && Catch::Contains(" in an order of its own"));
  const auto allowed = choose(4 << 20, {18, 9}, uneven, true);
  INFO(allowed.reason);
  CHECK(allowed.schedule.name == "hierarchical");
}

TEST_CASE("few bytes go the way of one latency, and links of one kind need no hierarchy") {
  CHECK(choose(256, {8, 8}, {{{8, {10, 1000}}}, 10000}).schedule.name == "direct");
  CHECK_THAT(choose(4 << 20, {8, 8}, {{{8, {10, 1000}}}, 10000}).reason, !Catch::Contains("hierarchical"));
  CHECK(choose(4 << 20, {8, 1}, {{{2, {10, 1000}}}, 10000}).reason == "local: one rank holds all replicas");
}

TEST_CASE("a topology predicts every kind of collective and leaves --schedule its say") {
  rc::AllReducePreference wanted;
  wanted.topology = slow_outside;
  for (const auto kind : {rc::Kind::all_gather, rc::Kind::reduce_scatter, rc::Kind::broadcast, rc::Kind::all_to_all})
    CHECK(rc::choose(kind, 1 << 20, {8, 8}, 0, false, wanted).microseconds > 0);
  wanted.name = "naive";
  const auto choice = rc::choose(rc::Kind::all_reduce, 1 << 20, {8, 8}, 0, false, wanted);
  CHECK(choice.reason == "naive: asked for by --schedule");
  CHECK(choice.microseconds == rc::predicted_microseconds(rc::naive({8, 8}), 1 << 20, slow_outside));
  CHECK(rc::choose(rc::Kind::all_reduce, 1 << 20, {8, 8}).microseconds == 0);
}

}  // namespace test_predict
