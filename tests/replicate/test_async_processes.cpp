// SPDX-License-Identifier: Apache-2.0
// The asynchronous regime over several processes: any process reads and updates any shard, and the loss of a process
// ends the job.
#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/async/async_peers.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/movement/broadcast_to.hpp>
#include <replicator/ops/observe.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/replicate/stop_on_signal.hpp>
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/resolve/replica_context.hpp>
#include <replicator/with/ucx.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_async_processes {

using namespace replicator;
using namespace replicator::detail;
using test::asynchronous;
using test::error_of;

namespace {

// Ones, `count` times; forever where count is negative.
auto ones(std::int64_t count) {
  return [count](const InputContext&) {
    return data::from_generator([count](std::int64_t position) -> std::optional<Array<float>> {
      if (position == count) return std::nullopt;
      return Array<float>{{}, {1}};
    });
  };
}

// Each update takes x from every element of both: both are minus the sum of all that arrived. The larger one takes so long that a reader would see it half
// updated.
template <class Optimizer>
Tensor<bool> descend(ReplicaContext& replica, const Optimizer& optimizer, Tensor<float> x) {
  const auto a = replica.variable<float>("a", {300000}, Initializer::zeros()), b = replica.variable<float>("b", {7}, Initializer::zeros());
  optimizer.minimize(replica, (sum(a.read()) + sum(b.read())) * x);
  return check(max(a.read()) == min(a.read()), "an update was read in part");
}
nn::Sgd plain() { return nn::sgd({.learning_rate = 1}); }

bool all_are(const AnyArray& array, float value) {
  const auto values = array.as<float>();
  return std::all_of(values.begin(), values.end(), [value](float v) { return v == value; });
}

void slowly(Tensor<float>& x, bool slow, int milliseconds) {
  if (!slow) return;
  x = host_callback(x, [milliseconds](const Observation&) { std::this_thread::sleep_for(std::chrono::milliseconds{milliseconds}); });
}

// The program's return value: the text after its messages on stderr.
std::string last_line(const std::string& text) { return text.substr(text.rfind('\n') + 1); }

// That all processes see which are forked later. A replica that waits for it stands still in every step but its first.
class SharedFlag {
 public:
  SharedFlag() : flag_{new (::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<bool>{false}} {}
  SharedFlag(const SharedFlag&) = delete;
  SharedFlag& operator=(const SharedFlag&) = delete;
  ~SharedFlag() { ::munmap(flag_, sizeof *flag_); }
  void raise() const { *flag_ = true; }
  void await() const { await(*flag_); }
  Tensor<float> await(Tensor<float> x) const {
    return host_callback(x, [flag = flag_](const Observation& at) {
      if (at.step > 0) await(*flag);
    });
  }

 private:
  static void await(const std::atomic<bool>& flag) {
    for (int i = 0; i < 30000 && !flag; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  std::atomic<bool>* flag_;
};

// Ends the job where the server fails.
class Listener final : public ShardListener {
 public:
  explicit Listener(transport::Job& job) : job_{job} {}
  void hear(const ShardCall&, std::span<const std::byte>) override {}
  void hear_left(int) override {}
  void hear_pause(int, std::uint64_t, std::uint64_t) override {}
  void fail(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError& failure) {
      job_.abort(failure.what(), failure.culprit());
    }
  }

 private:
  transport::Job& job_;
};

struct Layout {
  int processes, replicas, devices;  // devices: of each process
  std::optional<std::int64_t> staleness;
  int group;
  const char* transport;
};

}  // namespace

TEST_CASE("every update of every process is made once and read whole, and all processes end with the same variables") {
  for (const auto& layout : {Layout{2, 2, 1, {}, 1, "shared_memory"}, {3, 5, 1, {}, 1, "shared_memory"}, {2, 4, 2, {}, 1, "shared_memory"}, {2, 4, 2, 3, 1, "shared_memory"}, {3, 6, 1, 2, 1, "shared_memory"}, {2, 8, 2, {}, 2, "shared_memory"}, {2, 8, 2, 4, 4, "shared_memory"}, {2, 2, 1, {}, 1, "ucx"}, {2, 4, 2, 3, 1, "ucx"}}) {
    const auto results = test::run_as_job(layout.processes, [&](int) {
      auto deployment = asynchronous(layout.replicas, layout.devices, layout.staleness, layout.group);
      deployment.transport = layout.transport;
      Replicator repl{deployment};
      std::string text;
      {
        auto train = repl.replicate(ones(20), [](ReplicaContext& replica, Tensor<float> x) {
          const auto whole = descend(replica, nn::sgd({.learning_rate = 1, .momentum = 0.5}), x);
          return std::tuple{whole, x + static_cast<float>(replica.id())};
        });
        while (!train.finished()) {
          const auto [whole, x] = train.step();
          for (int replica = 0; replica < layout.replicas; ++replica)
            if (x[replica].item() != static_cast<float>(replica + 1)) throw DataError{"the result of another replica"};
        }
        text = std::to_string(train.steps_done()) + " steps ";
        if (error_of([&] { train.step(); }).find("the input has ended after") == std::string::npos) throw DataError{"no end"};
      }
      const int updates = 20 * layout.replicas / layout.group;
      float velocity = 0, sum = 0;
      for (int i = 0; i < updates; ++i) sum -= velocity = 0.5f * velocity + 1;
      for (const char* name : {"a", "b"})
        if (!all_are(repl.value(name), repl.value("b").as<float>()[0]) || std::abs(repl.value(name).as<float>()[0] - sum) > 1e-2f)
          throw DataError{std::string{name} + " is " + std::to_string(repl.value(name).as<float>()[0]) + ", not " + std::to_string(sum)};
      return text + repl.digest();
    });
    INFO(layout.processes << " processes, " << layout.replicas << " replicas\n"
                          << test::describe(results));
    CHECK_THAT(results[0].text, Catch::StartsWith("20 steps "));
    for (const auto& result : results) {
      CHECK(result.exit_code == 0);
      CHECK(result.text == results[0].text);
    }
  }
}

TEST_CASE("what an optimizer counts are the updates of all processes") {
  const auto results = test::run_as_job(2, [](int) {
    Replicator repl{asynchronous(2, 1)};
    auto train = repl.replicate(ones(10), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, nn::adam({.learning_rate = 0.01}), x); });
    while (!train.finished()) train.step();
    const auto during = std::to_string(repl.value("a/updates").as<std::int64_t>()[0]);  // of the owner's, whoever that is
    return during + " " + std::to_string(std::lround(repl.value("a").as<float>()[299999] * 1000));
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == "20 -200");
}

TEST_CASE("each replica of every process keeps its replica-local variables") {
  for (const int devices : {1, 2}) {
    const auto results = test::run_as_job(2, [&](int self) {
      Replicator repl{asynchronous(4, devices)};
      auto step = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) {
        const auto made = replica.variable<float>("made", {}, Initializer::zeros(), {VariableKind::replica_local});
        const auto weighed = replica.variable<float>("weighed", {3}, Initializer::zeros(), {VariableKind::replica_local});
        made.assign(made.read() + x);
        weighed.assign(weighed.read() + x * static_cast<float>(replica.id() + 1));
        plain().minimize(replica, sum(replica.variable<float>("w", {5}, Initializer::zeros()).read()) * x);
        return x;
      });
      for (int i = 0; i < 5; ++i) step.step();
      bool right = repl.first_replica() == 2 * self && repl.local_replicas() == 2;
      for (int local = 0; local < repl.local_replicas(); ++local) {
        const float made = repl.value("made", local).as<float>()[0];
        right &= made >= 1 && all_are(repl.value("weighed", local), made * static_cast<float>(repl.first_replica() + local + 1));
      }
      return std::string{right ? "right" : "wrong"};
    });
    INFO(test::describe(results));
    for (const auto& result : results) CHECK(last_line(result.text) == "right");
  }
}

