// SPDX-License-Identifier: Apache-2.0
// Jobs of several processes: complete results on each, inputs that end, mistakes, and processes that are killed or
// stopped.
#include <catch2/catch.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/devices/kernel_library_text.hpp>
#include <replicator/engine/topology_file.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_processes {

using namespace replicator;
using namespace replicator::detail;
using test::built_with_ucx;
using test::on_devices;

namespace {

// body(repl) in each process of a job of `count`, with `devices` devices each.
template <class Body>
std::vector<test::ProcessResult> run_job(int count, int replicas, int devices, Body body) {
  return test::run_as_job(
      count,
      [&](int) {
        Replicator repl{on_devices(replicas, devices)};
        return body(repl);
      },
      std::chrono::seconds{40});
}

auto numbers(std::int64_t count) {
  return data::from_generator([count](std::int64_t i) -> std::optional<Array<float>> {
    if (i == count) return std::nullopt;
    return Array<float>{{}, {static_cast<float>(i)}};
  });
}

}  // namespace

TEST_CASE("small results are whole and equal on every process, large ones stay where they were made") {
  const auto results = run_job(3, 5, 1, [](Replicator& repl) {
    auto train = repl.replicate([](const InputContext&) { return numbers(3); },
                                [](ReplicaContext& replica, Tensor<float> x) {
                                  return std::tuple{x + static_cast<float>(replica.id()),
                                                    full<float>(replica, {2000}, static_cast<float>(replica.id())),
                                                    all_reduce(full<float>(replica, {2000}, 1), Reduction::sum)};
                                });
    train.step();
    const auto [small, large, total] = train.step();
    std::string text;
    for (const auto& value : small) text += std::to_string(static_cast<int>(value.item())) + " ";
    text += std::to_string(large.first()) + (large.whole() ? " whole" : " part") + " " +
            std::to_string(static_cast<int>(large[large.first()][1999]));
    return text + " " + std::to_string(static_cast<int>(total[4][1999])) + (total.whole() ? " whole" : " part");
  });
  INFO(test::describe(results));
  CHECK(results[0].text == "1 2 3 4 5 0 part 0 5 whole");
  CHECK(results[1].text == "1 2 3 4 5 2 part 2 5 whole");
  CHECK(results[2].text == "1 2 3 4 5 4 part 4 5 whole");
}

TEST_CASE("all processes stop after the same step when one replica's input ends") {
  const auto results = run_job(2, 4, 2, [](Replicator& repl) {
    auto train = repl.replicate([](const InputContext& ctx) { return numbers(ctx.replica() == 3 ? 2 : 9); },
                                [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::max); });
    while (!train.finished()) train.step();
    return std::to_string(train.steps_done());
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "2");
}

