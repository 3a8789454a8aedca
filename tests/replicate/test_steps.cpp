// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "deployments.hpp"

namespace test_steps {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;

namespace {

// The position, `count` times; forever where count is negative.
auto counting(std::int64_t count = -1) {
  return data::from_generator([count](std::int64_t position) -> std::optional<Array<float>> {
    if (position == count) return std::nullopt;
    return Array<float>{{}, {static_cast<float>(position)}};
  });
}
const auto endless = [](const InputContext&) { return counting(); };

Variable<float> scalar(ReplicaContext& replica, const char* name, double first,
                       VariableKind kind = VariableKind::mirrored) {
  return replica.variable<float>(name, {}, Initializer::constant(first), {kind});
}
float item(const Replicator& repl, const std::string& name, int local = 0) {
  return repl.value(name, local).as<float>()[0];
}

template <class Step>
std::vector<float> all_values(Step& train, std::int64_t steps) {
  std::vector<float> values;
  for (auto [result] : train.steps(steps))
    for (int replica = 0; replica < result.replicas(); ++replica)
      for (const float value : result[replica]) values.push_back(value);
  return values;
}
using Values = std::vector<float>;

}  // namespace

TEST_CASE("a step outlives its Replicator") {
  for (const bool asynchronous : {false, true}) {
    auto repl = std::make_unique<Replicator>(asynchronous ? test::asynchronous(2, 2) : on_devices(2, 2));
    auto train = repl->replicate(endless, [](ReplicaContext&, Tensor<float> x) { return x + 1.0f; });
    train.step();
    repl.reset();
    train.step();
    CHECK(train.steps_done() == 2);
  }
}

TEST_CASE("a step that was moved from says so, and the one it was moved to goes on") {
  Replicator repl{on_devices(2, 1)};
  const auto plus = [&](float what) { return repl.replicate(endless, [what](ReplicaContext&, Tensor<float> x) { return x + what; }); };
  auto first = plus(1);
  first.step();
  auto moved = std::move(first);
  CHECK(error_of([&] { first.step(); }) == "this step was moved from: use the rp::Step that it was moved to");
  CHECK_THAT(error_of([&] { (void)first.finished(); }), Catch::StartsWith("this step was moved from"));
  CHECK(std::get<0>(moved.step())[0].item() == 2);
  moved = plus(10);
  CHECK(std::get<0>(moved.step())[0].item() == 10);
}

TEST_CASE("a Replicator that was moved from says so") {
  Replicator repl{on_devices(2, 1)};
  Replicator other = std::move(repl);
  const std::string moved = "this Replicator was moved from: use the rp::Replicator that it was moved to";
  CHECK(error_of([&] { (void)repl.digest(); }) == moved);
  CHECK(error_of([&] { (void)repl.replicate(endless, [](ReplicaContext&, Tensor<float> x) { return x; }); }) == moved);
  CHECK(other.replicas() == 2);
}

TEST_CASE("what would wait for the step from within which it is called is refused there") {
  for (const bool asynchronous : {false, true}) {
    const auto told = [&](auto call) {
      Replicator repl{asynchronous ? test::asynchronous(2, 2) : on_devices(2, 2)};
      auto other = repl.replicate(endless, [](ReplicaContext&, Tensor<float> x) { return x; });
      auto train = repl.replicate(endless, [&](ReplicaContext& replica, Tensor<float> x) {
        return host_callback(x + scalar(replica, "w", 1).read(), [&](const Observation& seen) {
          if (seen.replica == 1 && seen.step == 2) call(repl, other);
        });
      });
      return error_of([&] {
        for (int step = 0; step < 9; ++step) train.step();
      });
    };
    const auto step = told([](Replicator&, auto& other) { other.step(); });
    const auto digest = told([](Replicator& repl, auto&) { repl.digest(); });
    const auto replicate = told([](Replicator& repl, auto&) { repl.replicate(endless, [](ReplicaContext&, Tensor<float> x) { return x; }); });
    const auto where = " was called from within a step" + std::string{asynchronous ? "" : " (number 2 of step 1 of the Replicator)"} +
                       ", by a host_callback say, and would wait for it: call it when step() has returned";
    CHECK_THAT(step, Catch::EndsWith((asynchronous ? "" : "step()") + where));
    CHECK_THAT(digest, Catch::EndsWith((asynchronous ? "" : "digest()") + where));
    CHECK_THAT(replicate, Catch::EndsWith((asynchronous ? "" : "replicate()") + where));
    if (asynchronous) CHECK_THAT(told([](Replicator& repl, auto&) { repl.value("w"); }), Catch::EndsWith(where));
  }
}

TEST_CASE("a result has the value of every replica, in order") {
  for (const int devices : {1, 2, 3}) {
    Replicator repl{on_devices(3, devices)};
    auto train = repl.replicate(
        [](const InputContext& ctx) {
          return data::from_generator([ctx] { return Array<float>{{2}, {1.0f * ctx.replica(), 7}}; });
        },
        [](ReplicaContext&, Tensor<float> x) { return x; });
    const auto [x] = train.step();
    CHECK(x.replicas() == 3);
    CHECK(x.whole());
    CHECK(x.first() == 0);
    for (int replica = 0; replica < 3; ++replica) CHECK(x[replica][0] == static_cast<float>(replica));
    CHECK(mean(x) == 4.0f);
    CHECK_THROWS_WITH(x[3], Catch::Contains("asked for the value of replica 3: there are 3, counted from 0"));
  }
}

TEST_CASE("values that live on another host are refused with the mend") {
  const PerReplica<Array<float>> part{{Array<float>{{}, {1}}, Array<float>{{}, {2}}}, 4, 8};
  CHECK_FALSE(part.whole());
  CHECK(part[5].item() == 2);
  const std::string mend =
      "; results above 4 KiB stay where they were made: all_gather them in the step, or return something smaller";
  CHECK(error_of([&] { part[3]; }) ==
        "the value of replica 3 is on another host: this one has those of replicas 4 to 5" + mend);
  CHECK(error_of([&] { mean(part); }) ==
        "the value of replica 0 is on another host: this one has those of replicas 4 to 5" + mend);
}

TEST_CASE("results of any size come whole on one host, uniform ones too") {
  for (const int devices : {1, 2}) {
    Replicator repl{on_devices(4, devices)};
    auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float> x) {
      const auto large = full<float>(replica, {3000}, 1) * x + static_cast<float>(replica.id());
      return std::tuple{large, all_reduce(large, Reduction::sum)};
    });
    train.step();
    const auto [own, total] = train.step();
    for (int replica = 0; replica < 4; ++replica) {
      CHECK(own[replica].size() == 3000);
      CHECK(own[replica][2999] == static_cast<float>(1 + replica));
      CHECK(total[replica][2999] == 10);
    }
  }
}