TEST_CASE("steps are counted over all processes: one that stands still holds nobody up, and who is done serves it until its end") {
  const SharedFlag go_on;
  const auto results = test::run_as_job(2, [&](int process) {
    Replicator repl{asynchronous(2, 1)};
    {
      auto train = repl.replicate(ones(-1), [&](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), replica.id() == 1 ? go_on.await(x) : x); });
      for (int step = 0; step < 40; ++step) train.step();
      if (process == 0) go_on.raise();
    }
    const float updates = -repl.value("a").as<float>()[0];
    if (updates < 80 || updates > 82) throw DataError{std::to_string(updates) + " updates"};
    return repl.digest();
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.text == results[0].text);
  }
}

TEST_CASE("a bound of staleness holds up other processes, until a deadline that names on all who is late") {
  const SharedFlag go_on;
  const auto results = test::run_as_job(3, [&](int) {
    auto deployment = asynchronous(3, 1, 4);
    deployment.deadline = std::chrono::seconds{3};
    Replicator repl{deployment};
    int culprit = -1;
    const auto text = error_of([&] {
      auto train = repl.replicate(ones(-1), [&](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), replica.id() == 2 ? go_on.await(x) : x); });
      try {
        for (int step = 0; step < 1000; ++step) train.step();
      } catch (const CommunicationError& error) {
        go_on.raise();
        culprit = error.culprit();
        throw;
      }
    });
    return text + " culprit " + std::to_string(culprit);
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.text, Catch::Contains("waited until the deadline for replica 2"));
    CHECK_THAT(result.text, Catch::Contains("whose gradient would be older than --staleness 4"));
    CHECK_THAT(result.text, Catch::EndsWith("culprit 2"));
  }
}

