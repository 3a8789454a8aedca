// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/loads_to_messages.hpp>
#include <replicator/collectives/simulate/run_simulation.hpp>
#include <string>
#include <vector>

namespace test_simulate {

namespace rc = replicator::detail::collectives;

namespace {

constexpr double latency = 2, bandwidth = 12500;  // 12.5 GB/s

// `elements` float32.
rc::CollectiveSpec spec_of(std::int64_t elements) {
  rc::CollectiveSpec spec;
  spec.elements = elements;
  return spec;
}
rc::Topology flat(int ranks, double reduced = 0) { return {{{ranks, {latency, bandwidth}}}, reduced}; }
double time_of(const std::string& name, int ranks, std::int64_t elements, double reduced = 0, int pieces = 1) {
  const auto schedule = rc::all_reduce_by_name({name}, {ranks, ranks});
  return rc::simulate(schedule, spec_of(elements), flat(ranks, reduced), pieces).time();
}
rc::SimulatedAction compute(double microseconds) { return {rc::SimulatedAction::Kind::compute, 0, microseconds}; }
rc::SimulatedAction start(int collective) { return {rc::SimulatedAction::Kind::start, collective, 0}; }
rc::SimulatedAction wait(int collective) { return {rc::SimulatedAction::Kind::wait, collective, 0}; }

}  // namespace

TEST_CASE("a simulated ring takes 2 (P - 1) (latency + S / P / bandwidth), and P - 1 reductions of a part") {
  for (const int ranks : {2, 3, 4, 7, 16}) {
    const std::int64_t elements = 16 * 1000 * ranks;
    const double part = 4.0 * 16 * 1000;
    CHECK(time_of("ring", ranks, elements) == Approx(2 * (ranks - 1) * (latency + part / bandwidth)));
    CHECK(time_of("ring", ranks, elements, 5000) == Approx(2 * (ranks - 1) * (latency + part / bandwidth) + (ranks - 1) * part / 5000));
  }
}

TEST_CASE("simulated direct, owner_computes and halving_doubling take their closed forms") {
  for (const int ranks : {2, 4, 8, 32}) {
    const std::int64_t elements = 16 * 256 * ranks;
    const double part = 4.0 * 16 * 256, whole = part * ranks;
    CHECK(time_of("direct", ranks, elements) == Approx(latency + (ranks - 1) * whole / bandwidth));
    CHECK(time_of("owner_computes", ranks, elements) == Approx(2 * (latency + (ranks - 1) * part / bandwidth)));
    CHECK(time_of("halving_doubling", ranks, elements) == Approx(2 * std::log2(ranks) * latency + 2 * (ranks - 1) * part / bandwidth));
  }
}

TEST_CASE("the simulated naive reducer grows with the ranks, and pieces let its two halves overlap") {
  const std::int64_t elements = 1 << 20;
  const double whole = 4.0 * elements / bandwidth;
  for (const int ranks : {2, 4, 8, 16, 64}) {
    CHECK(time_of("naive", ranks, elements) == Approx(2 * (latency + (ranks - 1) * whole)));
    CHECK(time_of("naive", ranks, elements, 0, 16) == Approx(2 * latency + (ranks - 1) * whole * 17 / 16));
  }
}

TEST_CASE("simulated devices of a host share its link: hierarchical sends a D-th of what a flat ring would, or all at once") {
  const int devices = 4;
  for (const int hosts : {2, 4, 8}) {
    const std::int64_t elements = 16 * 256 * devices * hosts;
    const double whole = 4.0 * elements;
    const rc::Topology topology{{{devices, {0.5, 50000}}, {hosts, {latency, bandwidth}}}, 0};
    const int ranks = devices * hosts;
    const auto time = [&](const rc::Schedule& schedule) { return rc::simulate(schedule, spec_of(elements), topology).time(); };
    // All devices of a host together send (hosts - 1) / hosts of the whole through its link, twice. The devices take
    // turns, so the answer for the first one hides a latency behind the message of the last one.
    CHECK(time(rc::hierarchical({ranks, ranks}, {devices, hosts})) ==
          Approx(2 * (0.5 + whole * (devices - 1) / devices / 50000) + latency + 2 * whole * (hosts - 1) / hosts / bandwidth));
    // Every rank reads all others; the link of a host carries what its devices read from other hosts.
    CHECK(time(rc::direct({ranks, ranks})) == Approx(latency + whole * devices * (ranks - devices) / bandwidth).epsilon(0.01));
    // The part that crosses between hosts most often: at the first of its 2 (P - 1) steps, and every `devices` from there.
    const int across = (2 * (ranks - 1) + devices - 1) / devices;
    const double alone = across * (latency + whole / ranks / bandwidth) + (2 * (ranks - 1) - across) * (0.5 + whole / ranks / 50000);
    CHECK(time(rc::ring({ranks, ranks})) >= Approx(alone));  // parts meet at the slow links
    CHECK(time(rc::ring({ranks, ranks})) <= 1.05 * alone);
  }
}

TEST_CASE("the simulated links were busy for their bytes, no longer than the whole took") {
  const std::int64_t elements = 16 * 8 * 100;
  const auto schedule = rc::hierarchical({8, 8}, {4, 2});
  const rc::Topology topology{{{4, {0.5, 50000}}, {2, {latency, bandwidth}}}, 0};
  const rc::Simulation simulation = rc::simulate(schedule, spec_of(elements), topology, 2);
  CHECK(simulation.links.size() == 2 * (8 + 2));
  std::int64_t across = 0;
  for (const rc::LinkUse& link : simulation.links) {
    CHECK(link.busy == Approx(static_cast<double>(link.bytes) / (link.dimension == 0 ? 50000 : bandwidth)));
    CHECK(link.busy <= simulation.time());
    if (link.dimension == 1 && !link.in) across += link.bytes;
  }
  CHECK(across == 2 * 4 * elements);  // half of the whole from each host, to be reduced and reduced
  CHECK(simulation.finish.size() == 8);
}

TEST_CASE("a schedule and the lowered one take the same simulated time") {
  for (const auto name : rc::all_reduce_names)
    for (const int ranks : {2, 3, 4, 6, 8}) {
      const auto schedule = rc::all_reduce_by_name({std::string{name}}, {2 * ranks, ranks});
      const auto lowered = rc::lower(schedule);
      for (const int pieces : {1, 3}) {
        INFO(name << " on " << ranks << " ranks in " << pieces << " pieces");
        const rc::Topology topology = flat(ranks, 5000);
        CHECK(rc::simulate(lowered, spec_of(48000), topology, pieces).time() ==
              Approx(rc::simulate(schedule, spec_of(48000), topology, pieces).time()).epsilon(0.02));
      }
    }
}

TEST_CASE("nothing to move takes no simulated time: no elements, one rank") {
  for (const auto name : rc::all_reduce_names) {
    CHECK(time_of(std::string{name}, 5, 0) == 0);
    CHECK(time_of(std::string{name}, 1, 1 << 20) == 0);
    CHECK(time_of(std::string{name}, 5, 3) > 0);  // fewer elements than ranks
  }
  CHECK(time_of("owner_computes", 1, 1 << 20, 4096) == Approx(4.0 * (1 << 20) / 4096));  // its own copy
}

TEST_CASE("every kind of collective can be simulated") {
  for (const auto kind : {rc::Kind::all_gather, rc::Kind::reduce_scatter, rc::Kind::broadcast, rc::Kind::all_to_all}) {
    const auto schedule = rc::choose(kind, 1 << 20, {4, 4}).schedule;
    rc::CollectiveSpec spec = spec_of(1 << 18);
    spec.kind = kind;
    const double block = 4.0 * (1 << 18) / bandwidth;
    const double time = rc::simulate(schedule, spec, flat(4)).time();
    // A broadcast's root sends what it scatters and its own part at once, before the last of the others can pass theirs on.
    if (kind == rc::Kind::broadcast) CHECK(time == Approx(2 * latency + 2 * block).epsilon(0.02));
    else CHECK(time == Approx(latency + 3 * block));
  }
}

TEST_CASE("jitter depends on the seed alone, keeps the mean, and makes a synchronous collective slower") {
  const auto schedule = rc::ring({8, 8});
  const auto time = [&](double jitter, std::uint64_t seed) {
    return rc::simulate(schedule, spec_of(16 * 8 * 1000), flat(8), 1, {.jitter = jitter, .seed = seed}).time();
  };
  const double exact = time(0, 1);
  CHECK(time(0, 2) == exact);
  CHECK(time(0.05, 1) == time(0.05, 1));
  CHECK(time(0.05, 1) != time(0.05, 2));
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) sum += time(0.05, seed);
  CHECK(sum / 50 > exact);
  CHECK(sum / 50 < 1.15 * exact);
  // One message after the other: the mean stays.
  const auto naive = rc::naive({2, 2});
  sum = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) sum += rc::simulate(naive, spec_of(1 << 20), flat(2), 1, {.jitter = 0.2, .seed = seed}).time();
  CHECK(sum / 400 == Approx(rc::simulate(naive, spec_of(1 << 20), flat(2)).time()).epsilon(0.02));
}

