// SPDX-License-Identifier: Apache-2.0
// Elements with changing shapes, at any time and place. All processes compile together or not at all.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/data/batch.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/engine/kept_steps.hpp>
#include <replicator/engine/shape_numbers.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/movement/broadcast_to.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/memory_in_use.hpp"
#include "../support/programs.hpp"
#include "deployments.hpp"
#include "run_random.hpp"

namespace test_shapes {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;

namespace {

// sizes[step][replica]: how many numbers the element has.
using Sizes = std::vector<std::vector<std::int64_t>>;

auto elements(const Sizes& sizes) {
  return [sizes](const InputContext& ctx) {
    return data::from_generator([sizes, ctx](std::int64_t i) -> std::optional<Array<float>> {
      const auto step = static_cast<std::size_t>(i);
      if (step == sizes.size()) return std::nullopt;
      PhiloxStream random{ctx.seed(), step, static_cast<std::uint32_t>(ctx.replica())};
      Array<float> x{{sizes[step][static_cast<std::size_t>(ctx.replica())]}};
      for (auto& value : x) value = random.uniform();
      return x;
    });
  };
}

auto train_step(ReplicaContext& replica, Tensor<float> x) {
  auto w = replica.variable<float>("w", {}, Initializer::constant(0.5));
  auto own = replica.variable<float>("own", {}, Initializer::zeros(), {VariableKind::replica_local});
  const Tensor<float> y = (x + normal<float>(replica, x.shape())) * w.read() + own.read();
  own.assign(own.read() * 0.5f + mean(y));
  const auto total = all_reduce(sum(y), Reduction::sum);
  w.assign(w.read() - all_reduce(mean(y), Reduction::mean) * 0.1f);
  return std::tuple{total, mean(y)};
}

// The bits of the variables at the end and of all results on the way; then how many steps there were.
std::string trained(const Deployment& where, const Sizes& sizes) {
  Replicator repl{where};
  auto train = repl.replicate(elements(sizes), train_step);
  std::string outputs;
  for (const auto& results : train.steps(1000)) test::append_bytes(outputs, results);
  Hasher hasher;
  hasher.text(outputs);
  return repl.digest() + " " + hasher.result().text() + " " + std::to_string(train.steps_done());
}

Deployment hasty(Deployment where) {
  where.deadline = std::chrono::seconds{20};
  return where;
}
// body(repl) in each process of a job.
template <class Body>
std::vector<test::ProcessResult> run_job(int count, const Deployment& where, Body body) {
  return test::run_as_job(
      count, [&](int) { return body(hasty(where)); }, std::chrono::seconds{40});
}

void require_same_on_all_placements(const Sizes& sizes, int replicas, const std::vector<std::pair<int, int>>& processes_and_devices) {
  const auto alone = trained(on_devices(replicas, 1), sizes);
  for (const auto& [processes, devices] : processes_and_devices) {
    const auto results = run_job(processes, on_devices(replicas, devices), [&](const Deployment& where) { return trained(where, sizes); });
    INFO(test::describe(results));
    for (const auto& result : results) CHECK(result.text == alone);
  }
}

}  // namespace

TEST_CASE("shapes that change on one process only, and change back, give the bits of one process") {
  require_same_on_all_placements({{4, 4}, {4, 4}, {4, 2}, {4, 2}, {4, 4}, {3, 4}, {4, 2}, {2, 3}}, 2, {{1, 2}, {2, 1}});
  require_same_on_all_placements({{4, 4, 4, 4, 4}, {4, 4, 4, 1, 4}, {5, 4, 4, 1, 4}, {4, 4, 4, 4, 4}, {4, 4, 4, 4, 5}}, 5, {{1, 3}, {2, 2}, {3, 1}});
}

TEST_CASE("the first elements may have shapes of their own on each process") {
  require_same_on_all_placements({{4, 2, 3}, {4, 4, 4}, {4, 2, 3}, {2, 2, 2}}, 3, {{2, 1}, {3, 1}});
}

TEST_CASE("any sequences of shapes of any replicas, in steps by turns, give the bits of one process") {
  struct Case {
    int replicas, processes, devices;
  };
  for (const auto& [replicas, processes, devices] : {Case{2, 2, 1}, Case{4, 3, 1}, Case{5, 2, 2}, Case{7, 3, 2}}) {
    const auto run = [replicas = replicas](const Deployment& where) {
      Replicator repl{where};
      PhiloxStream random{99, static_cast<std::uint64_t>(replicas)};
      const auto below = [&](std::uint32_t end) { return random.next() % end; };
      std::string outputs;
      for (int sequence = 0; sequence < 12; ++sequence) {
        const auto kinds = 1 + below(3);
        const auto drawn = [&] {
          Sizes sizes(2 + below(8), std::vector<std::int64_t>(static_cast<std::size_t>(replicas)));
          for (auto& step : sizes)
            for (auto& size : step) size = 1 + below(kinds);
          return sizes;
        };
        auto one = repl.replicate(elements(drawn()), train_step), other = repl.replicate(elements(drawn()), train_step);
        while (!one.finished() || !other.finished()) {
          if (!one.finished()) test::append_bytes(outputs, one.step());
          if (!other.finished()) test::append_bytes(outputs, other.step());
        }
      }
      Hasher hasher;
      hasher.text(outputs);
      return repl.digest() + " " + hasher.result().text();
    };
    const auto alone = run(on_devices(replicas, 1));
    const auto results = run_job(processes, on_devices(replicas, devices), run);
    INFO(test::describe(results));
    for (const auto& result : results) CHECK(result.text == alone);
  }
}

TEST_CASE("uneven last batches are kept over processes, in any order of epochs") {
  const auto run = [](const Deployment& where) {
    Replicator repl{where};
    // Replica 0: batches of 4, 4, 4; replica 1: of 4, 4, 2.
    auto train = repl.replicate(
        [](const InputContext& ctx) {
          return data::from_generator([limit = ctx.replica() == 0 ? 12 : 10](std::int64_t i) -> std::optional<Array<float>> {
                   if (i == limit) return std::nullopt;
                   return Array<float>{{}, {static_cast<float>(i)}};
                 }) |
                 data::batch(4, {.last = data::Last::keep});
        },
        train_step);
    std::string text;
    for (const auto& [total, own] : train.steps(100)) text += std::to_string(total[0].item()) + " " + std::to_string(own[1].item()) + " ";
    return text + std::to_string(train.steps_done());
  };
  const auto alone = run(on_devices(2, 1));
  CHECK(alone.substr(alone.size() - 2) == " 3");
  const auto results = run_job(2, on_devices(2, 1), run);
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == alone);
}