TEST_CASE("processes whose replicas ask for different shapes are told which, before anything moves") {
  const auto results = run_job(2, 2, 1, [](Replicator& repl) {
    repl.replicate([](const InputContext&) { return numbers(2); },
                   [](ReplicaContext& replica, Tensor<float>) {
                     return all_reduce(full<float>(replica, {2 + replica.id()}, 1), Reduction::sum, {false, "loss"});
                   });
    return std::string{"no error"};
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK_THAT(result.text, Catch::Contains("the processes of this job differ in collective 0: process 1 (pid ") &&
                                Catch::Contains(") has all_reduce \"loss\" at test_processes.cpp:"));
    CHECK_THAT(result.text, Catch::Contains("float32[3]") && Catch::Contains("float32[2]") && Catch::EndsWith("so let nothing in it depend on the process"));
  }
}

TEST_CASE("processes of which one alone writes a plan or a timeline are told so, and none waits") {
  const auto asked = [](auto ask) {
    return test::run_as_job(
        2,
        [&](int rank) {
          Deployment deployment = on_devices(2, 1);
          if (rank == 1) ask(deployment.see);
          const Replicator repl{deployment};
          return std::string{"no error"};
        },
        std::chrono::seconds{40});
  };
  for (const auto& result : asked([](SeeOptions& see) { see.plan = "plan.json"; }))
    CHECK_THAT(result.text, Catch::Contains("differ in --trace, --plan and --skew: process 1 (pid ") && Catch::Contains(") has --plan, process 0 (pid ") &&
                                Catch::Contains(") has none of them"));
  for (const auto& result : asked([](SeeOptions& see) { see.trace = "trace.json", see.skew = true; }))
    CHECK_THAT(result.text, Catch::Contains("differ in --trace, --plan and --skew: process 1 (pid ") && Catch::Contains(") has --trace --skew, process 0 (pid ") &&
                                Catch::Contains(") has none of them"));
}

TEST_CASE("processes with different libraries of kernels are told both, and whose they are, before the first step") {
  const auto results = test::run_as_job(
      2,
      [](int rank) {
        if (rank == 1) kernel_library_slot[static_cast<std::size_t>(DeviceKind::cpu)].store([] { return std::string{"oneDNN 1.0 for an abacus"}; });
        const Replicator repl{on_devices(2, 1)};
        return std::string{"no error"};
      },
      std::chrono::seconds{40});
  INFO(test::describe(results));
  for (const auto& result : results)
    CHECK_THAT(result.text, Catch::Contains("the processes of this job differ in the library of kernels: process 1 (pid ") &&
                                Catch::Contains(") has oneDNN 1.0 for an abacus, process 0 (pid ") && Catch::Contains(": give all hosts of a job the same"));
}

TEST_CASE("processes that allow the libraries of GPUs other arithmetic are told both before the first step") {
  const auto results = test::run_as_job(
      2,
      [](int rank) {
        auto deployment = on_devices(2, 1);
        deployment.kernel_choice.tf32 = rank == 1;
        const Replicator repl{deployment};
        return std::string{"no error"};
      },
      std::chrono::seconds{40});
  INFO(test::describe(results));
  for (const auto& result : results)
    CHECK_THAT(result.text, Catch::Contains("differ in --winograd, --tf32, --fastest-kernels, --row-major-images and --fuse-convolutions: process 1 (pid ") &&
                                Catch::Contains(") has --tf32, process 0 (pid ") && Catch::Contains(") has none of them"));
}

TEST_CASE("processes whose replicas make the inputs of collectives in another order merge them alike") {
  const auto results = run_job(2, 2, 1, [](Replicator& repl) {
    auto train = repl.replicate([](const InputContext&) { return numbers(2); }, [](ReplicaContext& replica, Tensor<float> x) {
      const bool turned = replica.id() == 1;
      const Tensor<float> first = turned ? x + 10.0f : x - 5.0f, second = turned ? x - 5.0f : x + 10.0f;
      const Tensor<float> lower = turned ? second : first, upper = turned ? first : second;
      return std::tuple{all_reduce(lower, Reduction::sum, {.label = "lower"}), all_reduce(upper, Reduction::sum, {.label = "upper"})}; });
    const auto [lower, upper] = train.step();
    return std::to_string(lower[0][0]) + " " + std::to_string(upper[0][0]);
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "-10.000000 20.000000");
}

TEST_CASE("a replica-local variable that begins differently in another process is refused") {
  const auto results = run_job(2, 2, 1, [](Replicator& repl) {
    repl.replicate([](const InputContext&) { return numbers(2); },
                   [](ReplicaContext& replica, Tensor<float>) {
                     replica.variable<float>("s", {}, Initializer::constant(replica.id()),
                                             {VariableKind::replica_local});
                   });
    return std::string{"no error"};
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::Contains("differ in the variable \"s\""));
}

TEST_CASE("a mirrored variable that the replicas of one process assign is refused by every process") {
  const auto results = run_job(2, 2, 1, [](Replicator& repl) {
    repl.replicate([](const InputContext&) { return numbers(2); },
                   [](ReplicaContext& replica, Tensor<float> x) {
                     auto w = replica.variable<float>("w", {}, Initializer::zeros());
                     const auto g = all_reduce(x, Reduction::sum);
                     if (replica.id() == 1) w.assign(g);
                   });
    return std::string{"no error"};
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.text, Catch::Contains("\"w\" is mirrored, but replica 1 assigns it at test_processes.cpp:") &&
                                Catch::Contains(", in process 1 (pid ") && Catch::Contains("and replica 0 does not, in process 0 (pid "));
  }
}

TEST_CASE("when a process is killed or stopped, the others name it, the collective, its line and the bytes that had moved, and end within 10 s") {
  const std::string transport = GENERATE("shared_memory", "ucx");
  if (transport == "ucx" && !built_with_ucx) return;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const auto results = test::run_as_job(
        3, [&](int) {
          auto deployment = on_devices(3, 1);
          deployment.transport = transport;
          Replicator repl{deployment};
          auto train = repl.replicate(
              [signal](const InputContext& ctx) {
                return data::from_generator([signal, replica = ctx.replica()](std::int64_t i) {
                  if (i == 5 && replica == 1) ::raise(signal);
                  return Array<float>{{}, {1}};
                });
              },
              [](ReplicaContext&, Tensor<float> x) {
                return all_reduce(x, Reduction::sum, {false, "loss"});
              });
          for (auto step : train.steps(100)) (void)step;
          return std::string{"no error"};
        },
        std::chrono::seconds{40});
    INFO(transport << "\n"
                   << test::describe(results));
    for (const int survivor : {0, 2}) {
      const auto& result = results[static_cast<std::size_t>(survivor)];
      CHECK(result.exit_code == 1);
      CHECK_FALSE(result.timed_out);
      CHECK(result.seconds < 10);
      const auto error = result.text.substr(std::min(result.text.find("error: "), result.text.size()));  // behind what stderr was told
      CHECK_THAT(error, Catch::Contains("process 1") && Catch::Contains("\ncpu:0 of process " + std::to_string(survivor)) &&
                            Catch::Contains("all_reduce \"loss\" at test_processes.cpp:") && Catch::Contains(" bytes have moved), that is for replica 1 "));
    }
  }
}

TEST_CASE("more processes than replicas are refused by the first of them, alone") {
  const auto results = test::run_processes(1, [](int) {
    test::set_environment(0, 3, test::free_port());
    return test::error_of([] { Replicator repl{on_devices(2, 1)}; });
  });
  CHECK(results[0].text ==
        "the job has 3 processes, but there are only 2 replica(s), and every process needs one: raise --replicas or start fewer processes");
  CHECK(results[0].seconds < 10);
}

TEST_CASE("an elastic job in the asynchronous regime is refused by each process, alone") {
  const auto results = test::run_processes(1, [](int) {
    test::set_environment(1, 2, test::free_port());
    auto deployment = on_devices(4, 2);
    deployment.regime = Regime::asynchronous;
    deployment.elastic = true;
    return test::error_of([&] { Replicator repl{deployment}; });
  });
  CHECK(results[0].text ==
        "--regime async cannot be combined with --elastic, which needs all replicas at the same step: leave it out, or run with --regime sync");
  CHECK(results[0].seconds < 10);
}

TEST_CASE("a process that has finished when another one dies says so, and keeps its own exit code") {
  const auto results = run_job(2, 2, 1, [](Replicator& repl) {
    auto train = repl.replicate([](const InputContext&) { return numbers(2); }, [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); });
    train.step();
    if (repl.process() == 1) ::_exit(3);
    return std::string{"finished"};
  });
  INFO(test::describe(results));
  CHECK(results[1].exit_code == 3);
  CHECK(results[0].exit_code == 0);
  CHECK_THAT(results[0].text, Catch::Contains("replicator: process 0 (pid ") && Catch::Contains(" had finished when the job failed: process 1 (pid ") &&
                                  Catch::EndsWith("finished"));
}

TEST_CASE("when the input of one process fails, the others are told and end") {
  const auto results = run_job(2, 2, 1, [](Replicator& repl) {
    auto train = repl.replicate(
        [](const InputContext& ctx) {
          return data::from_generator([replica = ctx.replica()](std::int64_t i) {
            if (i == 3 && replica == 1) throw DataError{"photos/7.jpg is truncated"};
            return Array<float>{{}, {1}};
          });
        },
        [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); });
    for (auto step : train.steps(100)) (void)step;
    return std::string{"no error"};
  });
  INFO(test::describe(results));
  CHECK_THAT(results[1].text, Catch::StartsWith("error: photos/7.jpg is truncated (element 3 of the input of replica 1, given to replicate at test_processes.cpp:"));
  CHECK(results[0].exit_code == 1);
  CHECK(results[0].seconds < 10);
  CHECK_THAT(results[0].text, Catch::Contains("process 1"));
}