TEST_CASE("the bound is kept: no update is older than it, whoever made it") {
  const auto results = test::run_as_job(2, [](int) {
    Replicator repl{asynchronous(4, 2, 3)};
    auto train = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) {
      slowly(x, replica.id() == 3, 3);
      descend(replica, plain(), x);
    });
    for (int step = 0; step < 60; ++step) train.step();
    const auto text = train.explain();
    int largest = -1;
    for (auto at = text.find(" in the mean, "); at != std::string::npos; at = text.find(" in the mean, ", at + 1)) largest = std::max(largest, std::stoi(text.substr(at + 14)));
    return std::to_string(largest);
  });
  INFO(test::describe(results));
  CHECK(std::max(std::stoi(results[0].text), std::stoi(results[1].text)) >= 1);  // "a" and "b" are on process 0
  for (const auto& result : results) CHECK(std::stoi(result.text) <= 3);
}

TEST_CASE("two steps that share variables alternate over processes, each of what the other left") {
  const auto results = test::run_as_job(2, [](int) {
    Replicator repl{asynchronous(2, 1)};
    const auto player = [](const char* own, const char* other) {
      return [=](ReplicaContext& replica, Tensor<float> x) {
        const auto w = replica.variable<float>(own, {500}, Initializer::zeros()), seen = replica.variable<float>(other, {500}, Initializer::zeros());
        plain().minimize(replica, sum(w.read()) * x, {{w}});
        return max(seen.read());
      };
    };
    auto first = repl.replicate(ones(-1), player("generator", "discriminator"));
    auto second = repl.replicate(ones(-1), player("discriminator", "generator"));
    std::string text;
    std::set<float> left{0};  // by the first to the second, whose latest results are of this round or, where others made its updates, of one before
    for (int round = 0; round < 6; ++round) {
      first.step();
      text += repl.digest();  // all rest
      left.insert(repl.value("generator").as<float>()[0]);
      const auto [seen] = second.step();
      for (int replica = 0; replica < 2; ++replica)
        if (!left.contains(seen[replica].item())) throw DataError{"replica " + std::to_string(replica) + " computes from values that were not left"};
    }
    return text + repl.digest();
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.text == results[0].text);
  }
}

TEST_CASE("two steps lose no update of a variable that each has at another process, in turns and where one ends while the other is at work") {
  const auto results = test::run_as_job(2, [](int) {
    Replicator repl{asynchronous(2, 1)};
    // The larger variable's shard is on process 0, the other's on process 1.
    const auto minimise_with = [&](const char* other, std::int64_t size) {
      return std::optional{repl.replicate(ones(20), [=](ReplicaContext& replica, Tensor<float> x) {
        const auto shared = replica.variable<float>("shared", {500}, Initializer::zeros()), rest = replica.variable<float>(other, {size}, Initializer::zeros());
        plain().minimize(replica, (sum(shared.read()) + sum(rest.read())) * x);
      })};
    };
    auto first = minimise_with("smaller", 20), second = minimise_with("larger", 1000);
    while (!second->finished()) {
      first->step();
      second->step();
    }
    first.reset();
    if (!all_are(repl.value("shared"), -80)) throw DataError{"shared is " + std::to_string(repl.value("shared").as<float>()[0])};
    return repl.digest();
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.text == results[0].text);
  }
}