TEST_CASE("the critical path runs without a gap from the beginning to the last finish") {
  for (const auto name : rc::all_reduce_names)
    for (const int pieces : {1, 4}) {
      INFO(name << " in " << pieces << " pieces");
      const auto schedule = rc::all_reduce_by_name({std::string{name}, name == "hierarchical" ? std::vector<int>{3, 2} : std::vector<int>{}}, {6, 6});
      const rc::Topology topology{{{3, {0.5, 20000}}, {2, {latency, bandwidth}}}, 9000};
      const rc::Simulation simulation = rc::simulate(schedule, spec_of(100000), topology, pieces, {.jitter = 0.1, .seed = 3, .spans = true});
      REQUIRE(!simulation.critical_path.empty());
      double at = 0;
      for (const rc::SimulatedSpan& span : simulation.critical_path) {
        REQUIRE(span.begin == at);
        REQUIRE(span.end >= span.begin);
        at = span.end;
      }
      CHECK(at == simulation.time());
      CHECK(simulation.spans.size() >= simulation.critical_path.size());
    }
}

TEST_CASE("what computes meanwhile hides a collective, and its reductions wait for kernels to end") {
  const auto schedule = rc::naive({2, 2});
  const std::int64_t elements = 12500;
  const double one_way = latency + 4.0;  // 50,000 bytes
  const auto time = [&](const std::vector<rc::SimulatedAction>& actions, bool aside) {
    return rc::simulate({{&schedule, spec_of(elements), 1}}, {actions}, flat(2, 50000), {.kernels_aside = aside}).time();
  };
  const double alone = time({start(0), wait(0)}, false);
  CHECK(alone == Approx(2 * one_way + 1));
  CHECK(time({compute(100), start(0), wait(0)}, false) == Approx(100 + alone));
  // Beside the kernel all of it is hidden; on the kernel's thread only the first message is.
  CHECK(time({start(0), compute(100), wait(0)}, true) == Approx(100));
  CHECK(time({start(0), compute(100), wait(0)}, false) == Approx(100 + 1 + one_way));
  // Kernels give it turns.
  CHECK(time({start(0), compute(10), compute(90), wait(0)}, false) == Approx(101));
}

