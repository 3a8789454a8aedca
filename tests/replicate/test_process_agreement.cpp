// SPDX-License-Identifier: Apache-2.0
// Programs whose processes differ: in their number of steps, in what they set, and in their step functions. All
// processes are told who, what and where.
#include <catch2/catch.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_process_agreement {

using namespace replicator;
using namespace replicator::detail;
using test::built_with_ucx;
using test::on_devices;

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
Array<float> filled(float value) { return {{3}, {value, value, value}}; }

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
void check_same_error(const std::vector<test::ProcessResult>& results, const std::string& expected) {
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(plain(error_in(result.text)) == expected);
    CHECK(result.exit_code == 1);
    CHECK_FALSE(result.timed_out);
  }
}
std::string at(int line) { return "test_process_agreement.cpp:" + std::to_string(line); }

}  // namespace

// --- flags -------------------------------------------------------------------------------------------------------------

TEST_CASE("an elastic flag that only some processes have is named on all of them") {
  for (const int elastic : {0, 1}) {
    const auto results = test::run_as_job(2, [elastic](int rank) {
      auto deployment = on_devices(2, 1);
      deployment.elastic = rank == elastic;
      Replicator repl{deployment};
      return std::string{"made"};
    });
    const auto has = [elastic](int process) { return std::string{process == elastic ? "has the flag" : "has no such flag"}; };
    check_same_error(results, "the processes of this job differ in --elastic: process 1 " + has(1) + ", process 0 " + has(0) +
                                  ": start the same program with the same arguments on every host");
  }
  const TemporaryFolder folder;
  const auto results = test::run_as_job(2, [&folder](int rank) {
    auto deployment = on_devices(2, 1);
    deployment.elastic = true;
    if (rank == 1) deployment.elastic_arbiter = folder.path();
    Replicator repl{deployment};
    return std::string{"made"};
  });
  check_same_error(results,
                   "the processes of this job differ in --elastic-arbiter: process 1 has the flag, process 0 has no such flag: "
                   "start the same program with the same arguments on every host");
}

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
               Catch::StartsWith("process " + std::to_string(other) + " asks for the exchange \"digest()\" after step 0 at " +
                                 at(line) + "; process " + std::to_string(1 - other) + " asked for step 1 at " + at(line) +
                                 ": all processes must make the same calls in the same order, and stop by a condition that all of them share"));
    CHECK(result.seconds < 30);
  }
}

// --- what the program sets ----------------------------------------------------------------------------------------------

const std::string set_alike = ": all processes must set the same value, so call set() on each of them with equal bits, or load_weights() with the same file";

TEST_CASE("a variable that one process sets is refused by all in the next step, with its line, and before a check for drift") {
  const int who = GENERATE(0, 1);
  const std::uint64_t check_drift = GENERATE(std::uint64_t{0}, std::uint64_t{1});
  const int line = __LINE__ + 5;
  const auto results = run_job(
      2, [&](Replicator& repl) {
        auto train = repl.replicate(ones, train_step);
        train.step();
        if (repl.process() == who) repl.set("w", filled(5).any());
        train.step();
        return "done";
      },
      "auto", check_drift);
  const std::string sets = " has set it at " + at(line), lacks = " has not set it";
  check_same_error(results, "the processes of this job differ in the mirrored variable \"w\", which the program sets before step 1: process 1" +
                                (who == 1 ? sets : lacks) + ", process 0" + (who == 0 ? sets : lacks) + set_alike);
}

TEST_CASE("a variable that processes set to different values is refused by all, with both lines") {
  const int line = __LINE__ + 4;
  const auto results = run_job(2, [](Replicator& repl) {
    auto train = repl.replicate(ones, train_step);
    if (repl.process() == 0)
      repl.set("w", filled(0.0f).any());
    else
      repl.set("w", filled(-0.0f).any());
    train.step();
    return "done";
  });
  check_same_error(results, "the processes of this job differ in the mirrored variable \"w\", which the program sets before step 0: process 1 has set it at " +
                                at(line + 2) + ", process 0 has set it to another value at " + at(line) + set_alike);
}

TEST_CASE("values that all processes set alike pass, whatever line, order or value before") {
  const auto results = run_job(2, [](Replicator& repl) {
    auto train = repl.replicate(ones, [](ReplicaContext& replica, Tensor<float> x) {
      replica.variable<float>("v", {3}, Initializer::constant(1)).read();
      return train_step(replica, x);
    });
    for (int i = 0; i < 2; ++i) {
      if (repl.process() == 0) {
        repl.set("w", filled(9).any());
        repl.set("w", filled(5).any());
        repl.set("v", filled(6).any());
      } else {
        repl.set("v", filled(6).any());
        repl.set("w", filled(5).any());
      }
      train.step();
    }
    train.step();  // nothing is set, so nothing of the last step counts
    return repl.digest();
  });
  INFO(test::describe(results));
  CHECK(results[0].text.size() == 64);
  CHECK(results[1].text == results[0].text);
}