TEST_CASE("who waits for a replica that waits for its input is told so, whatever others do meanwhile") {
  const SharedFlag go_on;
  const auto results = test::run_as_job(2, [&](int process) {
    auto deployment = asynchronous(2, 1);
    deployment.late = std::chrono::milliseconds{200};
    Replicator repl{deployment};
    const auto held_up = [&](const InputContext& ctx) {
      return data::from_generator([&go_on, held = ctx.replica() == 0](std::int64_t position) {
        if (held && position == 2) go_on.await();
        return Array<float>{{}, {1}};
      });
    };
    auto train = repl.replicate(held_up, [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
    for (int step = 0; step < 4; ++step) train.step();
    if (process == 0) repl.value("b");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{2};
    while (process == 1 && std::chrono::steady_clock::now() < end) train.step();
    go_on.raise();
    return std::string{"passed"};
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::Contains("replicator: waiting for a step of replica 0 (at step 1)"));
  CHECK_THAT(results[0].text, Catch::Contains("replicator: the input of replica 0 has not given element 2 for more than 200 ms"));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::EndsWith("passed"));
}

TEST_CASE("a step without updates is made once by each replica of every process for each call, of what was set") {
  const auto results = test::run_as_job(2, [](int) {
    Replicator repl{asynchronous(4, 1)};
    auto train = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
    auto validate = repl.replicate(ones(3), [](ReplicaContext& replica, Tensor<float> x) {
      const auto b = replica.variable<float>("b", {7}, Initializer::zeros()).read();
      return std::tuple{max(b) * x, broadcast_to(max(b), {2000})};
    });
    train.step();
    train.step();
    repl.set("b", Array<float>{{7}, {5, 5, 5, 5, 5, 5, 5}}.any());
    const auto results = validate.step();  // no structured binding: clang does not capture it
    const auto &small = std::get<0>(results), &large = std::get<1>(results);
    if (mean(small) != 5 || large.whole() || large[2 * repl.process()][7] != 5) throw DataError{"other values"};
    validate.step();
    validate.step();
    return std::to_string(validate.finished()) + error_of([&] { large[2 - 2 * repl.process()]; });
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::StartsWith("1the value of replica ") && Catch::Contains("is on another host"));
}

TEST_CASE("a process that is killed is named on all others, soon") {
  const auto results = test::run_as_job(3, [](int process) {
    Replicator repl{asynchronous(3, 1)};
    auto train = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
    return error_of([&] {
      for (int step = 0;; ++step) {
        train.step();
        if (process == 1 && step == 5) ::kill(::getpid(), SIGKILL);
      }
    });
  });
  INFO(test::describe(results));
  for (const int survivor : {0, 2}) {
    CHECK(results[static_cast<std::size_t>(survivor)].exit_code == 0);
    CHECK_THAT(results[static_cast<std::size_t>(survivor)].text, Catch::Contains("process 1 (pid ") && Catch::Contains(" died: its connection closed"));
    CHECK(results[static_cast<std::size_t>(survivor)].seconds < 30);
  }
}

// Training, validation, digests, steps that are made and left: for ever.
void go_on(Replicator& repl) {
  for (;;) {
    auto train = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
    auto validate = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) {
      return max(replica.variable<float>("b", {7}, Initializer::zeros()).read()) * x;
    });
    for (int round = 0; round < 3; ++round) {
      for (int step = 0; step < 4; ++step) train.step();
      validate.step();
      repl.digest();
    }
  }
}

TEST_CASE("a process that is lost at any moment, in whatever all are at, is named on all others") {
  struct Lost {
    int signal, process, milliseconds;
    const char* transport;
  };
  for (const auto& lost : {Lost{SIGKILL, 1, 0, "shared_memory"}, {SIGKILL, 1, 7, "shared_memory"}, {SIGKILL, 1, 25, "shared_memory"}, {SIGKILL, 0, 40, "shared_memory"}, {SIGKILL, 1, 120, "shared_memory"}, {SIGKILL, 2, 60, "ucx"}, {SIGSTOP, 1, 50, "shared_memory"}}) {
    const auto results = test::run_as_job(3, [&lost](int process) {
      auto deployment = asynchronous(3, 1, 4);
      deployment.transport = lost.transport;
      Replicator repl{deployment};
      if (process == lost.process)
        std::thread{[&lost] {
          std::this_thread::sleep_for(std::chrono::milliseconds{lost.milliseconds});
          ::kill(::getpid(), lost.signal);
        }}.detach();
      return error_of([&] { go_on(repl); });
    });
    INFO("signal " << lost.signal << " to process " << lost.process << " after " << lost.milliseconds << " ms\n"
                   << test::describe(results));
    for (int survivor = 0; survivor < 3; ++survivor) {
      if (survivor == lost.process) continue;
      const auto& result = results[static_cast<std::size_t>(survivor)];
      CHECK(result.exit_code == 0);
      CHECK_THAT(last_line(result.text), Catch::StartsWith("process " + std::to_string(lost.process) + " (pid ") && Catch::Contains(" died"));
    }
  }
}

TEST_CASE("processes whose programs part ways are told where") {
  const auto results = test::run_as_job(2, [](int process) {
    Replicator repl{asynchronous(2, 1)};
    return error_of([&] {
      auto train = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
      auto validate = repl.replicate(ones(-1), [](ReplicaContext&, Tensor<float> x) { return x; });
      train.step();
      if (process == 0) validate.step();
      else repl.digest();
    });
  });
  INFO(test::describe(results));
  for (const auto& result : results)
    CHECK_THAT(result.text, Catch::Contains("asks for the exchange \"replicas at rest: another step is called\", and process 1 ") &&
                                Catch::Contains("asks for \"replicas at rest: a digest is made\""));
}

TEST_CASE("an error of one process is told to all: of a replica's step, or of the program between steps") {
  for (const bool in_step : {true, false}) {
    const auto results = test::run_as_job(2, [in_step](int process) {
      Replicator repl{asynchronous(2, 1)};
      return error_of([&] {
        auto train = repl.replicate(ones(-1), [in_step](ReplicaContext& replica, Tensor<float> x) {
          if (in_step && replica.id() == 1)
            x = host_callback(x, [](const Observation& at) {
              if (at.step == 5) throw DataError{"five are enough"};
            });
          descend(replica, plain(), x);
        });
        for (int step = 0;; ++step) {
          train.step();
          if (!in_step && process == 1 && step == 5) throw DataError{"five are enough"};
        }
      });
    });
    INFO(test::describe(results));
    CHECK_THAT(results[0].text, Catch::Contains("process 1 (pid ") && Catch::Contains(in_step ? "five are enough" : "the program left its steps by an error of its own"));
    CHECK_THAT(results[1].text, Catch::Contains("five are enough"));
    for (const auto& result : results) CHECK(result.exit_code == 0);
  }
}

TEST_CASE("an error that all processes find while a step is made ends that call alone, while another step's replicas are at work") {
  const auto results = test::run_as_job(2, [](int) {
    Replicator repl{asynchronous(4, 1)};
    const auto refused = [&](auto mistake) { return error_of([&] { repl.replicate(ones(-1), mistake); }) + "; "; };
    auto train = repl.replicate(ones(40), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
    train.step();
    std::string told = refused([](ReplicaContext&, Tensor<float>) { throw BuildError{"I do not like this"}; });
    train.step();
    told += refused([](ReplicaContext& replica, Tensor<float>) { descend(replica, plain(), replica.variable<float>("c", {2}, Initializer::ones()).read()); });
    while (!train.finished()) train.step();
    repl.digest();
    return told.substr(0, told.find(';')) + (all_are(repl.value("a"), -4 * 40) ? " but went on" : "");
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::StartsWith("I do not like this (in the step_fn given to replicate at ") && Catch::EndsWith(") but went on"));
}

TEST_CASE("a call for what its process cannot ask is refused with the name of that process, and ends the job") {
  using Kind = ShardCall::Kind;
  const auto refused = [](const ShardCall& call) {
    const auto results = test::run_as_job(2, [&call](int process) {
      Host host{asynchronous(2, 1)};
      Graph graph{process, 2};
      ReplicaContext replica{graph};
      descend(replica, plain(), Tensor<float>{graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {TensorType{DType::float32, {}}}, {}, "x"}))});
      AsyncPrograms programs{host, {&graph, 1}, 0};
      const ShardRanks ranks{programs.placement()};
      auto messengers = collectives::connect_messengers("shared_memory", host.job(), ranks.process_of_rank());
      return error_of([&] {
        host.failure().told([&] {
          Listener listener{host.job()};
          StopAgreement stop{host.job(), {}};
          if (process == 0) ShardServer{std::move(messengers.back()), host.job(), programs, ranks, stop, listener};
          else messengers[0]->send(std::as_bytes(std::span{&call, 1}), ranks.server(0), slots::call);
          messengers[0]->wait([] { return false; }, std::chrono::steady_clock::now() + std::chrono::seconds{30});
        });
      });
    });
    INFO(test::describe(results));
    CHECK(results[0].text == results[1].text);
    return results[1].text;
  };
  for (const auto kind : {Kind::read, Kind::update, Kind::report})
    for (const int group : {-1, 0, 2})  // 0: of the other process
      CHECK_THAT(refused({.kind = kind, .group = group}), Catch::StartsWith("process 1 (pid ") && Catch::Contains("makes a call for group " + std::to_string(group) + ", which it does not have"));
  CHECK_THAT(refused({.kind = Kind::read, .group = 1, .shard = 7}), Catch::Contains("shard 7 was asked for at process 0"));
  CHECK_THAT(refused({.kind = Kind::value, .shard = 0, .variable = 7}), Catch::Contains("variable 7 of shard 0 was asked for at process 0"));
  CHECK_THAT(refused({.kind = static_cast<Kind>(99)}), Catch::Contains("makes a call that no server knows"));
}