TEST_CASE("a result that is another uniform value on every replica is each replica's own") {
  for (const int devices : {1, 2, 3}) {
    Replicator repl{on_devices(3, devices)};
    auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float> x) {
      const auto v = scalar(replica, "v", 1).read(), w = scalar(replica, "w", 2).read(),
                 z = all_reduce(x, Reduction::sum);
      return std::tuple{replica.id() == 0 ? v : w, replica.id() == 2 ? z : w * 2.0f, v};
    });
    const auto [a, b, c] = train.step();
    CHECK(Values{a[0].item(), a[1].item(), a[2].item()} == Values{1, 2, 2});
    CHECK(Values{b[0].item(), b[1].item(), b[2].item()} == Values{4, 4, 0});
    CHECK(Values{c[0].item(), c[1].item(), c[2].item()} == Values{1, 1, 1});
  }
}

TEST_CASE("a step that returns nothing still changes variables") {
  Replicator repl{on_devices(2, 2)};
  auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float> x) {
    auto w = scalar(replica, "w", 1);
    w.assign(w.read() + all_reduce(x, Reduction::sum));
  });
  for (int i = 0; i < 3; ++i) train.step();
  CHECK(item(repl, "w") == 1 + 2 * (0 + 1 + 2));
}

TEST_CASE("reads see the step's start and this replica's own assignments in program order") {
  Replicator repl{on_devices(2, 1)};
  auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float>) {
    auto w = scalar(replica, "w", 1, VariableKind::replica_local);
    const auto before = w.read();
    w.assign(w.read() * 10.0f + static_cast<float>(replica.id()));
    const auto between = w.read();
    w.assign(w.read() + 1.0f);
    return std::tuple{before, between, w.read()};
  });
  train.step();
  const auto [before, between, after] = train.step();
  CHECK(before[1].item() == 12);
  CHECK(between[1].item() == 121);
  CHECK(after[1].item() == 122);
  CHECK(item(repl, "w", 0) == 111);
  CHECK(item(repl, "w", 1) == 122);
}

