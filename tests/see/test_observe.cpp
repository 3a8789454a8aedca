// SPDX-License-Identifier: Apache-2.0
// Observing values inside a step, and finding the first NaN.
#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/recompute.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../replicate/deployments.hpp"

namespace test_observe {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;

namespace {

// replica + step, twice.
const auto counting = [](const InputContext& ctx) {
  return data::from_generator([replica = ctx.replica()](std::int64_t i) {
    const auto value = static_cast<float>(replica + i);
    return Array<float>{{2}, {value, value}};
  });
};

struct Lines {
  std::mutex mutex;
  std::vector<std::string> lines;
  PrintOptions options(std::uint64_t every = 1) {
    return {every, 8, [this](const std::string& line) {
              const std::lock_guard lock{mutex};
              lines.push_back(line);
            }};
  }
  std::vector<std::string> sorted() {
    std::sort(lines.begin(), lines.end());
    return lines;
  }
};

template <class StepFn>
void run(StepFn step_fn, int replicas, int devices, int steps) {
  Replicator repl{on_devices(replicas, devices)};
  auto train = repl.replicate(counting, step_fn);
  for (int i = 0; i < steps; ++i) train.step();
}

}  // namespace

TEST_CASE("integers are printed with all their digits") {
  const std::vector<std::int64_t> whole{-9007199254740993, 2000000001};
  const std::vector<float> parts{0.5f, 2e9f};
  const Observation numbers{{DType::int64, Shape{2}}, reinterpret_cast<const std::byte*>(whole.data())};
  const Observation others{{DType::float32, Shape{2}}, reinterpret_cast<const std::byte*>(parts.data())};
  CHECK(detail::values_text<std::int64_t>(numbers, 8) == "int64[2] = -9007199254740993 2000000001");
  CHECK(detail::values_text<float>(others, 8) == "float32[2] = 0.5 2e+09");
}

TEST_CASE("print shows the value of each replica though nobody uses it, on any placement") {
  for (const int devices : {1, 2, 3}) {
    Lines lines;
    std::source_location where;
    run([&](ReplicaContext&, Tensor<float> x) { where = std::source_location::current(), print(x * 2.0f, "x", lines.options(2)); }, 3, devices, 4);
    std::vector<std::string> expected;
    for (const int replica : {0, 1, 2})
      for (const int step : {0, 2}) {
        const auto value = std::to_string(2 * (replica + step));
        expected.push_back("replica " + std::to_string(replica) + ", step " + std::to_string(step) + ": \"x\" at " +
                           Location{where}.text() + ": float32[2] = " + value + " " + value);
      }
    CHECK(lines.sorted() == expected);
  }
}

TEST_CASE("what is the same on all replicas is shown once, wherever they are, and stays the same on all") {
  for (const int devices : {1, 3}) {
    Lines lines;
    run([&](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {2}, Initializer::zeros());
      w.assign(print(w.read() + all_reduce(x, Reduction::sum), "w", lines.options()));
    },
        3, devices, 2);
    REQUIRE(lines.lines.size() == 2);
    CHECK_THAT(lines.lines[0], Catch::StartsWith("all replicas, step 0: \"w\" at test_observe.cpp:") && Catch::EndsWith("float32[2] = 3 3"));
    CHECK_THAT(lines.lines[1], Catch::StartsWith("all replicas, step 1:") && Catch::EndsWith("float32[2] = 9 9"));
  }
}

TEST_CASE("two prints of one value are two, in order, and fusion does not swallow them") {
  Lines lines;
  run([&](ReplicaContext&, Tensor<float> x) {
    const auto y = print(print(x + 1.0f, "a", lines.options()), "b", lines.options());
    return y * 2.0f;
  },
      1, 1, 1);
  REQUIRE(lines.lines.size() == 2);
  CHECK_THAT(lines.lines[0], Catch::Contains("\"a\"") && Catch::EndsWith("= 1 1"));
  CHECK_THAT(lines.lines[1], Catch::Contains("\"b\"") && Catch::EndsWith("= 1 1"));
}

TEST_CASE("gradients pass through, and a step that is looked at has the same bits") {
  const auto digest = [](bool looks, int devices) {
    Replicator repl{on_devices(2, devices)};
    auto train = repl.replicate(counting, [looks](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {2}, Initializer::ones());
      const auto y = tanh(x * w.read());
      const auto loss = mean(looks ? host_callback(y, [](const Observation&) {}) : y);
      nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
      return loss;
    });
    for (auto loss : train.steps(3)) (void)loss;
    return repl.digest();
  };
  CHECK(digest(true, 1) == digest(false, 1));
  CHECK(digest(true, 2) == digest(false, 1));
}