// Programs of two steps, one of which updates nothing, and of several lengths: process 1 gets a signal after its `at`-th call.
TEST_CASE("a signal that one process catches stops all after the same call, of whichever step, however far each is") {
  for (const int at : {1, 3, 4, 5, 6, 7, 12}) {
    const auto results = test::run_as_job(3, [at](int process) {
      const StopOnSignal stop;
      auto deployment = asynchronous(3, 1);
      deployment.deadline = std::chrono::seconds{10};
      Replicator repl{deployment};
      auto train = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
      auto validate = repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) {
        return max(replica.variable<float>("b", {7}, Initializer::zeros()).read()) * x;
      });
      int calls = 0;
      const auto made = [&](int pause) {
        if (++calls == at && process == 1) ::raise(SIGTERM);
        std::this_thread::sleep_for(std::chrono::milliseconds{pause});
      };
      const auto body = [&](auto& step, std::int64_t count, int slowest) {
        for ([[maybe_unused]] const auto& given : step.steps(count)) made(process == slowest ? 20 : 0);
      };
      for (int round = 0; round < 1000 && repl.stop_signal() == 0; ++round) {
        body(train, 4, round % 3);
        if (repl.stop_signal() == 0) body(validate, 2, (round + 1) % 3);
      }
      return std::to_string(calls) + " calls, " + std::to_string(train.steps_done()) + " + " + std::to_string(validate.steps_done()) + ", signal " +
             std::to_string(repl.stop_signal()) + ", " + repl.digest();
    });
    INFO("after call " << at << "\n"
                       << test::describe(results));
    for (const auto& result : results) {
      CHECK_THAT(result.text, Catch::Contains(", signal " + std::to_string(SIGTERM)));
      CHECK(last_line(result.text) == last_line(results[0].text));
    }
  }
}