TEST_CASE("elements dealt by a reader of each process may change their shapes, with the drift of variables checked") {
  const auto run = [](const Deployment& where) {
    Replicator repl{where};
    auto train = repl.replicate(
        [](const HostContext& ctx) {
          return data::from_generator([ctx](std::int64_t i) -> std::optional<Array<float>> {
            if (i == 12) return std::nullopt;
            Array<float> x{{ctx.process() == 1 && i % 3 == 1 ? 5 : 2}};
            for (auto& value : x) value = 1;
            return x;
          });
        },
        [](ReplicaContext& replica, Tensor<float> x) {
          auto w = replica.variable<float>("w", {}, Initializer::zeros());
          w.assign(w.read() + all_reduce(sum(x), Reduction::sum));
          return w.read();
        });
    for (const auto& results : train.steps(100)) (void)results;
    return std::to_string(train.steps_done()) + " " + std::to_string(repl.value("w").as<float>()[0]);
  };
  for (const int devices : {1, 2}) {
    auto where = on_devices(4, devices);
    where.see.check_drift = 1;
    const auto results = run_job(2, where, run);
    INFO(test::describe(results));
    for (const auto& result : results) CHECK(result.text == "6 60.000000");  // 6 * 2 * (2 + 2), and 4 of 5 rather than 2
  }
}

