// SPDX-License-Identifier: Apache-2.0
// When a step call of the asynchronous regime is done, and which call is the last. Runs without threads: the test
// supplies each process's messages.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/async_elements.hpp>
#include <replicator/async/async_progress.hpp>

#include "../support/errors.hpp"

namespace test_async_progress {

using namespace replicator;
using namespace replicator::detail;

namespace {

constexpr bool with_updates = true, without_updates = false;

AnyArray number(float value) { return Array<float>{{}, {value}}.any(); }
AsyncReport report(std::uint64_t steps, bool ended = false) {
  AsyncReport result{.steps = steps, .ended = ended};
  result.results.emplace_back().push_back(number(static_cast<float>(steps)));
  return result;
}
// A step of a group of this process.
void make(AsyncProgress& progress, int group, bool ended = false) {
  const auto number = progress.steps(group) + 1;
  progress.begin(group);
  progress.count(group, report(number, ended));
  progress.rest(group);
}
using Groups = std::vector<int>;

}  // namespace

TEST_CASE("calls that update are counted over all groups, of which each has made one step") {
  AsyncProgress progress{{0, 0, 0}, 0, with_updates};
  CHECK_FALSE(progress.wants(0));  // nothing was asked for
  progress.call(0);
  make(progress, 0);
  make(progress, 0);
  make(progress, 1);
  CHECK_FALSE(progress.enough());  // three, but none of group 2
  CHECK_FALSE(progress.wants(0));
  CHECK(progress.wants(2));
  make(progress, 2);
  CHECK(progress.enough());
  CHECK_FALSE(progress.ended());
  progress.call(0);
  for (int step = 0; step < 2; ++step) {
    CHECK_FALSE(progress.enough());
    CHECK(progress.wants(1));
    make(progress, 1);
  }
  CHECK(progress.enough());                           // six, whoever made them
  CHECK(progress.results(0)[1].as<float>()[0] == 3);  // of the latest step of each
  CHECK(progress.results(0)[2].as<float>()[0] == 1);
}

TEST_CASE("without updates each group makes a step for each call, and a report for a call that this process has not made waits for it") {
  AsyncProgress progress{{0, 1}, 0, without_updates};
  progress.hear(1, report(1));
  CHECK(progress.steps(1) == 0);
  progress.call(0);
  CHECK(progress.steps(1) == 1);
  make(progress, 0);
  CHECK(progress.enough());
  CHECK_FALSE(progress.wants(0));
  progress.hear(1, report(2, true));
  CHECK(progress.results(0)[1].as<float>()[0] == 1);
  CHECK_FALSE(progress.ended());
  progress.call(0);
  CHECK_FALSE(progress.enough());
  CHECK(progress.wants(0));
  make(progress, 0);
  CHECK(progress.enough());
  CHECK(progress.ended());
}

TEST_CASE("a group in a step is not asked for another, and does not rest until it has told of it") {
  AsyncProgress progress{{0, 0}, 0, with_updates};
  progress.call(0);
  progress.begin(1);
  CHECK(progress.is_busy(1));
  CHECK_FALSE(progress.wants(1));
  CHECK(progress.busy() == Groups{1});
  progress.count(1, report(1));
  CHECK(progress.busy() == Groups{1});
  progress.rest(1);
  CHECK(progress.busy().empty());
}

TEST_CASE("inputs that end make the last call: that by which all their updates are counted") {
  for (const int last : {2, 3}) {  // three updates are two calls of two groups, and so are four
    AsyncProgress progress{{0, 0}, 0, with_updates};
    progress.call(0);
    make(progress, 0, true);
    make(progress, 1);
    CHECK(progress.enough());
    CHECK_FALSE(progress.ended());
    CHECK_FALSE(progress.wants(0));
    progress.call(0);
    while (progress.steps(1) + 1 < static_cast<std::uint64_t>(last)) make(progress, 1);
    CHECK_FALSE(progress.enough());
    make(progress, 1, true);
    CHECK(progress.enough());
    CHECK(progress.ended());
  }
}

TEST_CASE("a process that has left brings nothing more: the call that finds too little is the last") {
  AsyncProgress progress{{0, 1}, 0, with_updates};
  progress.call(0);
  make(progress, 0);
  progress.hear(1, report(1));
  progress.call(0);
  make(progress, 0, true);
  CHECK_FALSE(progress.enough());
  progress.hear_left(1);
  CHECK(progress.enough());
  CHECK_FALSE(progress.missing());
  CHECK(progress.ended());

  AsyncProgress alone{{0, 1}, 0, with_updates};  // as long as its own input has elements, it goes on
  alone.call(0);
  make(alone, 0);
  alone.hear(1, report(1));
  alone.hear_left(1);
  CHECK(alone.enough());
  CHECK_FALSE(alone.ended());
  alone.call(0);
  make(alone, 0);
  CHECK_FALSE(alone.enough());
  make(alone, 0);
  CHECK(alone.enough());
}

TEST_CASE("a process that has left without what a call needs is missing there") {
  AsyncProgress trained{{0, 1, 1}, 0, with_updates};
  trained.call(0);
  trained.hear(1, report(1));
  trained.hear_left(1);
  CHECK(trained.missing() == 2);

  AsyncProgress validated{{0, 1}, 0, without_updates};
  validated.hear(1, report(1));
  validated.hear_left(1);
  validated.call(0);
  CHECK_FALSE(validated.missing());
  make(validated, 0);
  CHECK(validated.enough());
  validated.call(0);
  CHECK(validated.missing() == 1);

  AsyncProgress finished{{0, 1}, 0, without_updates};  // whose input has ended: all know so after the same call
  finished.call(0);
  finished.hear(1, report(1, true));
  finished.hear_left(1);
  make(finished, 0);
  CHECK(finished.ended());
  CHECK_FALSE(finished.missing());
}

TEST_CASE("a process that has come to a barrier brings nothing until all have passed it, once all that it made was heard of") {
  AsyncProgress progress{{0, 1, 1}, 0, with_updates};
  progress.call(4);
  make(progress, 0, true);
  progress.hear_pause(1, 3, 4);  // it may overtake reports
  progress.hear(1, report(1));
  progress.hear(2, report(1));
  CHECK(progress.enough());
  CHECK_FALSE(progress.ended());
  progress.call(4);
  CHECK_FALSE(progress.enough());
  progress.hear(1, report(2));
  CHECK(progress.enough());
  CHECK(progress.ended());
  progress.call(5);  // all have met since
  CHECK_FALSE(progress.enough());
  CHECK(progress.running() == Groups{1, 2});
}

TEST_CASE("at work are those who are in a step that is needed, and groups elsewhere that may be") {
  AsyncProgress progress{{0, 0, 1, 2}, 0, with_updates};
  progress.call(0);
  progress.begin(1);
  CHECK(progress.running() == Groups{1, 2, 3});
  progress.hear(2, report(1, true));
  CHECK(progress.running() == Groups{1, 3});
  progress.hear_left(2);
  CHECK(progress.running() == Groups{1});
  progress.count(1, report(1));
  progress.rest(1);
  for (int step = 0; step < 4; ++step) progress.hear(2, report(2));
  CHECK(progress.running().empty());  // enough updates; the step of group 0 is wanted, but nobody makes it

  AsyncProgress validated{{0, 1, 1}, 0, without_updates};
  validated.call(0);
  validated.hear(1, report(1));
  CHECK(validated.running() == Groups{2});
}

namespace {

// Processes that tell each other of their groups' steps, in order, but as late as the draws say. Each makes calls until none can be made, or as many as its own limit.
class Job {
 public:
  Job(std::vector<int> process_of_group, std::vector<std::uint64_t> elements, const std::vector<std::uint64_t>& limits)
      : owners_{std::move(process_of_group)}, elements_{std::move(elements)} {
    for (std::size_t p = 0; p < limits.size(); ++p)
      processes_.push_back({AsyncProgress{owners_, static_cast<int>(p), with_updates}, limits[p], std::vector<std::deque<Message>>(limits.size())});
  }
  // Calls of each process that has found the end by itself.
  std::vector<std::uint64_t> run(std::mt19937& random) {
    for (int action = 0; !idle(); ++action) {
      RC_ASSERT(action < 1'000'000);
      act(random() % actions());
    }
    std::vector<std::uint64_t> calls;
    for (const auto& process : processes_)
      if (process.calls_made < process.limit || process.progress.ended()) calls.push_back(process.calls_made);
    return calls;
  }