TEST_CASE("variables that take each other's values are exchanged") {
  for (const auto kind : {VariableKind::mirrored, VariableKind::replica_local})
    for (const int devices : {1, 2}) {
      Replicator repl{on_devices(2, devices)};
      auto train = repl.replicate(endless, [kind](ReplicaContext& replica, Tensor<float>) {
        auto a = scalar(replica, "a", 1, kind), b = scalar(replica, "b", 2, kind), c = scalar(replica, "c", 3, kind);
        const auto x = a.read(), y = b.read(), z = c.read();
        a.assign(y), b.assign(z), c.assign(x);
        return x;
      });
      CHECK(all_values(train, 4) == Values{1, 1, 2, 2, 3, 3, 1, 1});
      CHECK(item(repl, "a") == 2);
      CHECK(item(repl, "b") == 3);
      CHECK(item(repl, "c") == 1);
    }
}

TEST_CASE("a variable may keep its value, or that of another one") {
  Replicator repl{on_devices(2, 2)};
  auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float>) {
    auto a = scalar(replica, "a", 1), b = scalar(replica, "b", 2);
    a.assign(a.read());
    const auto old = b.read();
    b.assign(old + 1.0f);
    a.assign(old);
    return a.read();
  });
  CHECK(all_values(train, 2) == Values{2, 2, 3, 3});
  CHECK(item(repl, "a") == 3);
  CHECK(item(repl, "b") == 4);
}

TEST_CASE("a replica-local variable may be given what is the same on all replicas") {
  for (const int devices : {1, 2, 3}) {
    Replicator repl{on_devices(3, devices)};
    auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float>) {
      auto w = scalar(replica, "w", 1), copy = scalar(replica, "copy", 0, VariableKind::replica_local),
           next = scalar(replica, "next", 0, VariableKind::replica_local);
      copy.assign(w.read());
      w.assign(w.read() * 2.0f);
      next.assign(w.read());
      return copy.read() + next.read();
    });
    CHECK(all_values(train, 2) == Values{3, 3, 3, 6, 6, 6});
    CHECK(item(repl, "w") == 4);
    for (int replica = 0; replica < 3; ++replica) {
      CHECK(item(repl, "copy", replica) == 2);
      CHECK(item(repl, "next", replica) == 4);
    }
  }
}

TEST_CASE("a result that is a variable's value at the start is not touched by its update") {
  for (const int devices : {1, 2}) {
    Replicator repl{on_devices(2, devices)};
    auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float> x) {
      auto w = scalar(replica, "w", 0);
      const auto old = w.read();
      w.assign(old + all_reduce(x + 1.0f, Reduction::mean));
      return old;
    });
    CHECK(all_values(train, 4) == Values{0, 0, 1, 1, 3, 3, 6, 6});
  }
}

TEST_CASE("steps of one Replicator share its variables") {
  Replicator repl{on_devices(2, 2)};
  auto add = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float>) {
    auto w = scalar(replica, "w", 1);
    w.assign(w.read() + 1.0f);
  });
  auto twice = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float>) {
    auto w = scalar(replica, "w", 1);
    w.assign(w.read() * 2.0f);
    return w.read();
  });
  add.step();
  twice.step();
  add.step();
  CHECK(item(repl, "w") == 5);
  CHECK(repl.variables() == std::vector<std::string>{"w"});
}

TEST_CASE("the number of the step counts each step of the Replicator for itself") {
  Replicator repl{on_devices(2, 1)};
  const auto number = [](ReplicaContext& replica, Tensor<float>) { return cast<float>(replica.step()); };
  auto a = repl.replicate(endless, number);
  auto b = repl.replicate(endless, number);
  CHECK(all_values(a, 2) == Values{0, 0, 1, 1});
  CHECK(all_values(b, 1) == Values{0, 0});
  CHECK(all_values(a, 1) == Values{2, 2});
}