TEST_CASE("a run that is resumed among shapes that change ends with the same bits") {
  const Sizes sizes{{4, 4}, {4, 2}, {4, 2}, {4, 4}, {3, 4}, {4, 2}, {4, 4}};
  const auto run = [&](Deployment where, const std::string& folder, bool resume, std::int64_t steps) {
    where.checkpoint.folder = folder;
    where.checkpoint.resume = resume;
    Replicator repl{where};
    auto train = repl.replicate(elements(sizes), train_step);
    for (const auto& results : train.steps(steps)) (void)results;
    repl.save_checkpoint();
    return repl.digest() + " " + std::to_string(train.steps_done());
  };
  const TemporaryFolder whole;
  const auto alone = run(on_devices(2, 1), whole.path(), false, 100);
  for (const std::int64_t until : {1, 2, 4}) {
    const TemporaryFolder folder;
    run_job(2, on_devices(2, 1), [&](const Deployment& where) { return run(where, folder.path(), false, until); });
    const auto results = run_job(2, on_devices(2, 1), [&](const Deployment& where) { return run(where, folder.path(), true, 100); });
    INFO(test::describe(results));
    for (const auto& result : results) CHECK_THAT(result.text, Catch::EndsWith(alone));
  }
}

TEST_CASE("a recorded replica is replayed through changes of its own shapes and of others'") {
  const Sizes sizes{{4, 4}, {4, 2}, {3, 2}, {4, 4}, {3, 4}};
  const TemporaryFolder folder;
  const auto file = folder.path() + "/replica.recording";
  const auto results = run_job(2, on_devices(2, 1), [&](Deployment where) {
    where.see.record = RecordOptions{1, {0, 5}, file};
    return trained(where, sizes);
  });
  INFO(test::describe(results));
  REQUIRE(results[1].exit_code == 0);
  Deployment where;
  where.see.replay = file;
  int traced = 0;
  Replicator repl{where};
  auto train = repl.replicate(elements(sizes), [&](ReplicaContext& replica, Tensor<float> x) {
    ++traced;
    return train_step(replica, x);
  });
  CHECK(error_of([&] {
          for (const auto& step : train.steps(100)) (void)step;
        }) == "nothing");
  CHECK(train.steps_done() == 5);
  CHECK(traced == 2);
}

TEST_CASE("where new shapes reach a collective, every process gives the error of shapes that differ") {
  const auto run = [](const Deployment& where) {
    Replicator repl{where};
    auto train = repl.replicate(elements({{4, 4, 4}, {4, 4, 4}, {4, 4, 2}, {4, 4, 4}}),
                                [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum, {.label = "x"}); });
    train.step();
    train.step();
    const auto first = error_of([&] { train.step(); });
    return first + "; again: " + error_of([&] { train.step(); });
  };
  const auto results = run_job(3, on_devices(3, 1), run);
  INFO(test::describe(results));
  for (const auto& result : results) {
    const auto again = result.text.find("; again: ");
    REQUIRE(again != std::string::npos);
    const auto first = result.text.substr(0, again);
    CHECK_THAT(first, Catch::Contains("the processes of this job differ in collective 0: process 2 (pid ") &&
                          Catch::Contains("has all_reduce \"x\" at test_shapes.cpp:") && Catch::Contains("float32[2]") && Catch::Contains("float32[4]"));
    CHECK(result.text.substr(again + 9) == first);
  }
}

TEST_CASE("one process alone may ask for the programs of a step, whatever comes next") {
  const auto results = test::run_as_job(
      2,
      [](int rank) {
        Replicator repl{hasty(on_devices(2, 1))};
        auto train = repl.replicate(elements({{4, 4}, {4, 2}, {4, 4}}), train_step);
        for (int i = 0; i < 3; ++i) {
          train.step();
          if (rank == 1 && (train.explain().empty() || train.plan_json().empty() || train.resolved_dot().empty())) return std::string{"nothing told"};
        }
        return std::to_string(train.steps_done());
      },
      std::chrono::seconds{40});
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "3");
}