 private:
  struct Message {
    int group;  // -1: the sender has left, or pauses after so many steps
    std::uint64_t steps;
    bool ended;
  };
  struct Process {
    AsyncProgress progress;
    std::uint64_t limit;
    std::vector<std::deque<Message>> inbox;  // by sender
    std::uint64_t calls_made = 0;            // done
    bool left = false;
  };
  // Whatever can happen next: a call, a group's step, the arrival of a message.
  std::size_t actions() const { return processes_.size() + owners_.size() + processes_.size() * processes_.size(); }
  void act(std::size_t action) {
    const auto count = processes_.size();
    if (action < count) return go_on(action);
    if (action < count + owners_.size()) return step(static_cast<int>(action - count));
    const auto pair = action - count - owners_.size();
    deliver(processes_[pair % count], pair / count);
  }
  bool idle() const {
    return std::all_of(processes_.begin(), processes_.end(), [](const Process& process) { return process.left; });
  }
  void go_on(std::size_t p) {
    auto& process = processes_[p];
    if (process.left) return;
    if (process.progress.calls() > process.calls_made && !process.progress.enough()) return;
    process.calls_made = process.progress.calls();
    const bool done = process.calls_made == process.limit || (process.calls_made > 0 && process.progress.ended());
    if (!done) return process.progress.call(0);
    process.left = true;
    for (auto& other : processes_)
      if (p % 2 == 0) other.inbox[p].push_back({-1, 0, false});
      else other.inbox[p].push_front({-1, process.progress.steps_of(static_cast<int>(p)), false});  // of a pause; it overtakes reports
  }
  void step(int group) {
    auto& process = processes_[static_cast<std::size_t>(owners_[static_cast<std::size_t>(group)])];
    if (process.left || !process.progress.wants(group)) return;
    const auto number = process.progress.steps(group) + 1;
    const bool ended = number == elements_[static_cast<std::size_t>(group)];
    make(process.progress, group, ended);
    for (auto& other : processes_)
      if (&other != &process) other.inbox[static_cast<std::size_t>(owners_[static_cast<std::size_t>(group)])].push_back({group, number, ended});
  }
  static void deliver(Process& process, std::size_t from) {
    auto& inbox = process.inbox[from];
    if (inbox.empty()) return;
    const auto message = inbox.front();
    inbox.pop_front();
    if (message.group < 0 && message.steps > 0) process.progress.hear_pause(static_cast<int>(from), message.steps, 0);
    else if (message.group < 0) process.progress.hear_left(static_cast<int>(from));
    else process.progress.hear(message.group, report(message.steps, message.ended));
  }

