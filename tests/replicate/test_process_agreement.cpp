// SPDX-License-Identifier: Apache-2.0
// Programs whose processes differ: in their number of steps. All
// processes are told who, what and where.
#include <catch2/catch.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_process_agreement {

using namespace replicator;
using namespace replicator::detail;
using test::on_devices;

#if __has_include(<replicator/with/ucx.hpp>)
constexpr bool built_with_ucx = true;
#else
constexpr bool built_with_ucx = false;
#endif

namespace {

// body(repl) in each process of a job of `count`, with one replica each. Errors end a process with exit code 1.
template <class Body>
std::vector<test::ProcessResult> run_job(int count, Body body, const std::string& transport = "auto", std::uint64_t check_drift = 0) {
  return test::run_as_job(
      count,
      [&](int) {
        auto deployment = on_devices(count, 1);
        if (transport != "auto") deployment.transport = transport;
        deployment.see.check_drift = check_drift;
        Replicator repl{deployment};
        return std::string{body(repl)};
      },
      std::chrono::seconds{60});
}

auto ones(const InputContext&) {
  return data::from_generator([](std::int64_t) { return Array<float>{{3}, {1, 1, 1}}; });
}
auto train_step(ReplicaContext& replica, Tensor<float> x) {
  auto w = replica.variable<float>("w", {3}, Initializer::constant(1));
  auto own = replica.variable<float>("own", {3}, Initializer::constant(0), {VariableKind::replica_local});
  own.assign(own.read() + x);
  w.assign(w.read() - all_reduce(x, Reduction::mean) * 0.5f);
  return all_reduce(x, Reduction::sum);
}

// From the error on, without what stderr was told before.
std::string error_in(const std::string& text) {
  const auto at = text.find("error: ");
  return at == std::string::npos ? "no error" : text.substr(at + 7);
}
// Without process ids.
std::string plain(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, 6, " (pid ") == 0) at = text.find(')', at) + 1;
    else result += text[at++];
  }
  return result;
}
std::string at(int line) { return "test_process_agreement.cpp:" + std::to_string(line); }

}  // namespace

// --- the number of steps ----------------------------------------------------------------------------------------------

TEST_CASE("when a process makes fewer steps, the others fail at once, with both steps and their line") {
  const std::size_t early = GENERATE(std::size_t{0}, std::size_t{2});
  const std::string transport = GENERATE("shared_memory", "ucx");
  if (transport == "ucx" && !built_with_ucx) return;
  const int line = __LINE__ + 5;
  const auto results = run_job(
      3, [&](Replicator& repl) {
        auto train = repl.replicate(ones, train_step);
        const std::uint64_t steps = repl.process() == static_cast<int>(early) ? 2 : 3;
        while (train.steps_done() < steps) train.step();
        return "done";
      },
      transport);
  INFO(transport << "\n"
                 << test::describe(results));
  const auto first = "process " + std::to_string(early) + " ended after step 1 at " + at(line) + "; process ";
  const auto last = " asked for step 2 at " + at(line) +
                    ": all processes must make the same number of steps, so stop by a condition that all of them share";
  for (std::size_t process = 0; process < results.size(); ++process) {
    const auto& result = results[process];
    CHECK_THAT(plain(result.text), Catch::Contains(first) && Catch::Contains(last));
    CHECK(result.seconds < 30);  // and not --deadline
    CHECK(result.exit_code == (process == early ? 0 : 1));
  }
  CHECK_THAT(results[early].text, Catch::Contains(" had finished when the job failed: process "));
}

TEST_CASE("a process that makes no step at all is named too") {
  const auto results = run_job(2, [](Replicator& repl) {
    auto train = repl.replicate(ones, train_step);
    if (repl.process() == 1) return "done";
    for (auto step : train.steps(5)) (void)step;
    return "done";
  });
  INFO(test::describe(results));
  CHECK_THAT(plain(error_in(results[0].text)), Catch::StartsWith("process 1 ended before its first step; process 0 asked for step 0 at " + at(__LINE__ - 4)));
}

TEST_CASE("when a process asks for something else than a step, both calls are named at once") {
  const int other = GENERATE(0, 1);
  const int line = __LINE__ + 4;
  const auto results = run_job(2, [&](Replicator& repl) {
    auto train = repl.replicate(ones, train_step);
    for (int i = 0; i < 2; ++i) {
      train.step();
      if (repl.process() == other) repl.digest();
    }
    return "done";
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK_THAT(plain(error_in(result.text)),
               Catch::StartsWith("process " + std::to_string(other) + " asks for the exchange \"the exchange of replica-local variables\" after step 0 at " +
                                 at(line) + "; process " + std::to_string(1 - other) + " asked for step 1 at " + at(line) +
                                 ": all processes must make the same calls in the same order, and stop by a condition that all of them share"));
    CHECK(result.seconds < 30);
  }
}

}  // namespace test_process_agreement
