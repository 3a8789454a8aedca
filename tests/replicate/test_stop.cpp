// SPDX-License-Identifier: Apache-2.0
// Signals between steps: all processes stop after the same step, and the previous signal handlers are restored.
#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include <replicator/data/generator.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/replicate/replicator.hpp>
#include <replicator/replicate/stop_on_signal.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_stop {

using namespace replicator;
using namespace replicator::detail;
using test::on_devices;

namespace {

int handled = 0;  // signals that the user's own handler got
void handle(int) { ++handled; }
auto handler_of(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

// The position; before(position) is called where it is read.
template <class Before>
auto positions(Before before) {
  return [before](const InputContext& ctx) {
    return data::from_generator([before, replica = ctx.replica()](std::int64_t position) {
      before(replica, position);
      return Array<float>{{}, {static_cast<float>(position)}};
    });
  };
}
const auto total = [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); };

template <class Step>
std::string steps_and_signal(Replicator& repl, Step& train) {
  for (const auto& results : train.steps(10)) (void)results;
  return std::to_string(train.steps_done()) + " steps, signal " + std::to_string(repl.stop_signal());
}

// How a child ends that gets these signals one after the other.
int end_of(std::initializer_list<int> signals) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    const StopOnSignal stop;
    for (const int signal : signals) ::raise(signal);
    ::_exit(StopOnSignal::received());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a signal ends steps() after the step at work, and the input has not ended") {
  Replicator repl{on_devices(3, 2)};
  auto train = repl.replicate(positions([](int replica, std::int64_t position) {
                                if (replica == 2 && position == 4) ::raise(SIGTERM);  // is read ahead, in step 4 of 10
                              }),
                              total);
  {
    const StopOnSignal stop;
    CHECK(steps_and_signal(repl, train) == "4 steps, signal " + std::to_string(SIGTERM));
    CHECK_FALSE(train.finished());
    CHECK(signal_name(repl.stop_signal()) == "SIGTERM");
    const auto [next] = train.step();  // who asks is given another
    CHECK(next[0].item() == 12);
  }
  CHECK(StopOnSignal::received() == 0);
  CHECK(steps_and_signal(repl, train) == "5 steps, signal " + std::to_string(SIGTERM));  // it stays
}

TEST_CASE("all processes stop after the same step, whichever was signalled") {
  for (const int signalled : {0, 1}) {
    const auto results = test::run_as_job(2, [&](int process) {
      const StopOnSignal stop;
      Replicator repl{on_devices(3, 1)};
      auto train = repl.replicate(positions([&](int replica, std::int64_t position) {
                                    if (replica == 2 * process && position == 4 && process == signalled) ::raise(SIGINT);
                                  }),
                                  total);
      return steps_and_signal(repl, train);
    });
    INFO(test::describe(results));
    for (const auto& result : results) {
      CHECK(result.exit_code == 0);
      CHECK_THAT(result.text, Catch::EndsWith("4 steps, signal " + std::to_string(SIGINT)));
    }
    CHECK_THAT(results[static_cast<std::size_t>(signalled)].text, Catch::Contains("asked to stop: the step at work is finished first"));
    CHECK_THAT(results[static_cast<std::size_t>(1 - signalled)].text, !Catch::Contains("asked to stop"));
  }
}

TEST_CASE("a second signal ends the process, be it the same or the other") {
  CHECK(end_of({SIGINT}) == SIGINT);
  CHECK(end_of({SIGTERM}) == SIGTERM);
  CHECK(end_of({SIGINT, SIGINT}) == -SIGINT);
  CHECK(end_of({SIGINT, SIGTERM}) == -SIGTERM);
}

TEST_CASE("handlers that were there are put back, ignored signals stay ignored, and others are left alone") {
  const auto before = ::signal(SIGINT, handle);
  const auto term = ::signal(SIGTERM, SIG_IGN);
  const auto quit = handler_of(SIGQUIT);
  {
    const StopOnSignal outer;
    CHECK(handler_of(SIGINT) != handle);
    CHECK(handler_of(SIGTERM) == SIG_IGN);
    { const StopOnSignal inner{{SIGINT, SIGUSR2}}; }
    CHECK(handler_of(SIGINT) != handle);
    CHECK(handler_of(SIGQUIT) == quit);
  }
  CHECK(handler_of(SIGINT) == handle);
  CHECK(handler_of(SIGUSR2) == SIG_DFL);
  ::raise(SIGINT);
  CHECK(handled == 1);
  ::signal(SIGINT, before);
  ::signal(SIGTERM, term);
}

TEST_CASE("a signal that cannot be handled is refused, and nothing has changed") {
  const auto before = handler_of(SIGINT);
  CHECK(test::error_of([] { const StopOnSignal stop{{SIGINT, SIGKILL}}; }) ==
        "StopOnSignal(9): Invalid argument: choose a signal that a program may handle, as SIGINT");
  CHECK(handler_of(SIGINT) == before);
  CHECK(StopOnSignal::received() == 0);
}

}  // namespace test_stop