TEST_CASE("the jitter of a device is one factor for all its kernels, another one on every rank") {
  const auto schedule = rc::direct({64, 64});
  const auto spread = [&](const rc::SimulationOptions& options) {
    const auto finish = rc::simulate({{&schedule, spec_of(0), 1}}, {std::vector<rc::SimulatedAction>(100, compute(1))}, flat(64), options).finish;
    double mean = 0, squares = 0;
    for (const double time : finish) mean += time / 64;
    for (const double time : finish) squares += (time - mean) * (time - mean) / 64;
    CHECK(mean == Approx(100).epsilon(0.1));
    return std::sqrt(squares) / mean;
  };
  CHECK(spread({}) == 0);
  CHECK(spread({.jitter = 0.2}) == Approx(0.02).epsilon(0.3));  // of the 100 each has one of its own
  CHECK(spread({.device_jitter = 0.2}) == Approx(0.2).epsilon(0.3));
}

TEST_CASE("a rank that comes late makes all others wait, and the critical path says so") {
  const auto schedule = rc::ring({3, 3});
  const std::vector<rc::SimulatedAction> soon{start(0), wait(0)}, late{compute(1000), start(0), wait(0)};
  const auto simulation = rc::simulate({{&schedule, spec_of(48), 1}}, {soon, late, soon}, flat(3));
  REQUIRE(!simulation.critical_path.empty());
  CHECK(simulation.critical_path.front().kind == rc::SimulatedSpan::Kind::compute);
  CHECK(simulation.critical_path.front().rank == 1);
  for (const double finish : simulation.finish) CHECK(finish > 1000);
}