TEST_CASE("when a step function throws in one process, which catches it and lives on, the others are told and end") {
  const auto results = run_job(2, 2, 1, [](Replicator& repl) {
    try {
      repl.replicate([](const InputContext&) { return numbers(9); },
                     [](ReplicaContext& replica, Tensor<float> x) {
                       if (replica.id() == 1) throw BuildError{"I do not like this"};
                       return all_reduce(x, Reduction::sum);
                     });
    } catch (const BuildError& error) {
      std::this_thread::sleep_for(std::chrono::seconds{5});
      return std::string{error.what()};
    }
    return std::string{"no error"};
  });
  INFO(test::describe(results));
  CHECK_THAT(results[1].text, Catch::StartsWith("I do not like this (in the step_fn given to replicate at test_processes.cpp:"));
  CHECK(results[0].exit_code == 1);
  CHECK(results[0].seconds < 4);
  CHECK_THAT(results[0].text, Catch::Contains("process 1") && Catch::Contains("I do not like this"));
}

namespace {

auto one_number() {
  return [](const InputContext&) { return numbers(9); };
}
// Adds the sum of all replicas' numbers to "total", tries an invalid step, and continues. Returns the error message and
// the digest.
template <class Mistake>
std::string goes_on_after(Replicator& repl, Mistake mistake) {
  auto train = repl.replicate(one_number(), [](ReplicaContext& replica, Tensor<float> x) {
    auto total = replica.variable<float>("total", {}, Initializer::zeros());
    total.assign(total.read() + all_reduce(x + 1.0f, Reduction::sum));
  });
  train.step();
  const auto told = test::error_of([&] { mistake(repl); });
  train.step();
  repl.replicate(one_number(), [](ReplicaContext& replica, Tensor<float>) { replica.variable<float>("later", {}, Initializer::ones()); });
  return told + "\n" + std::to_string(static_cast<int>(repl.value("total").template as<float>()[0])) + " " + repl.digest();
}
void assign_what_varies(Replicator& repl) {
  repl.replicate(one_number(), [](ReplicaContext& replica, Tensor<float> x) { replica.variable<float>("total", {}, Initializer::zeros()).assign(x); });
}
void throw_while_tracing(Replicator& repl) {
  repl.replicate(one_number(), [](ReplicaContext&, Tensor<float> x) {
    if (x.shape().rank() == 0) throw BuildError{"I do not like scalars"};
    return x;
  });
}
void open_no_input(Replicator& repl) {
  repl.replicate([](const InputContext&) -> decltype(numbers(1)) { throw DataError{"no photographs in photos/"}; },
                 [](ReplicaContext&, Tensor<float> x) { return x; });
}
void give_no_element(Replicator& repl) {
  repl.replicate([](const InputContext&) { return numbers(0); }, [](ReplicaContext&, Tensor<float> x) { return x; });
}

}  // namespace