TEST_CASE("replica-local variables may be set on one process") {
  const auto results = run_job(2, [](Replicator& repl) {
    auto train = repl.replicate(ones, train_step);
    if (repl.process() == 1) repl.set("own", filled(7).any());
    train.step();
    return repl.digest() + " " + std::to_string(repl.value("own").as<float>()[0]);
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::EndsWith(" 1.000000"));
  CHECK_THAT(results[1].text, Catch::EndsWith(" 8.000000"));
}

TEST_CASE("without a further step, digest() and replicate() find what one process has set") {
  const bool replicates = GENERATE(false, true);
  const int line = __LINE__ + 3;
  const auto results = run_job(2, [&](Replicator& repl) {
    auto train = repl.replicate(ones, train_step);
    if (repl.process() == 1) repl.set("w", filled(5).any());
    if (replicates) repl.replicate(ones, train_step);
    else repl.digest();
    return "done";
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 1);
    CHECK_THAT(plain(error_in(result.text)), replicates ? Catch::Contains("differ in the variable \"w\": process 1 has set at " + at(line) + " with float32[3] ")
                                                        : Catch::Contains("which the program sets before digest(): process 1 has set it at " + at(line)));
  }
}

// --- the step function --------------------------------------------------------------------------------------------------

TEST_CASE("step functions with different constants are refused by all, with both values and lines") {
  const int line = __LINE__ + 5;
  const auto results = run_job(2, [&](Replicator& repl) {
    repl.replicate(ones, [&](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {3}, Initializer::constant(1));
      const float rate = repl.process() == 1 ? 0.2f : 0.1f;
      const auto change = all_reduce(x * static_cast<float>(replica.id()), Reduction::mean) * rate;
      w.assign(w.read() - change);
    });
    return "done";
  });
  check_same_error(results, "the step functions of process 0 and process 1 differ: map (mul(x0, 0.1)) at " + at(line) + " on process 0, map (mul(x0, 0.2)) at " +
                                at(line) + " on process 1, so the mirrored variable \"w\" would be given different values at " + at(line + 1) +
                                ": every process must build the same step, so let nothing that is assigned depend on the process or the replica");
}

TEST_CASE("a step function without an all_reduce on one process is refused by all, with what the others have") {
  const int line = __LINE__ + 6;
  const auto results = run_job(2, [&](Replicator& repl) {
    repl.replicate(ones, [&](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {3}, Initializer::constant(1));
      auto v = replica.variable<float>("v", {3}, Initializer::constant(1), {VariableKind::replica_local});
      v.assign(all_reduce(x, Reduction::mean));
      w.assign(repl.process() == 1 ? x : v.read());
    });
    return "done";
  });
  check_same_error(results, "the step functions of process 0 and process 1 differ: all_reduce (mean) at " + at(line - 1) +
                                " on process 0, input \"input0\" on process 1, so the mirrored variable \"w\" would be given different values at " + at(line) +
                                ": every process must build the same step, so let nothing that is assigned depend on the process or the replica");
}

TEST_CASE("step functions with another layer on one process are refused by all, with the first node that differs") {
  const int line = __LINE__ + 5;
  const auto results = run_job(2, [&](Replicator& repl) {
    repl.replicate(ones, [&](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {3}, Initializer::constant(1));
      if (repl.process() == 1) {
        auto more = replica.variable<float>("more", {3}, Initializer::constant(1));
        more.assign(more.read() - all_reduce(x, Reduction::mean, {.label = "more"}));
      }
      w.assign(w.read() - all_reduce(x, Reduction::mean, {.label = "w"}));
    });
    return "done";
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 1);
    CHECK(result.text == results[0].text);
    CHECK_THAT(plain(error_in(result.text)),
               Catch::Equals("the processes of this job differ in the number of collectives: process 1 has 2, process 0 has 1: their step functions differ first in "
                             "all_reduce \"w\" (mean) at " +
                             at(line + 3) + " on process 0, all_reduce \"more\" (mean) at " + at(line + 1) +
                             " on process 1: every process must build the same step, so let nothing in it depend on the process"));
  }
}

TEST_CASE("replicas may compute different things where nothing mirrored depends on it") {
  const auto results = run_job(2, [](Replicator& repl) {
    auto train = repl.replicate(ones, [](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {3}, Initializer::constant(1));
      w.assign(w.read() - all_reduce(x * static_cast<float>(replica.id() + 1), Reduction::mean) * 0.5f);
    });
    train.step();
    return std::to_string(repl.value("w").as<float>()[2]);
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "0.250000");
}

}  // namespace test_process_agreement
