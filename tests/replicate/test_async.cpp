// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/async/resolve_async.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/data/prefetch.hpp>
#include <replicator/nn/batch_norm.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../input/temporary_folder.hpp"
#include "deployments.hpp"
#include "recordings.hpp"

namespace test_async {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;

namespace {

Deployment asynchronous(int replicas, int devices, std::optional<std::int64_t> staleness = {}, int group = 1) {
  auto deployment = test::asynchronous(replicas, devices, staleness, group);
  deployment.late = std::chrono::milliseconds{0};
  return deployment;
}

// The value, `count` times; forever where count is negative.
auto repeated(float value, std::int64_t count = -1) {
  return data::from_generator([value, count](std::int64_t position) -> std::optional<Array<float>> {
    if (position == count) return std::nullopt;
    return Array<float>{{}, {value}};
  });
}
const auto ones = [](const InputContext&) { return repeated(1); };
const auto counting = [](const InputContext&) {
  return data::from_generator([](std::int64_t position) { return Array<float>{{}, {static_cast<float>(position)}}; });
};

// Each update takes the mean of x from every element of both: both are minus the sum of all that arrived.
template <class Optimizer>
void descend(ReplicaContext& replica, const Optimizer& optimizer, Tensor<float> x) {
  const auto a = replica.variable<float>("a", {3000}, Initializer::zeros()), b = replica.variable<float>("b", {7}, Initializer::zeros());
  optimizer.minimize(replica, (sum(a.read()) + sum(b.read())) * x);
}
nn::Sgd plain(double rate = 1) { return nn::sgd({.learning_rate = rate}); }

float item(const Replicator& repl, const std::string& name) { return repl.value(name).as<float>()[0]; }
bool all_are(const AnyArray& array, float value) {
  const auto values = array.as<float>();
  return std::all_of(values.begin(), values.end(), [value](float v) { return v == value; });
}

// Whoever waits at it goes on when it is open.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> waited{0};
  void wait() {
    ++waited;
    for (int i = 0; i < 20000 && !open; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
};
// Replica 1 waits in every step but its first.
auto with_straggler(std::shared_ptr<Gate> gate) {
  return [gate](ReplicaContext& replica, Tensor<float> x) {
    auto seen = x;
    if (replica.id() == 1)
      seen = host_callback(x, [gate](const Observation& at) {
        if (at.step > 0) gate->wait();
      });
    descend(replica, plain(), seen);
    return seen;
  };
}

}  // namespace

TEST_CASE("asynchronous replicas find the minimum of a convex function, under a bound of staleness exactly") {
  for (const auto staleness : {std::optional<std::int64_t>{}, std::optional<std::int64_t>{3}}) {
    Replicator repl{asynchronous(4, 3, staleness)};
    auto train = repl.replicate([](const InputContext& ctx) { return repeated(static_cast<float>(ctx.replica())); },
                                [](ReplicaContext& replica, Tensor<float> x) {
                                  const auto w = replica.variable<float>("w", {}, Initializer::constant(9));
                                  const auto error = w.read() - x * 0.0f - 2.0f;
                                  plain(0.02).minimize(replica, error * error);
                                  return error;
                                });
    for (const auto& results : train.steps(150)) CHECK(std::get<0>(results).replicas() == 4);
    CHECK(train.steps_done() == 150);
    // Without a bound the first gradient of each of the other three, of 0.28, may come last.
    CHECK(std::abs(item(repl, "w") - 2) < (staleness ? 1e-3f : 0.9f));
  }
}

TEST_CASE("every update is made once, and read whole") {
  for (const auto& [group, devices] : {std::pair{1, 2}, {2, 2}, {2, 4}}) {
    Replicator repl{asynchronous(4, devices, {}, group)};
    std::vector<std::int64_t> elements{5, 30, 17, 9};
    const auto input = [&](const InputContext& ctx) { return repeated(1, elements[static_cast<std::size_t>(ctx.replica())]) | data::prefetch(2); };
    auto train = repl.replicate(input, [](ReplicaContext& replica, Tensor<float> x) {
      descend(replica, plain(), x);
      const auto a = replica.variable<float>("a", {3000}, Initializer::zeros()).read();
      return check(max(a) == min(a), "an update was read in part");
    });
    while (!train.finished()) train.step();
    const float updates = group == 1 ? 5 + 30 + 17 + 9 : 5 + 9;  // a group ends with the first input of its replicas
    CHECK(all_are(repl.value("a"), -updates));
    CHECK(all_are(repl.value("b"), -updates));
    CHECK_THROWS_WITH(train.step(), Catch::Contains("the input has ended after"));
    const auto text = train.explain();
    CHECK_THAT(text, Catch::Contains("asynchronous: " + std::to_string(4 / group) + " group(s) of " + std::to_string(group)));
    const auto count = std::to_string(static_cast<int>(updates));
    CHECK_THAT(text, Catch::Contains("shard 0 on device 0, 1 variable(s) from \"a\", 12000 B: " + count + " updates"));
    CHECK_THAT(text, Catch::Contains("shard 1 on device 1, 1 variable(s) from \"b\", 28 B: "));
  }
}

TEST_CASE("replicas of a group are synchronous with each other, on one device or several") {
  for (const int devices : {1, 2, 4, 6}) {
    Replicator repl{asynchronous(6, devices, {}, 3)};
    auto train = repl.replicate([](const InputContext& ctx) { return repeated(static_cast<float>(ctx.replica() % 3), 8); },
                                [](ReplicaContext& replica, Tensor<float> x) {
                                  descend(replica, plain(), x);
                                  return x;
                                });
    const auto [x] = train.step();
    for (int replica = 0; replica < 6; ++replica) CHECK(x[replica].item() == static_cast<float>(replica % 3));
    while (!train.finished()) train.step();
    CHECK(all_are(repl.value("a"), -16));  // two groups of eight steps whose mean is 1
  }
}

TEST_CASE("what an optimizer counts are the updates") {
  Replicator repl{asynchronous(3, 3)};
  auto train = repl.replicate([](const InputContext&) { return repeated(1, 10); },
                              [](ReplicaContext& replica, Tensor<float> x) { descend(replica, nn::adam({.learning_rate = 0.01}), x); });
  while (!train.finished()) train.step();
  CHECK(repl.value("a/updates").as<std::int64_t>()[0] == 30);
  CHECK(std::abs(item(repl, "a") + 0.3f) < 1e-3f);
  CHECK_THAT(train.explain(), Catch::Contains("7 variable(s)"));  // all are in one shard: they share the count
}

TEST_CASE("a straggler does not hold up the others") {
  const auto gate = std::make_shared<Gate>();
  Replicator repl{asynchronous(3, 3)};
  auto train = repl.replicate(ones, with_straggler(gate));
  for (int step = 0; step < 40; ++step) train.step();  // ends although replica 1 stands still, at the latest in its second step
  CHECK(gate->waited <= 1);
  gate->open = true;
  const float updates = -item(repl, "a");  // when all rest
  CHECK(updates >= 120);
  CHECK(updates <= 123);
}

TEST_CASE("a bound of staleness holds up the others, until a deadline that names who is late") {
  const auto gate = std::make_shared<Gate>();
  auto deployment = asynchronous(3, 3, 4);
  deployment.deadline = std::chrono::seconds{1};
  Replicator repl{deployment};
  auto train = repl.replicate(ones, with_straggler(gate));
  const auto error = error_of([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    while (gate->waited == 0 && std::chrono::steady_clock::now() < end) train.step();  // nobody waits for who has not read
    for (int step = 0; step < 40; ++step) train.step();
  });
  gate->open = true;
  CHECK_THAT(error, Catch::Contains("replica 1"));
  CHECK_THAT(error, Catch::Contains("It is stopped or slow: look there, or allow more time with --deadline") ||
                        Catch::Contains("A replica at work is stopped or slow: look there, or allow more time with --deadline"));
  CHECK(error_of([&] { train.step(); }) == error);
}

TEST_CASE("the longest deadline that a flag takes is not over at once") {
  auto deployment = asynchronous(2, 2);
  deployment.deadline = std::chrono::seconds{std::numeric_limits<int>::max()};
  Replicator repl{deployment};
  auto train = repl.replicate(ones, [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
  CHECK(error_of([&] {
          for (int step = 0; step < 20; ++step) train.step();
        }) == "nothing");
}

TEST_CASE("an error of one replica ends the step for all") {
  Replicator repl{asynchronous(3, 3, 2)};
  auto train = repl.replicate(counting, [](ReplicaContext& replica, Tensor<float> x) {
    descend(replica, plain(), x);
    return check(x < (replica.id() == 2 ? 5.0f : 1e9f), "five are enough");
  });
  const auto error = error_of([&] {  // the others may do many steps before replica 2 is given a core
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{1}; std::chrono::steady_clock::now() < end;) train.step();
  });
  CHECK_THAT(error, Catch::Contains("replica 2, step 5: check at "));
  CHECK(error_of([&] { repl.value("a"); }) == error);  // others may be at work on it
  CHECK(error_of([&] { repl.digest(); }) == error);
  CHECK(error_of([&] { repl.replicate(ones, [](ReplicaContext&, Tensor<float> x) { return x; }); }) == error);
}

// Runs two groups over two devices each. The second group is held up while it reads its input in its second step.
// Meanwhile the first group makes so many steps that the program's second step is done. Then the step is destroyed, and
// only after that the second group continues. `last`: the element that its second step uses.
double seconds_of_ending(Replicator& repl, const std::shared_ptr<Gate>& gate, float last) {
  const auto held_up = [gate](int replica) {
    return data::from_generator([gate, replica](std::int64_t position) {
      if (position == 2 && replica == 2) gate->wait();
      for (int i = 0; position == 2 && replica == 0 && i < 20000 && gate->waited == 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      return Array<float>{{}, {static_cast<float>(position)}};
    });
  };
  std::thread opener;
  auto began = std::chrono::steady_clock::now();
  {
    auto train = repl.replicate([&](const InputContext& ctx) { return held_up(ctx.replica()); },
                                [last](ReplicaContext& replica, Tensor<float> x) {
                                  descend(replica, plain(), x);
                                  return check(x < (replica.id() == 2 ? last : 1e9f), "it is too large");
                                });
    train.step();
    train.step();
    opener = std::thread{[gate] {
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
      gate->open = true;
    }};
    began = std::chrono::steady_clock::now();
  }
  opener.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

TEST_CASE("a group in the middle of a step is whole until the step's end, and what fails after the program's last step is told") {
  for (const bool fails : {false, true}) {
    auto deployment = asynchronous(4, 4, {}, 2);
    deployment.deadline = std::chrono::seconds{5};
    Replicator repl{deployment};
    const TemporaryFolder folder;
    double seconds = 0;
    const auto text = test::told(folder, [&] { seconds = seconds_of_ending(repl, std::make_shared<Gate>(), fails ? 1.0f : 1e9f); });
    CHECK(seconds < 4);
    if (fails) CHECK_THAT(text, Catch::Contains("replicator: at the end of a step object: replica 2, step 1: check at "));
    else CHECK(text.empty());
  }
}

// What stderr has of train(gate, opens_at_end): the gate opens when stderr has the line, which is looked for from the call of opens_at_end() on.
template <class Train>
std::string told_until_open(const std::string& line, Train train) {
  const TemporaryFolder folder;
  return test::told(folder, [&] {
    const auto gate = std::make_shared<Gate>();
    std::thread opener;
    train(gate, [&] {
      opener = std::thread{[&, gate] {
        test::await_told(folder, line);
        gate->open = true;
      }};
    });
    opener.join();
  });
}

TEST_CASE("an end that waits for a replica in the middle of a step says for which") {
  auto deployment = asynchronous(2, 2);
  deployment.late = std::chrono::milliseconds{20};
  const auto line = "replicator: the program makes no more steps, and waits for the present step of replica 1 (at step 1)\n";
  const auto text = told_until_open(line, [&](const std::shared_ptr<Gate>& gate, const auto& opens_at_end) {
    Replicator repl{deployment};
    auto train = repl.replicate(ones, with_straggler(gate));
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    while (gate->waited == 0 && std::chrono::steady_clock::now() < end) train.step();
    opens_at_end();
  });
  CHECK_THAT(text, Catch::Contains(line));
}

TEST_CASE("an end that waits for a replica of a group that has failed says for which, and of the error") {
  auto deployment = asynchronous(2, 2, {}, 2);
  deployment.late = std::chrono::milliseconds{20};
  const auto line = "waits for the present step of the group of replicas 0 to 1 (at step 1), after an error: replica 0, step 1: check at ";
  const auto text = told_until_open(line, [&](const std::shared_ptr<Gate>& gate, const auto& opens_at_end) {
    Replicator repl{deployment};
    auto train = repl.replicate(
        [](const InputContext&) { return data::from_generator([](std::int64_t position) { return Array<float>{{}, {static_cast<float>(position)}}; }); },
        [&](ReplicaContext& replica, Tensor<float> x) {
          if (replica.id() == 0)
            x = host_callback(x, [gate](const Observation& at) {
              for (int i = 0; at.step > 0 && i < 20000 && gate->waited == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
            });
          const auto fits = check(x < (replica.id() == 0 ? 1.0f : 1e9f), "it is too large");
          with_straggler(gate)(replica, x);
          return fits;
        });
    train.step();
    CHECK_THAT(error_of([&] { train.step(); }), Catch::Contains("it is too large"));
    opens_at_end();
  });
  CHECK_THAT(text, Catch::Contains(line));
}

TEST_CASE("batch norm has the statistics of each replica, and a group of several has those of the synchronous regime") {
  const auto digest = [](Deployment deployment) {
    Replicator repl{deployment};
    auto train = repl.replicate(
        [](const InputContext& ctx) {
          return data::from_generator([r = ctx.replica()](std::int64_t at) {
            return Array<float>{{2, 1}, {static_cast<float>(at), static_cast<float>(r + 1)}};
          });
        },
        [](ReplicaContext& replica, Tensor<float> x) {
          const auto y = nn::batch_norm(replica, x, "bn");
          plain(0.1).minimize(replica, mean(y * y * y));
        });
    for (int step = 0; step < 3; ++step) train.step();
    CHECK(repl.value("bn.running_mean", 0).as<float>()[0] != repl.value("bn.running_mean", 3).as<float>()[0]);
    return repl.digest();
  };
  CHECK(digest(asynchronous(4, 2, {}, 4)) == digest(test::on_devices(4, 2)));
}

TEST_CASE("a step without updates is made once by each replica for each call, of the newest values") {
  Replicator repl{asynchronous(4, 2)};
  auto train = repl.replicate(ones, [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
  auto validate = repl.replicate(counting, [](ReplicaContext& replica, Tensor<float> x) {
    return std::tuple{x, replica.variable<float>("b", {7}, Initializer::zeros()).read()};
  });
  for (int call = 0; call < 5; ++call) {
    train.step();
    train.step();
    const auto [x, b] = validate.step();
    for (int replica = 0; replica < 4; ++replica) {
      CHECK(x[replica].item() == static_cast<float>(call));
      CHECK(b[replica][3] == item(repl, "b"));
    }
  }
  repl.set("b", Array<float>{{7}, {1, 1, 1, 5, 1, 1, 1}}.any());
  CHECK(std::get<1>(validate.step())[2][3] == 5);
}

// Two weights that a step fits to (2, -1), by an update of its own: assign(w, the gradient of the replica's loss).
template <class Assign>
auto fit(Assign assign) {
  return [assign](ReplicaContext& replica, Tensor<float> x) {
    const auto w = replica.variable<float>("w", {2}, Initializer::zeros());
    const auto target = constant(replica, Array<float>{{2}, {2, -1}});
    const auto error = sum(x * (w.read() - target));
    const auto loss = error * error;
    assign(replica, w, loss);
    return loss;
  };
}
const auto own_mean = [](ReplicaContext&, Variable<float> w, Tensor<float> loss) {
  w.assign(w.read() - all_reduce(gradients(loss, std::vector{w.read()})[0], Reduction::mean) * 0.1f);
};
const auto own_sum = [](ReplicaContext& replica, Variable<float> w, Tensor<float> loss) {
  w.assign(w.read() - all_reduce(gradient(loss, w.read()), Reduction::sum) / static_cast<float>(replica.count()) * 0.1f);
};
const auto by_minimize = [](ReplicaContext& replica, Variable<float>, Tensor<float> loss) { plain(0.1).minimize(replica, loss); };

// 60 elements for each replica.
auto pairs(const InputContext& ctx) {
  return data::from_generator([r = ctx.replica()](std::int64_t at) -> std::optional<Array<float>> {
    if (at == 60) return std::nullopt;
    return Array<float>{{2}, {static_cast<float>((at * 7 + r * 3) % 11) / 11, static_cast<float>((at * 5 + r) % 7) / 7}};
  });
}

TEST_CASE("with one group of all replicas an optimizer of the user's own gives the bits of minimize, and those of the synchronous regime") {
  const auto digest = [](const Deployment& deployment, auto update) {
    Replicator repl{deployment};
    auto train = repl.replicate(pairs, fit(update));
    while (!train.finished()) train.step();
    return repl.digest();
  };
  for (const int replicas : {1, 4}) {
    const auto deployment = asynchronous(replicas, std::min(replicas, 2), {}, replicas);
    const auto expected = digest(deployment, by_minimize);
    CHECK(digest(deployment, own_mean) == expected);
    CHECK(digest(deployment, own_sum) == expected);
    CHECK(digest(test::on_devices(replicas, 1), own_mean) == expected);
  }
}

template <class Update>
void check_that_loss_falls(int group, Update update) {
  Replicator repl{asynchronous(6, 3, {}, group)};
  auto train = repl.replicate(pairs, fit(update));
  while (!train.finished()) train.step();
  const auto w = repl.value("w").as<float>();
  CHECK(std::abs(w[0] - 2) < 0.1f);
  CHECK(std::abs(w[1] + 1) < 0.1f);
}
TEST_CASE("asynchronous replicas train with an optimizer of the user's own") {
  for (const int group : {1, 2}) {
    check_that_loss_falls(group, by_minimize);
    check_that_loss_falls(group, own_mean);
    check_that_loss_falls(group, own_sum);
  }
}

TEST_CASE("each update has the mean of a group, also where the user or a bfloat16 wire asks for a sum and divides it by the number of replicas") {
  const auto trained = [](auto update, const char* what = "w") {
    Replicator repl{asynchronous(6, 3, {}, 2)};
    auto train = repl.replicate([](const InputContext& ctx) { return repeated(static_cast<float>(ctx.replica() % 2), 8); },
                                [&](ReplicaContext& replica, Tensor<float> x) {
                                  const auto w = replica.variable<float>("w", {}, Initializer::zeros());
                                  update(replica, w, w.read() * x);
                                });
    while (!train.finished()) train.step();
    const auto value = repl.value(what);
    return value.dtype() == DType::int64 ? static_cast<float>(value.as<std::int64_t>()[0]) : value.as<float>()[0];
  };
  // Three groups make eight steps each. The mean gradient of a group is 0.5.
  const auto narrow = [](ReplicaContext& replica, Variable<float>, Tensor<float> loss) {
    nn::wrap_optimizer(plain(0.125), nn::Wire::bfloat16).minimize(replica, loss);
  };
  const auto sum = [](ReplicaContext& replica, Variable<float> w, Tensor<float> loss) {
    w.assign(w.read() - all_reduce(gradient(loss, w.read()), Reduction::sum) / static_cast<float>(replica.count()) * 0.125f);
  };
  CHECK(trained(narrow) == -1.5f);
  CHECK(trained(sum) == -1.5f);
  const auto counted = [](ReplicaContext& replica, Variable<float>, Tensor<float>) {
    const auto seen = replica.variable<std::int64_t>("seen", {}, Initializer::zeros());
    seen.assign(seen.read() + all_reduce(constant(replica, Array<std::int64_t>{{}, {1}}), Reduction::sum));
  };
  CHECK(trained(counted, "seen") == 3 * 8 * 6);  // each of 24 updates stands for all six replicas
}

TEST_CASE("a step whose collective cannot be cut off is refused with its line") {
  const auto refused = [](auto step_fn) {
    Replicator repl{asynchronous(2, 2)};
    return error_of([&] { repl.replicate(ones, step_fn); });
  };
  const auto loss = refused([](ReplicaContext& replica, Tensor<float> x) {
    descend(replica, plain(), x);
    return all_reduce(x, Reduction::mean);
  });
  CHECK_THAT(loss, Catch::Contains("all_reduce at ") && Catch::Contains("test_async.cpp:") &&
                       Catch::Contains("cannot be resolved with --regime async: replicas are at different steps there, and result 0 of the step"));
  CHECK_THAT(refused([](ReplicaContext& replica, Tensor<float> x) {
               const auto w = replica.variable<float>("w", {}, Initializer::zeros());
               w.assign(w.read() + 1.0f);
               return x;
             }),
             Catch::Contains("\"w\" is mirrored, and assigned at ") && Catch::Contains("by a step in which no all_reduce reaches a mirrored variable"));
}

TEST_CASE("groups reduce by the schedule that was asked for, which is refused where it would change a bit") {
  auto deployment = asynchronous(6, 6, {}, 3);
  deployment.schedule = "ring";
  Replicator repl{deployment};
  CHECK_THAT(error_of([&] { repl.replicate(ones, [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); }); }),
             Catch::Contains("ring"));
}

TEST_CASE("a deployment that the asynchronous regime cannot have is refused with the flag") {
  const auto refused = [](auto change, int replicas = 4, int devices = 2) {
    auto deployment = asynchronous(replicas, devices);
    change(deployment);
    return error_of([&] { Replicator{deployment}; });
  };
  CHECK_THAT(refused([](Deployment& d) { d.staleness = 0; }),
             Catch::Contains("--staleness is 0, but 2 groups of replicas compute at once on 2 devices"));
  CHECK_THAT(refused([](Deployment& d) { d.sync_group = 3; }), Catch::Contains("--sync-group is 3, which does not divide the 4 replicas"));
  CHECK_THAT(refused([](Deployment& d) { d.sync_group = 3; }, 6, 3),
             Catch::Contains("--sync-group 3 makes 2 groups for 3 devices: name a multiple of 2"));
  const std::pair<const char*, void (*)(Deployment&)> flags_of_steps[] = {
      {"--checkpoint", [](Deployment& d) { d.checkpoint.folder = "c"; }},
      {"--resume", [](Deployment& d) { d.checkpoint.resume = true; }},
      {"--trace", [](Deployment& d) { d.see.trace = "t"; }},
      {"--timing", [](Deployment& d) { d.see.timing = true; }},
      {"--plan", [](Deployment& d) { d.see.plan = "p"; }},
      {"--dot", [](Deployment& d) { d.see.dot = "d"; }},
      {"--find-nan", [](Deployment& d) { d.see.find_nan = true; }},
      {"--skew", [](Deployment& d) { d.see.skew = true; }},
      {"--record", [](Deployment& d) { d.see.record = RecordOptions{0, {1, 2}, "r"}; }},
      {"--check-drift", [](Deployment& d) { d.see.check_drift = 1; }},
      {"--hang-report", [](Deployment& d) { d.see.hang_report = "h"; }},
      {"--elastic", [](Deployment& d) { d.elastic = true; }},
      {"--elastic-arbiter", [](Deployment& d) { d.elastic_arbiter = "folder"; }}};
  for (const auto& [flag, change] : flags_of_steps)
    CHECK(refused(change) == std::string{"--regime async cannot be combined with "} + flag +
                                 ", which needs all replicas at the same step: leave it out, or run with --regime sync");
  CHECK_THAT(refused([](Deployment& d) { d.topology = "links.json"; }), Catch::Contains("cannot be combined with --topology"));
  CHECK_THAT(refused([](Deployment& d) { d.link = "1GB/s,2us"; }), Catch::Contains("cannot be combined with --link"));
  CHECK_THAT(refused([](Deployment& d) { d.logical_devices = 2; }), Catch::Contains("cannot be combined with --logical-devices"));
  CHECK_THAT(refused([](Deployment& d) { d.devices[1].kind = DeviceKind::cuda; }), Catch::Contains("cannot be combined with cuda:1"));
  CHECK_THAT(refused([](Deployment& d) {
               d.regime = Regime::synchronous;
               d.staleness = 3;
             }),
             Catch::Contains("--staleness was given, but the regime is synchronous"));
  const char* flags[] = {"--regime", "later"};
  CHECK(error_of([&] { Deployment::from(flags); }) == "--regime is \"later\": it must be sync or async");
}

}  // namespace test_async