TEST_CASE("a check that fails names replica, step, line and sentence, and changes no variable") {
  for (const int devices : {1, 2}) {
    Replicator repl{on_devices(2, devices)};
    std::source_location where;
    auto train = repl.replicate(counting, [&](ReplicaContext& replica, Tensor<float> x) {
      auto w = replica.variable<float>("w", {}, Initializer::zeros());
      w.assign(w.read() + 1.0f);
      where = std::source_location::current(), check(x < 2.5f, "x stays small");
    });
    train.step();
    train.step();
    const auto found = error_of([&] { train.step(); });
    CHECK(found == "replica 1, step 2: check at " + Location{where}.text() + ": x stays small (2 of 2 elements are false, the first at 0)");
    CHECK(repl.value("w").as<float>()[0] == 2);
  }
}

TEST_CASE("callbacks at one line are each their own") {
  std::vector<float> seen;
  run([&](ReplicaContext&, Tensor<float> x) {
    for (int k = 0; k < 3; ++k)
      host_callback(x + static_cast<float>(k), [&seen, k](const Observation& o) { seen.push_back(10.0f * k + o.as<float>()[0]); });
  },
      1, 1, 1);
  CHECK(seen == std::vector<float>{0, 11, 22});
}

TEST_CASE("the first NaN is found where it is made, with replica, step and line") {
  for (const int devices : {1, 2}) {
    auto deployment = on_devices(2, devices);
    deployment.see.find_nan = true;
    Replicator repl{deployment};
    std::source_location where;
    auto train = repl.replicate(counting, [&](ReplicaContext&, Tensor<float> x) {
      const auto y = sum(x * x);
      where = std::source_location::current();
      const auto bad = sqrt(y * -1.0f + 7.0f);
      return sum(bad) * 3.0f;
    });
    train.step();                                        // replica 1: 7 - 2
    const auto found = error_of([&] { train.step(); });  // replica 1: 7 - 8
    CHECK_THAT(found, Catch::StartsWith("replica 1, step 1: reduce#") && Catch::Contains(" at test_observe.cpp:") &&
                          Catch::Contains(" made the first NaN by "));
    CHECK_THAT(found, Catch::Contains("sqrt("));
  }
}

TEST_CASE("the line of a NaN is that of its own reduction, although reductions of one tensor are merged") {
  auto deployment = on_devices(1, 1);
  deployment.see.find_nan = true;
  Replicator repl{deployment};
  std::source_location bad;
  auto train = repl.replicate(counting, [&](ReplicaContext&, Tensor<float> x) {
    const auto whole = sum(x);
    bad = std::source_location::current();
    const auto part = sum(sqrt(x - 100.0f));
    return std::tuple{whole, part};
  });
  const auto found = error_of([&] { train.step(); });
  CHECK_THAT(found, Catch::Contains(" at test_observe.cpp:" + std::to_string(bad.line() + 1) + " made the first NaN"));
}

TEST_CASE("an infinity is found where it is made") {
  auto deployment = on_devices(2, 2);
  deployment.see.find_nan = true;
  Replicator repl{deployment};
  auto train = repl.replicate(counting, [](ReplicaContext&, Tensor<float> x) { return sum(exp(x * 60.0f)); });
  train.step();                                        // e^60
  const auto found = error_of([&] { train.step(); });  // replica 1: e^120
  CHECK_THAT(found, Catch::StartsWith("replica 1, step 1: reduce#") && Catch::Contains(" made the first infinity by ") && Catch::Contains("exp("));
}

TEST_CASE("a reduction over replicas that makes a NaN or an infinity is found, folded on a device or done between them") {
  std::source_location where;
  // Replica r gives scale[r], in step 1 for the first time.
  const auto found = [&](int devices, std::vector<float> scale, Reduction reduction, auto use) {
    auto deployment = on_devices(4, devices);
    deployment.see.find_nan = true;
    Replicator repl{deployment};
    auto train = repl.replicate(
        [&](const InputContext& ctx) {
          return data::from_generator([factor = scale[static_cast<std::size_t>(ctx.replica())]](std::int64_t i) {
            return Array<float>{{3}, {0, static_cast<float>(i) * factor, 0}};
          });
        },
        [&](ReplicaContext& replica, Tensor<float> x) {
          const auto made = x * 1e38f;
          where = std::source_location::current();
          const auto total = all_reduce(made, reduction, {.label = "total"});
          return use(replica, total);
        });
    train.step();
    return error_of([&] { train.step(); });
  };
  const auto returned = [](ReplicaContext&, Tensor<float> total) { return total; };
  const auto assigned = [](ReplicaContext& replica, Tensor<float> total) {
    replica.variable<float>("w", {3}, Initializer::zeros()).assign(total);
  };
  const auto used = [](ReplicaContext&, Tensor<float> total) { return sum(total * total) * 2.0f; };
  const auto at = [&] { return "step 1: all_reduce \"total\" at test_observe.cpp:" + std::to_string(where.line() + 1); };
  for (const int devices : {1, 2, 4})
    for (const auto& text : {found(devices, {1, 1, 1, 1}, Reduction::sum, returned), found(devices, {1, 1, 1, 1}, Reduction::sum, assigned),
                             found(devices, {1, 1, 1, 1}, Reduction::mean, used)}) {
      CHECK_THAT(text, Catch::StartsWith("replica ") && Catch::Contains(at() + " made the first infinity: every contribution was finite"));
    }
  // Between four devices each sees the whole sum only: infinity and minus infinity.
  CHECK_THAT(found(4, {3, 3, -3, -3}, Reduction::sum, returned), Catch::Contains(at() + " made the first NaN"));
  CHECK_THAT(found(2, {3, 3, -3, -3}, Reduction::sum, returned), Catch::Contains(at() + " made the first infinity"));
  CHECK(found(2, {3, 3, -3, -3}, Reduction::max, returned) == "nothing");
}