TEST_CASE("signals that all processes catch at once stop them after the same step, which some are far ahead of") {
  for (const bool updates : {true, false}) {
    const auto results = test::run_as_job(3, [updates](int process) {
      const StopOnSignal stop;
      auto deployment = asynchronous(3, 1);
      deployment.deadline = std::chrono::seconds{10};
      Replicator repl{deployment};
      auto step = repl.replicate(ones(-1), [updates](ReplicaContext& replica, Tensor<float> x) {
        if (updates) descend(replica, plain(), x);
        return x;
      });
      for ([[maybe_unused]] const auto& given : step.steps(1'000'000)) {
        if (process == 2) std::this_thread::sleep_for(std::chrono::milliseconds{10});
        if (step.steps_done() == 5) ::raise(process == 0 ? SIGINT : SIGTERM);
      }
      return std::to_string(step.steps_done()) + " steps, signal " + std::to_string(repl.stop_signal());
    });
    INFO(test::describe(results));
    for (const auto& result : results) {
      CHECK(last_line(result.text) == last_line(results[0].text));
      CHECK_THAT(result.text, Catch::Contains("steps, signal ") && !Catch::EndsWith("signal 0"));
    }
  }
}

TEST_CASE("a process that makes fewer calls of a step than others leaves them theirs, until their input has ended") {
  enum class Then {
    nothing,
    leaves_another_step,
    meets
  };
  for (const auto& [devices, then] : {std::pair{1, Then::nothing}, {2, Then::nothing}, {1, Then::leaves_another_step}, {1, Then::meets}}) {
    const auto results = test::run_as_job(3, [devices = devices, then = then](int process) {
      auto deployment = asynchronous(3 * devices, devices);
      deployment.deadline = std::chrono::seconds{10};
      Replicator repl{deployment};
      std::string text;
      {
        auto train = repl.replicate([](const InputContext& ctx) { return ones(ctx.replica() == 0 ? 40 : 100)(ctx); },
                                    [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); });
        std::optional<decltype(train)> other;
        if (then == Then::leaves_another_step) other.emplace(repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); }));
        for (int step = 0; !train.finished() && (process != 1 || step < 10); ++step) train.step();
        if (process != 1) text = std::to_string(train.steps_done()) + " steps, ";
        other.reset();
        if (then == Then::meets) repl.digest();
      }
      return text + std::to_string(repl.value("b").as<float>()[0]) + " " + repl.digest();
    });
    INFO(test::describe(results));
    for (const auto& result : results) CHECK(result.exit_code == 0);
    CHECK(results[2].text == results[0].text);
    CHECK(results[0].text.ends_with(results[1].text));
  }
}