TEST_CASE("random numbers differ between replicas, steps, and the steps of a Replicator, and come back with the seed") {
  const auto draw = [](std::uint64_t seed, int ordinal) {
    Replicator repl{on_devices(2, 1, seed)};
    const auto step = [](ReplicaContext& replica, Tensor<float>) { return uniform<float>(replica, {1}); };
    auto a = repl.replicate(endless, step);
    auto b = repl.replicate(endless, step);
    return all_values(ordinal ? b : a, 2);
  };
  const auto first = draw(1, 0), other = draw(1, 1);
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) CHECK(first[i] != first[k]);
    CHECK(first[i] != other[i]);
  }
  CHECK(draw(1, 0) == first);
  CHECK(draw(2, 0) != first);
}

TEST_CASE("initial values come from seed and name, not from the order or place of the declaration") {
  const auto first = [](std::uint64_t seed, bool swapped) {
    Replicator repl{on_devices(2, swapped ? 2 : 1, seed)};
    auto train = repl.replicate(endless, [swapped](ReplicaContext& replica, Tensor<float>) {
      for (const int i : {0, 1})
        replica.variable<float>((i == 0) == swapped ? "b" : "a", {3}, Initializer::normal(0, 1),
                                {i ? VariableKind::mirrored : VariableKind::replica_local});
    });
    std::vector<float> values;
    for (const char* name : {"a", "b"})
      for (const float value : repl.value(name, 0).as<float>()) values.push_back(value);
    return values;
  };
  CHECK(first(3, false) == first(3, true));
  CHECK(first(3, false) != first(4, false));
  CHECK(first(3, false)[0] != first(3, false)[3]);
}

TEST_CASE("values can be looked at and set by name") {
  Replicator repl{on_devices(3, 2)};
  auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float>) {
    auto w = scalar(replica, "w", 1), s = scalar(replica, "s", 0, VariableKind::replica_local);
    s.assign(s.read() + w.read());
    return w.read();
  });
  repl.set("w", Array<float>{{}, {5}});
  CHECK(all_values(train, 1) == Values{5, 5, 5});
  CHECK(item(repl, "s", 2) == 5);
  repl.set("s", Array<float>{{}, {8}}, 1);  // of one replica
  CHECK((item(repl, "s", 0) == 5 && item(repl, "s", 1) == 8 && item(repl, "s", 2) == 5));
  (void)train.step();
  CHECK((item(repl, "s", 0) == 10 && item(repl, "s", 1) == 13));
  CHECK_THAT(error_of([&] { repl.set("w", Array<float>{{}, {8}}, 1); }), Catch::StartsWith("set at test_steps.cpp:") && Catch::Contains("\"w\" is mirrored"));
  CHECK(repl.declaration("s").kind == VariableKind::replica_local);
  CHECK_THAT(error_of([&] { repl.value("v"); }), Catch::StartsWith("value at test_steps.cpp:") && Catch::EndsWith(": there is no variable \"v\": there are \"s\", \"w\""));
  CHECK_THAT(error_of([&] { repl.set("w", Array<float>{{2}}.any()); }), Catch::Contains(": \"w\" is float32[] (declared at test_steps.cpp:"));
}

TEST_CASE("the digest follows values, and neither devices nor names' order") {
  const auto digest = [](int devices, std::uint64_t seed) {
    Replicator repl{on_devices(4, devices, seed)};
    auto train = repl.replicate(endless, [](ReplicaContext& replica, Tensor<float>) {
      replica.variable<float>("w", {3}, Initializer::normal(0, 1));
      auto s = scalar(replica, "s", 0, VariableKind::replica_local);
      s.assign(s.read() + static_cast<float>(replica.id()));
    });
    train.step();
    return repl.digest();
  };
  const auto first = digest(1, 3);
  CHECK(first.size() == 64);
  for (const int devices : {2, 3, 4}) CHECK(digest(devices, 3) == first);
  CHECK(digest(1, 4) != first);
}

TEST_CASE("explain says for each collective where it was asked for and how it is done") {
  Replicator repl{on_devices(4, 2)};
  auto train = repl.replicate(endless, [](ReplicaContext&, Tensor<float> x) {
    return all_reduce(x, Reduction::mean, {false, "loss"});
  });
  const auto text = train.explain();
  CHECK_THAT(text, Catch::Contains("all_reduce \"loss\" at test_steps.cpp:"));
  CHECK_THAT(text, Catch::Contains("4 B; ") || Catch::Contains("64 B; "));
  CHECK_THAT(text, Catch::Contains("1 different graph(s)"));
}

}  // namespace test_steps