TEST_CASE("a reduction over replicas is not blamed for what it is given") {
  for (const int devices : {1, 2}) {
    auto deployment = on_devices(2, devices);
    deployment.see.find_nan = true;
    Replicator repl{deployment};
    auto train = repl.replicate(
        [](const InputContext& ctx) {
          return data::from_generator([r = ctx.replica()](std::int64_t i) {
            return Array<float>{{2}, {1, i == 1 && r == 1 ? std::numeric_limits<float>::infinity() : 0.0f}};
          });
        },
        [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); });
    train.step();
    CHECK_THAT(error_of([&] { train.step(); }),
               Catch::StartsWith(devices == 1 ? "one of the replicas 0 to 1, step 1: a contribution to all_reduce"
                                              : "replica 1, step 1: a contribution to all_reduce") &&
                   Catch::Contains(" at test_observe.cpp:") &&
                   Catch::EndsWith(" holds an infinity that no kernel of this step made: look at the input and the variables"));
  }
}

TEST_CASE("a NaN of a label that is no class is told as such") {
  auto deployment = on_devices(1, 1);
  deployment.see.find_nan = true;
  Replicator repl{deployment};
  auto train = repl.replicate(
      [](const InputContext&) {
        return data::from_generator([](std::int64_t i) { return std::tuple{Array<float>{{2, 3}, {1, 2, 3, 4, 5, 7}}, Array<std::int32_t>{{2}, {0, i == 0 ? 2 : 3}}}; });
      },
      [](ReplicaContext&, Tensor<float> x, Tensor<std::int32_t> labels) { return mean(softmax_cross_entropy(x, labels)); });
  train.step();
  CHECK_THAT(error_of([&] { train.step(); }), Catch::StartsWith("replica 0, step 1: ") && Catch::Contains(" made the first NaN by ") &&
                                                  Catch::EndsWith(": the formula has a NaN of its own, for a label that is no class for instance: look at the labels"));
}

TEST_CASE("an infinity that was given is spelled with its article") {
  auto deployment = on_devices(1, 1);
  deployment.see.find_nan = true;
  Replicator repl{deployment};
  auto train = repl.replicate(
      [](const InputContext&) {
        return data::from_generator([] { return Array<float>{{1}, {std::numeric_limits<float>::infinity()}}; });
      },
      [](ReplicaContext&, Tensor<float> x) {
        return std::tuple{x + 1.0f, sum(x * 2.0f)};
      });
  CHECK_THAT(error_of([&] { train.step(); }), Catch::Contains(", holds an infinity already"));
}

TEST_CASE("a NaN of the input is not blamed on the kernel") {
  auto deployment = on_devices(1, 1);
  deployment.see.find_nan = true;
  Replicator repl{deployment};
  auto train = repl.replicate(
      [](const InputContext&) {
        return data::from_generator([] { return Array<float>{{1}, {std::numeric_limits<float>::quiet_NaN()}}; });
      },
      [](ReplicaContext&, Tensor<float> x) {
        return std::tuple{x + 1.0f, sum(x * 2.0f)};
      });
  CHECK_THAT(error_of([&] { train.step(); }), Catch::Contains("what it was given, input#0 input0, holds a NaN already"));
}

TEST_CASE("what is computed again for the backward pass is looked at once") {
  Lines lines;
  Replicator repl{on_devices(1, 1)};
  auto train = repl.replicate([](const InputContext&) { return data::from_generator([] { return Array<float>{{1 << 15}}; }); },
                              [&](ReplicaContext& replica, Tensor<float> x) {
                                auto w = replica.variable<float>("w", {1 << 15}, Initializer::ones());
                                const auto layer = recompute([&](Tensor<float> v) {
                                  return tanh(tanh(print(tanh(v * w.read()), "v", lines.options())));
                                });
                                const auto loss = mean(layer(x));
                                nn::sgd({.learning_rate = 0.1}).minimize(replica, loss);
                                return loss;
                              });
  train.step();
  CHECK(lines.lines.size() == 1);
}

}  // namespace test_observe
