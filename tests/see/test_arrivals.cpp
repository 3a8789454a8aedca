// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/runtime/see/straggler_report.hpp>

#include "../replicate/deployments.hpp"
#include "../support/programs.hpp"

namespace test_arrivals {

using namespace replicator;
using namespace replicator::detail;

TEST_CASE("lateness is told for each collective and device, behind the first one") {
  std::vector<Arrival> arrivals;
  for (std::uint64_t step = 0; step < 20; ++step) {
    const auto now = static_cast<std::int64_t>(step) * 1'000'000;
    arrivals.push_back({7, step, now, 0, 0});
    arrivals.push_back({7, step, now + (step == 3 ? 900'000 : 5'000), 1, 0});
    arrivals.push_back({8, step, now + 100, 0, 0});  // alone
  }
  const auto text = arrival_summary(arrivals, {{7, "all_reduce \"loss\""}, {8, "local"}});
  const std::string lines =
      "  process 0, device 0: 0.0 us at the median, 0.0 us at 95 %; the last in 0 % of 20 times\n"
      "  process 1, device 0: 5.0 us at the median, 5.0 us at 95 %; the last in 100 % of 20 times\n";
  CHECK(text == "all_reduce \"loss\", behind the first device:\n" + lines + "over all collectives, behind the first device:\n" + lines);
  CHECK(arrival_summary({}, {}) == "no collective had several devices to wait for\n");
}

TEST_CASE("process 0 names the device that is late, of whatever process") {
  const auto results = test::run_as_job(2, [&](int) {
    auto deployment = test::on_devices(2, 1);
    deployment.see.skew = true;
    Replicator repl{deployment};
    auto train = repl.replicate([](const InputContext&) { return data::from_generator([] { return Array<float>{{}, {1}}; }); },
                                [](ReplicaContext&, Tensor<float> x) {
                                  const auto slow = host_callback(x, [](const Observation& seen) {
                                    if (seen.replica == 1) std::this_thread::sleep_for(std::chrono::milliseconds{20});
                                  });
                                  return all_reduce(slow, Reduction::sum, {.label = "loss"});
                                });
    for (auto sum : train.steps(5)) (void)sum;
    return std::string{"done"};
  });
  INFO(test::describe(results));
  const auto text = test::line_of(results[0].text, "all_reduce \"loss\" at test_arrivals.cpp:");
  CHECK_THAT(text, Catch::Contains("behind the first device:"));
  const auto late = test::line_of(results[0].text, "  process 1, device 0: ");
  CHECK(std::stod(late) > 5000);
  CHECK_THAT(late, Catch::Contains("the last in 100 % of 5 times"));
  CHECK(results[1].text == "done");
}

}  // namespace test_arrivals