TEST_CASE("a process that leaves a step without updates, which others go on with, is named to all") {
  const auto results = test::run_as_job(2, [](int process) {
    Replicator repl{asynchronous(2, 1)};
    return error_of([&] {
      auto validate = repl.replicate(ones(-1), [](ReplicaContext&, Tensor<float> x) { return x; });
      for (int call = 0; call < (process == 1 ? 3 : 20); ++call) validate.step();
    });
  });
  INFO(test::describe(results));
  CHECK_THAT(results[0].text, Catch::EndsWith("call 4 of this step needs a step of replica 1 (on process 1), which has made 3 and makes no other: its process "
                                              "has gone on. Make as many calls on every process"));
  for (const auto& result : results) CHECK(result.exit_code == 0);
}

TEST_CASE("steps that processes leave in opposite orders, so that each waits for the other, are an error on all, soon") {
  for (const int processes : {2, 3}) {
    const auto results = test::run_as_job(processes, [&](int process) {
      Replicator repl{asynchronous(processes, 1)};
      const auto found = error_of([&] {
        const auto replicate = [&] { return repl.replicate(ones(-1), [](ReplicaContext& replica, Tensor<float> x) { descend(replica, plain(), x); }); };
        std::optional one{replicate()}, other{replicate()};
        one->step();
        (process == 1 ? other : one).reset();
        one.reset();
        other.reset();
        repl.value("b");
      });
      const auto again = error_of([&] { repl.digest(); });
      return again == found ? found : "digest() answers otherwise";
    });
    INFO(test::describe(results));
    for (const auto& result : results) {
      CHECK_THAT(result.text, Catch::Contains("waits at the end of step ") && Catch::Contains("process 1"));
      CHECK_THAT(result.text, Catch::EndsWith(": steps must be destroyed in the same order on every process"));
      CHECK(result.exit_code == 0);
    }
  }
}

TEST_CASE("groups that would span processes, and a bound that all processes together cannot keep, are refused by all") {
  const auto refused = [](Deployment deployment, int processes) {
    const auto results = test::run_as_job(processes, [&](int) { return error_of([&] { Replicator{deployment}; }); });
    INFO(test::describe(results));
    for (const auto& result : results) CHECK(result.text == results[0].text);
    return results[0].text;
  };
  CHECK_THAT(refused(asynchronous(6, 1, {}, 2), 2),
             Catch::Contains("--sync-group 2 makes a group of replicas 2 to 3, of which 1 would be on process 0 and others on the next: a group is on one process"));
  CHECK_THAT(refused(asynchronous(4, 1, {}, 4), 2), Catch::Contains("of which 2 would be on process 0"));
  CHECK_THAT(refused(asynchronous(4, 2, 2), 2), Catch::Contains("--staleness is 2, but 4 groups of replicas compute at once on 4 devices of 2 processes"));
}

TEST_CASE("processes that differ in the regime are told so") {
  const auto results = test::run_as_job(2, [](int process) {
    return error_of([&] { Replicator{process == 0 ? asynchronous(2, 1) : test::on_devices(2, 1)}; });
  });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::Contains("--regime, --staleness and --sync-group"));
}

}  // namespace test_async_processes
