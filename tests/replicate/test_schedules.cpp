// SPDX-License-Identifier: Apache-2.0
// All-reduces by name, through the whole engine.
#include <catch2/catch.hpp>

#include <filesystem>
#include <string>
#include <tuple>

#include <replicator/core/philox.hpp>
#include <replicator/engine/topology_file.hpp>
#include <replicator/replicator.hpp>

#include "deployments.hpp"

namespace test_schedules {

using namespace replicator;
using namespace replicator::detail;

namespace {

struct Outcome {
  std::string bits;
  std::string explanation;
};

Outcome run(int replicas, int devices, const std::string& schedule, bool any_order = false, const std::string& topology = {}) {
  auto deployment = test::on_devices(replicas, devices);
  deployment.schedule = schedule;
  deployment.topology = topology;
  Replicator repl{deployment};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([ctx](std::int64_t position) {
      PhiloxStream random{1, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> values{{7001}};
      for (auto& value : values) value = random.uniform() - 0.5f;
      return values;
    });
  };
  const auto step_fn = [any_order](ReplicaContext&, Tensor<float> x) {
    return std::tuple{all_reduce(x, Reduction::mean, {.any_order = any_order}),
                      all_reduce(sum(x), Reduction::sum, {.any_order = any_order})};
  };
  auto train = repl.replicate(input_fn, step_fn);
  Outcome outcome;
  for (const auto& [means, total] : train.steps(2)) {
    for (const auto bytes : {means[0].any().bytes(), total[0].any().bytes()})
      outcome.bits.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  outcome.explanation = train.explain();
  return outcome;
}

}  // namespace

TEST_CASE("every schedule that keeps the tree has the bits of one device, on any number of devices") {
  for (const int replicas : {1, 4, 5}) {
    const auto alone = run(replicas, 1, "auto");
    for (int devices = 1; devices <= replicas; ++devices)
      for (const std::string schedule : {"owner_computes", "direct", "binary_tree", "naive"}) {
        INFO(schedule << ": " << replicas << " replicas on " << devices << " devices");
        const auto found = run(replicas, devices, schedule);
        CHECK(found.bits == alone.bits);
        if (devices > 1) CHECK_THAT(found.explanation, Catch::Contains(schedule + ": asked for by --schedule"));
      }
    for (const std::string schedule : {"halving_doubling", "hierarchical"})
      CHECK(run(replicas, replicas, schedule).bits == alone.bits);
  }
  CHECK(run(4, 4, "hierarchical:2x2").bits == run(4, 1, "hierarchical:2x2").bits);
}

TEST_CASE("a schedule with an order of its own runs only where any_order was allowed") {
  CHECK_THAT(test::error_of([] { run(4, 3, "ring"); }),
             Catch::StartsWith("--schedule ring adds 4 replicas on 3 devices in an order of its own"));
  CHECK_THAT(run(4, 3, "ring", true).explanation, Catch::Contains("ring: asked for by --schedule"));
  CHECK(run(4, 3, "ring", true).bits.size() == 2 * 7002 * sizeof(float));
}

TEST_CASE("a schedule that does not exist or does not fit is refused before the first step") {
  CHECK_THAT(test::error_of([] { run(2, 1, "rings"); }), Catch::StartsWith("--schedule is \"rings\": choose auto, "));
  CHECK_THAT(test::error_of([] { run(4, 4, "hierarchical:3x2"); }),
             Catch::Contains("the dimensions \"3x2\", but there are 4 devices"));
}

TEST_CASE("a topology's figures choose the schedule, explain says so, and no bit changes") {
  const auto path = (std::filesystem::temp_directory_path() / "replicator_chosen_topology.json").string();
  const auto alone = run(4, 1, "auto");
  const auto chosen = [&](const char* microseconds) {
    write_topology(path, R"({"format":"replicator topology 1","dimensions":[{"size":4,"bytes_per_microsecond":1000,"microseconds":)" +
                             std::string{microseconds} + R"(}],"reduced_bytes_per_microsecond":10000})");
    return run(4, 4, "auto", false, path);
  };
  const auto far = chosen("1000"), near = chosen("0.001");
  CHECK(far.bits == alone.bits);
  CHECK(near.bits == alone.bits);
  CHECK_THAT(far.explanation, Catch::Contains("28032 B; direct: 28032 B on 4 ranks, the fastest by prediction; owner_computes ") &&
                                  Catch::Contains("; predicted 1.0") && Catch::Contains(" ms on the topology"));
  CHECK_THAT(near.explanation, Catch::Contains("28032 B; owner_computes: 28032 B on 4 ranks, "));
  CHECK_THAT(test::error_of([&] { run(3, 3, "auto", false, path); }), Catch::Contains(path + " is of 4 (devices of a process x processes), this job is 3"));
  std::filesystem::remove(path);
  CHECK(run(4, 2, "auto", false, path).bits == alone.bits);  // measured
  CHECK(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

}  // namespace test_schedules