TEST_CASE("programs are kept for the latest 16 sets of shapes, on every process") {
  // 16 sizes twice over are compiled once each; 17 in a ring are compiled whenever they come.
  const auto ring = [](std::int64_t sizes) {
    Sizes result;
    for (std::int64_t i = 0; i < 2 * sizes; ++i) result.push_back({1, 1 + i % sizes});
    return result;
  };
  const auto run = [&](std::int64_t sizes) {
    return run_job(2, on_devices(2, 1), [&](const Deployment& where) {
      Replicator repl{where};
      int traced = 0;
      auto train = repl.replicate(elements(ring(sizes)), [&](ReplicaContext& replica, Tensor<float> x) {
        ++traced;
        return train_step(replica, x);
      });
      for (const auto& results : train.steps(1000)) (void)results;
      return std::to_string(train.steps_done()) + " steps, " + std::to_string(traced) + " traced, " + repl.digest();
    });
  };
  for (const auto& [sizes, counts] : {std::pair{16, "32 steps, 16 traced, "}, {17, "34 steps, 34 traced, "}}) {
    const auto results = run(sizes);
    INFO(test::describe(results));
    const auto alone = trained(on_devices(2, 1), ring(sizes)).substr(0, 64);
    for (const auto& result : results) CHECK_THAT(result.text, Catch::EndsWith(counts + alone));
    const auto warning = Catch::Contains("replicator: the elements for call 1 of replicate() had more than 16 sets of shapes.");
    if (sizes == 17) CHECK_THAT(results[0].text, warning);
    else CHECK_THAT(results[0].text, !warning);
    CHECK_THAT(results[1].text, !warning);
  }
}

TEST_CASE("a step that is made anew in every epoch, with other shapes, gives its memory back, on one process and on two") {
  constexpr std::int64_t numbers = 1 << 20;
  const auto epochs = [](const Deployment& where) {
    Replicator repl{where};
    std::int64_t before = 0;
    for (int epoch = 0; epoch < 40; ++epoch) {
      auto step = repl.replicate([epoch](ReplicaContext& replica) {
        const auto count = replica.variable<float>("count", {}, Initializer::zeros());
        count.assign(count.read() + 1.0f);
        return sum(all_reduce(broadcast_to(count.read(), {numbers + epoch}), Reduction::mean)) / static_cast<float>(numbers + epoch);
      });
      if (std::get<0>(step.step())[repl.process()][0] != static_cast<float>(epoch + 1)) return std::string{"another value"};
      if (epoch == 3) before = test::resident_bytes();
    }
    const auto more = test::resident_bytes() - before;
    return more < 8 * numbers * 4 ? std::string{"less"} : std::to_string(more) + " B more";  // each epoch takes 4 B and more for each number
  };
  CHECK(epochs(on_devices(2, 2)) == "less");
  const auto results = run_job(2, on_devices(2, 1), epochs);
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "less");
}

TEST_CASE("what a step function gives to callbacks is freed with the step") {
  Replicator repl{on_devices(1, 1)};
  std::weak_ptr<int> given;
  {
    auto step = repl.replicate([&](ReplicaContext& replica) {
      const auto token = std::make_shared<int>(0);
      given = token;
      const auto x = uniform<float>(replica, {2});
      host_callback(x, [token](const Observation&) { ++*token; });
      return sum(x);
    });
    step.step();
    CHECK_FALSE(given.expired());
  }
  CHECK(given.expired());
}

TEST_CASE("shapes are numbered as they come, by extents, rank and dtype of every component") {
  ShapeNumbers number;
  const auto of = [&](std::vector<TensorType> types) { return number(std::vector<AnyArray>{types.begin(), types.end()}); };
  CHECK(of({TensorType{DType::float32, {4}}}) == 0);
  CHECK(of({TensorType{DType::float32, {2}}}) == 1);
  CHECK(of({TensorType{DType::float32, {4}}}) == 0);
  CHECK(of({TensorType{DType::float32, {4, 1}}}) == 2);
  CHECK(of({TensorType{DType::int32, {4}}}) == 3);
  CHECK(of({TensorType{DType::float32, {4}}, TensorType{DType::float32, {2}}}) == 4);
  CHECK(of({TensorType{DType::float32, {2}}}) == 1);
}

TEST_CASE("of kept steps the one used longest ago goes first") {
  KeptSteps kept;
  CHECK(kept.latest() == nullptr);
  for (std::uint64_t i = 0; i < KeptSteps::most; ++i) {
    CHECK_FALSE(kept.make_room());
    const HostStep* added = &kept.keep({i, 7}, std::make_unique<HostStep>());
    CHECK(kept.latest() == added);
  }
  const HostStep* first = kept.find({0, 7});
  CHECK(first != nullptr);
  CHECK(kept.latest() == first);
  CHECK(kept.make_room());
  CHECK(kept.find({1, 7}) == nullptr);
  CHECK(kept.find({0, 7}) != nullptr);
  CHECK(kept.find({0, 8}) == nullptr);
}

}  // namespace test_shapes
