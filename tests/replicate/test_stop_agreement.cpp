// SPDX-License-Identifier: Apache-2.0
// Processes at different calls agree on the call after which they stop.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <replicator/async/stop_agreement.hpp>
#include <replicator/job/job_inline.hpp>
#include <replicator/replicate/stop_on_signal.hpp>

#include "../support/programs.hpp"

namespace test_stop_agreement {

using namespace replicator;
using namespace replicator::detail;
using Vote = StopAgreement::Vote;

namespace {

// A process of a pretended job.
struct Process {
  transport::Job job{};
  StopAgreement stop{job, {}};
};

}  // namespace

TEST_CASE("a vote is the call that a process is at, or its next, and is given once") {
  Process process;
  process.stop.end_call();
  process.stop.end_call();
  CHECK(process.stop.vote(0) == Vote{0, 3, 0});
  CHECK(process.stop.vote(1) == Vote{0, 3, 0});
  CHECK(process.stop.is_open());
  CHECK(process.stop.agree({0, 4, SIGTERM}));
  CHECK_FALSE(process.stop.is_open());
  process.stop.end_call();
  CHECK(process.stop.signal() == 0);
  CHECK(process.stop.vote(0) == Vote{0, 3, 0});
  process.stop.end_call();
  CHECK(process.stop.signal() == SIGTERM);
  process.stop.end_call();
  CHECK(process.stop.signal() == SIGTERM);
}

TEST_CASE("where processes meet, calls are counted anew, and what was agreed for before holds") {
  for (const bool before : {true, false}) {
    Process process;
    process.stop.end_call();
    process.stop.vote(0);
    CHECK(process.stop.agree(before ? Vote{0, 9, SIGINT} : Vote{1, 1, SIGINT}));  // others made more calls, or were behind the barrier
    process.stop.end_barrier();
    CHECK(process.stop.signal() == (before ? SIGINT : 0));
    process.stop.end_call();
    CHECK(process.stop.signal() == SIGINT);
  }
  Process met;
  met.stop.end_call();
  met.stop.end_barrier();
  CHECK(met.stop.vote(0) == Vote{1, 1, 0});
}

TEST_CASE("what cannot have been agreed is refused") {
  Process process;
  process.stop.end_call();
  CHECK_FALSE(process.stop.agree({0, 5, SIGTERM}));  // nobody has asked
  process.stop.vote(0);
  CHECK_FALSE(process.stop.agree({0, 1, SIGTERM}));  // before its vote
  CHECK(process.stop.agree({0, 5, SIGTERM}));
  CHECK_FALSE(process.stop.agree({0, 6, SIGTERM}));  // another one
  CHECK(process.stop.agree({0, 5, SIGTERM}));
}

TEST_CASE("a process alone stops for its own signal at once, and nobody is asked") {
  const StopOnSignal stop;
  Process process;
  CHECK(process.stop.signal() == 0);
  ::raise(SIGINT);
  CHECK_FALSE(process.stop.is_due());
  CHECK(process.stop.signal() == SIGINT);
}

namespace {

// Processes that make as many calls between two barriers, some of which ask all for their votes at some moment.
class PretendedJob {
 public:
  PretendedJob(std::size_t processes, std::uint64_t calls, std::size_t askers) : calls_{calls} {
    for (std::size_t p = 0; p < processes; ++p) processes_.push_back(std::make_unique<Member>());
    for (std::size_t a = 0; a < askers; ++a) askers_.push_back({a % processes});
  }
  // Where each stops, whatever happens first.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> run(std::mt19937 random) {
    const auto stopped = [](const auto& process) { return process->stop.signal() != 0; };
    for (int action = 0; !std::all_of(processes_.begin(), processes_.end(), stopped); ++action) {
      RC_ASSERT(action < 100'000);
      if (random() % 8 == 0) ask(askers_[random() % askers_.size()]);
      else go_on(*processes_[random() % processes_.size()]);
    }
    std::vector<std::pair<std::uint64_t, std::uint64_t>> result;
    for (const auto& process : processes_) result.emplace_back(process->barriers, process->calls);
    return result;
  }

 private:
  struct Member : Process {
    std::uint64_t barriers = 0, calls = 0;
  };
  struct Asker {
    std::size_t process;
    std::size_t asked = 0, told = 0;
    Vote agreed{0, 0, SIGTERM};
  };
  void go_on(Member& process) {
    if (process.stop.is_open() || process.stop.signal() != 0) return;
    const auto has_come = [&](const auto& other) {
      return other->barriers > process.barriers || (other->barriers == process.barriers && other->calls == calls_);
    };
    if (process.calls < calls_) {
      process.stop.end_call();
      ++process.calls;
    } else if (std::all_of(processes_.begin(), processes_.end(), has_come)) {
      process.stop.end_barrier();
      ++process.barriers;
      process.calls = 0;
    }
  }
  void ask(Asker& asker) {
    if (asker.asked < processes_.size()) asker.agreed = StopAgreement::both(asker.agreed, processes_[asker.asked++]->stop.vote(static_cast<int>(asker.process)));
    else if (asker.told < processes_.size()) RC_ASSERT(processes_[asker.told++]->stop.agree(asker.agreed));
  }

  std::uint64_t calls_;
  std::vector<std::unique_ptr<Member>> processes_;
  std::vector<Asker> askers_;
};

}  // namespace

TEST_CASE("however calls, barriers, votes and several that ask are interleaved, all stop after the same call") {
  CHECK(rc::check([] {
    PretendedJob job{*rc::gen::inRange<std::size_t>(1, 5), *rc::gen::inRange<std::uint64_t>(1, 6), *rc::gen::inRange<std::size_t>(1, 4)};
    const auto stops = job.run(std::mt19937{*rc::gen::arbitrary<std::uint32_t>()});
    for (const auto& stop : stops) RC_ASSERT(stop == stops[0]);
  }));
}

namespace {

// What process 0 is told, which has been asked for its vote by process 1, and learns of no agreement.
std::string told_to_voter(std::chrono::milliseconds deadline, bool dies) {
  const auto results = test::run_as_job(2, [deadline, dies](int process) {
    transport::Job job{transport::find_environment({}), {}};
    StopAgreement stop{job, {deadline, {}}};
    if (process == 0) stop.vote(1);
    job.barrier("asked");
    if (process == 1 && dies) ::raise(SIGKILL);
    std::string text;
    try {
      if (process == 0) stop.end_call();
      job.barrier("told");
    } catch (const CommunicationError& error) {
      text = error.what() + (" culprit " + std::to_string(error.culprit()));
    }
    return text;
  });
  INFO(test::describe(results));
  CHECK(results[0].exit_code == 0);
  return results[0].text;
}

}  // namespace

TEST_CASE("who waits for what another process has to tell names it at the deadline, or when it dies") {
  CHECK_THAT(told_to_voter(std::chrono::milliseconds{200}, false),
             Catch::StartsWith("waited until the deadline for process 1 (pid ") &&
                 Catch::Contains(", which has caught a signal, to tell after which call of step() all processes stop. It is stopped or slow") &&
                 Catch::EndsWith("culprit 1"));
  CHECK_THAT(told_to_voter({}, true), Catch::StartsWith("process 1 (pid ") && Catch::Contains(" died: its connection closed") && Catch::EndsWith("culprit 1"));
}

}  // namespace test_stop_agreement