  std::vector<int> owners_;
  std::vector<std::uint64_t> elements_;
  std::vector<Process> processes_;
};

}  // namespace

TEST_CASE("all processes find the end after the same call, whatever they had heard by then, and none waits for ever") {
  CHECK(rc::check([] {
    const int processes = *rc::gen::element(1, 2, 3, 3, 4);
    std::vector<int> owners;
    std::vector<std::uint64_t> elements, limits;
    std::uint64_t all = 0;
    for (int p = 0; p < processes; ++p) {
      owners.insert(owners.end(), *rc::gen::inRange<std::size_t>(1, 3), p);
      limits.push_back(*rc::gen::weightedOneOf<std::uint64_t>({{2, rc::gen::just<std::uint64_t>(1000)}, {1, rc::gen::inRange<std::uint64_t>(1, 8)}}));
    }
    for (std::size_t g = 0; g < owners.size(); ++g) all += elements.emplace_back(*rc::gen::inRange<std::uint64_t>(1, 12));
    std::mt19937 random{*rc::gen::arbitrary<std::uint32_t>()};
    for (int order = 0; order < 20; ++order) {
      const auto calls = Job{owners, elements, limits}.run(random);
      for (const auto each : calls) RC_ASSERT(each == calls[0]);
      if (*std::min_element(limits.begin(), limits.end()) == 1000) {
        RC_ASSERT(calls.size() == limits.size());
        RC_ASSERT(calls[0] == (all + owners.size() - 1) / owners.size());
      }
    }
  }));
}

namespace {

class Source final : public InputSource {
 public:
  explicit Source(std::vector<AnyArray> elements) : elements_{std::move(elements)} {}
  std::optional<std::vector<AnyArray>> next() override {
    if (at_ == elements_.size()) return std::nullopt;
    return std::vector<AnyArray>{elements_[at_++]};
  }
  bool seek(std::int64_t) override { return false; }

 private:
  std::vector<AnyArray> elements_;
  std::size_t at_ = 0;
};

}  // namespace

TEST_CASE("a replica's next element is read before its step is made, and is of the shapes of those before") {
  std::vector<std::unique_ptr<InputSource>> inputs;
  inputs.push_back(std::make_unique<Source>(std::vector{number(1), number(2)}));
  inputs.push_back(std::make_unique<Source>(std::vector{number(11)}));
  inputs.push_back(std::make_unique<Source>(std::vector{Array<float>{{2}, {0, 0}}.any()}));
  InputWatch watch{std::chrono::milliseconds{0}};
  AsyncElements elements{ReplicaInputs{std::move(inputs), 4}, {{number(0)}, {number(10)}, {number(20)}}};
  const auto value = [&](int replica) { return elements.of(replica, 1)[0][0].as<float>()[0]; };
  CHECK(elements.of(4, 2).size() == 2);
  CHECK(elements.read_next(4, 2, 0, watch));
  CHECK(value(4) == 0);
  elements.advance(4, 2);
  CHECK(value(4) == 1);
  CHECK(value(5) == 11);
  CHECK_FALSE(elements.read_next(4, 2, 1, watch));  // that of replica 5 has ended
  CHECK_THAT(test::error_of([&] { elements.read_next(6, 1, 7, watch); }),
             Catch::StartsWith("component 0 of element 8 of replica 6 is float32[2], that of the elements before is float32[]: with --regime async"));
}

}  // namespace test_async_progress