TEST_CASE("an error that all processes find while a step is made ends that call alone, in an elastic job too") {
  const auto mistake = GENERATE(&assign_what_varies, &throw_while_tracing, &open_no_input, &give_no_element);
  const std::string regime = GENERATE("sync", "elastic");
  const auto deployment = [&](int devices) {
    auto result = on_devices(4, devices);
    result.elastic = regime == "elastic";
    return result;
  };
  const auto results = test::run_as_job(
      2,
      [&](int) {
        Replicator repl{deployment(1)};
        return goes_on_after(repl, mistake);
      },
      std::chrono::seconds{40});
  INFO(regime << "\n"
              << test::describe(results));
  for (const auto& result : results) CHECK(result.exit_code == 0);
  const auto behind_error = [](const std::string& text) { return text.substr(text.find('\n')); };
  Replicator alone{deployment(1)};
  const auto expected = goes_on_after(alone, mistake);
  for (const auto& result : results) CHECK(behind_error(result.text) == behind_error(expected));
  CHECK(results[0].text == expected);
}

TEST_CASE("a process whose input_fn throws tells the others why, and they end") {
  const auto results = run_job(2, 2, 1, [](Replicator& repl) {
    repl.replicate(
        [](const InputContext& ctx) {
          if (ctx.replica() == 1) throw DataError{"no photographs in photos/"};
          return numbers(9);
        },
        [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); });
    return std::string{"no error"};
  });
  INFO(test::describe(results));
  CHECK_THAT(results[1].text, Catch::StartsWith("error: no photographs in photos/ (in the input_fn given to replicate at test_processes.cpp:"));
  CHECK(results[0].exit_code == 1);
  CHECK_THAT(results[0].text, Catch::Contains("process 1 (pid ") && Catch::Contains(" failed: no photographs in photos/"));
}

TEST_CASE("between slow processes a pinned topology takes the hierarchical all-reduce, with the same bits") {
  const auto path = (std::filesystem::temp_directory_path() / "replicator_pinned_topology.json").string();
  write_topology(path, R"({"format":"replicator topology 1","dimensions":[{"size":4,"microseconds":1,"bytes_per_microsecond":20000},)"
                       R"({"size":2,"microseconds":20,"bytes_per_microsecond":100}],"reduced_bytes_per_microsecond":10000})");
  const auto trained = [](const Deployment& deployment) {
    Replicator repl{deployment};
    auto train = repl.replicate([](const InputContext& ctx) { return numbers(ctx.replica() + 2); },
                                [](ReplicaContext& replica, Tensor<float> x) {
                                  auto w = replica.variable<float>("w", {50000}, Initializer::constant(0.3));
                                  const auto mine = full<float>(replica, {50000}, 0.1f) * (x + static_cast<float>(replica.id()));
                                  w.assign(w.read() + all_reduce(mine, Reduction::mean));
                                  return x;
                                });
    train.step();
    train.step();
    const bool hierarchical = train.explain().find("200000 B; hierarchical: 200000 B on 4x2 ranks, ") != std::string::npos;
    return repl.digest() + (hierarchical ? " hierarchical" : "");
  };
  const auto results = test::run_as_job(
      2,
      [&](int) {
        auto deployment = on_devices(8, 4);
        deployment.topology = path;
        return trained(deployment);
      },
      std::chrono::seconds{40});
  INFO(test::describe(results));
  std::filesystem::remove(path);
  const auto alone = trained(on_devices(8, 1));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::EndsWith(alone + " hierarchical"));  // behind what process 0 says of the time
}

}  // namespace test_processes