TEST_CASE("two collectives share the links first come, first served") {
  const auto schedule = rc::direct({2, 2});
  const rc::SimulatedCollective one{&schedule, spec_of(12500), 1};
  const auto time = [&](std::vector<rc::SimulatedAction> actions) { return rc::simulate({one, one}, {std::move(actions)}, flat(2)).time(); };
  CHECK(time({start(0), wait(0), start(1), wait(1)}) == Approx(2 * (latency + 4)));
  CHECK(time({start(0), start(1), wait(0), wait(1)}) == Approx(latency + 8));
  CHECK(time({start(0), start(1), wait(1), wait(0)}) == Approx(latency + 8));
}

TEST_CASE("what cannot be simulated is refused in a sentence") {
  const auto schedule = rc::ring({4, 4});
  CHECK_THROWS_WITH(rc::simulate(schedule, spec_of(1), {{{3, {}}, {2, {}}}, 0}),
                    "the schedule \"ring\" for 4 ranks was to be simulated on a topology of \"3x2\": name the devices of a host, then "
                    "the hosts; their product must be all ranks");
  CHECK_THROWS_WITH(rc::simulate(schedule, spec_of(1), {{{4, {1, 0}}}, 0}),
                    "the link of dimension 0 of a topology has 1 us and 0 bytes/us: a latency is at least 0, a bandwidth "
                    "more than 0");
  CHECK_THROWS_WITH(rc::simulate(schedule, spec_of(1), {{{1 << 20, {}}, {1 << 20, {}}}, 0}),
                    "a topology has the dimensions \"1048576x1048576\": each is at least 1, and there are at most 16777216 ranks");
  CHECK_THROWS_WITH(rc::simulate({{&schedule, spec_of(16), 1}}, {{start(0)}, {start(0)}, {start(0)}}, flat(4)),
                    "3 lists of actions were given for 4 simulated ranks: give one for each, or one for all");
  CHECK_THROWS_WITH(rc::simulate({{&schedule, spec_of(16), 1}}, {{wait(1)}}, flat(4)),
                    "a simulated rank starts or waits for collective 1, of 1");
  CHECK_THROWS_WITH(rc::simulate({{&schedule, spec_of(16), 1}}, {{wait(0), start(0)}}, flat(4)),
                    Catch::Contains("the simulated rank 0 waits for ever"));
  CHECK_THROWS_WITH(rc::simulate(schedule, spec_of(1), flat(4), 0), "a collective was to be simulated in 0 pieces: 1 is the least");
  CHECK_THROWS_WITH(rc::simulate(schedule, spec_of(1), flat(4), 1, {.device_jitter = -1}), "the jitter of a simulation is -1: say 0.05 for 5 %");
}

}  // namespace test_simulate
