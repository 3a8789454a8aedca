// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <replicator/job/exchange_in_pieces.hpp>

#include "jobs.hpp"

namespace test_job {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using transport::Job;
using transport::JobOptions;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Waits for the end of the job; returns its sentence.
std::string await_failure(Job& job) {
  for (int i = 0; i < 1000 && !job.aborted(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds{10});
  return job.failure();
}

// Stops this process; a helper of its own wakes it.
void stop_for(std::chrono::milliseconds time) {
  const pid_t self = ::getpid();
  if (::fork() == 0) {
    ::usleep(static_cast<useconds_t>(time.count() * 1000));
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  ::raise(SIGSTOP);
}

// Stops all processes of `job`, and wakes them after `time`, one after the other. A helper does both: a process that stopped
// itself would do it late on a busy machine, and would be right to blame the others.
void stop_and_wake_all(const Job& job, std::chrono::milliseconds time, std::chrono::milliseconds between) {
  const auto signal_all = [&](int signal, std::chrono::milliseconds pause) {
    for (int process = 0; process < job.size(); ++process) {
      ::kill(static_cast<pid_t>(job.process(process).pid), signal);
      ::usleep(static_cast<useconds_t>(pause.count() * 1000));
    }
  };
  const pid_t helper = ::fork();
  if (helper == 0) {
    signal_all(SIGSTOP, std::chrono::milliseconds{0});
    ::usleep(static_cast<useconds_t>(time.count() * 1000));
    signal_all(SIGCONT, between);
    ::_exit(0);
  }
  ::waitpid(helper, nullptr, 0);
}

// All processes but `victim` ended by themselves, in time, with one sentence.
void check_survivors(const std::vector<ProcessResult>& results, std::size_t victim, const std::string& sentence) {
  INFO(describe(results));
  const auto& first = results[victim == 0 ? 1 : 0].text;
  for (std::size_t r = 0; r < results.size(); ++r) {
    if (r == victim) continue;
    CHECK_FALSE(results[r].timed_out);
    CHECK(results[r].text == first);
    CHECK(results[r].seconds < 5);
  }
  CHECK(contains(first, "process " + std::to_string(victim) + " (pid "));
  CHECK(contains(first, sentence));
}

}  // namespace

TEST_CASE("process 0 that was stopped beyond the connect deadline meets those who came meanwhile") {
  const auto all = environments(2);
  const auto results = run_processes(2, [&](int rank) {
    auto options = quick_options();
    std::thread stops;
    if (rank == 0) {
      options.connect_deadline = std::chrono::milliseconds{1000};
      stops = std::thread{[] {
        std::this_thread::sleep_for(std::chrono::milliseconds{200});
        stop_for(std::chrono::milliseconds{1800});
      }};
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds{600});
    }
    Job job{all[static_cast<std::size_t>(rank)], options};
    if (stops.joinable()) stops.join();
    job.barrier();
    job.leave();
    return std::to_string(job.size());
  });
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text.ends_with("2"));
}

TEST_CASE("an exchange gives every process what each gave, however large") {
  const int count = GENERATE(1, 2, 3, 5);
  const auto results = run_job(count, [](Job& job) {
    std::string text;
    for (const std::size_t length : {std::size_t{0}, std::size_t{3}, std::size_t{300000}}) {
      const auto all = job.exchange(bytes_of(std::string(length, static_cast<char>('a' + job.rank()))), "letters");
      for (const auto& one : all) text += std::to_string(one.size()) + (one.empty() ? "" : text_of(one).substr(0, 1));
    }
    for (int i = 0; i < 100; ++i) job.barrier();
    text += std::to_string(job.token() != 0 || job.size() == 1);
    job.leave();
    return text;
  });
  INFO(describe(results));
  std::string expected;
  for (const std::string length : {"0", "3", "300000"})
    for (int r = 0; r < count; ++r)
      expected += length + (length == "0" ? "" : std::string(1, static_cast<char>('a' + r)));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.text == expected + "1");
  }
}

TEST_CASE("the one that is killed is named by all others in one sentence") {
  const std::size_t victim = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2});
  const auto results = run_job(4, [&](Job& job) {
    job.barrier();
    job.begin("step", 12);
    if (job.rank() == static_cast<int>(victim)) ::raise(SIGKILL);
    const auto sentence = await_failure(job);
    return job.culprit() == static_cast<int>(victim) ? sentence : "the wrong culprit";
  });
  check_survivors(results, victim,
                  victim == 0 ? "died: its connection closed" : "died: its connection closed during step 12");
}

TEST_CASE("a job of one process refuses an interface that is not there") {
  transport::ProcessEnvironment alone;
  alone.interface = "nowhere0";
  CHECK_THROWS_WITH(Job{alone}, Catch::Contains("--interface (or REPLICATOR_INTERFACE) is \"nowhere0\", but no interface"));
}

TEST_CASE("of several that are killed at once all are named") {
  auto options = quick_options();
  options.grace = std::chrono::seconds{2};  // long enough for both connections to close
  const auto results = run_job(
      4,
      [&](Job& job) {
        job.barrier();
        if (job.rank() == 1 || job.rank() == 3) ::raise(SIGKILL);
        return await_failure(job);
      },
      options);
  INFO(describe(results));
  for (const std::size_t survivor : {0, 2}) {
    CHECK_THAT(results[survivor].text, Catch::Contains(" died: its connection closed; process ") && Catch::EndsWith(" died too"));
    CHECK_THAT(results[survivor].text, Catch::Contains("process 1 (pid ") && Catch::Contains("process 3 (pid "));
    CHECK(results[survivor].text == results[0].text);
  }
}

TEST_CASE("the one that is stopped is named by all others in one sentence") {
  const std::size_t victim = GENERATE(std::size_t{0}, std::size_t{2});
  const auto results = run_job(3, [&](Job& job) {
    job.barrier();
    if (job.rank() == static_cast<int>(victim)) ::raise(SIGSTOP);
    return await_failure(job);
  });
  CHECK(results[victim].stopped);
  check_survivors(results, victim, "no heartbeat for 1.5 s");
}

TEST_CASE("an exchange in pieces gives every process what each gave, whatever the piece") {
  const int count = GENERATE(1, 2, 3);
  const auto results = run_job(count, [](Job& job) {
    std::string text;
    const auto letters = [](int rank, std::size_t length) {
      std::string all(length, ' ');
      for (std::size_t i = 0; i < length; ++i) all[i] = static_cast<char>('a' + (static_cast<std::size_t>(rank) + i) % 26);
      return all;
    };
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{30}, std::size_t{1000}}) {
      std::vector<std::size_t> bytes;
      for (int rank = 0; rank < job.size(); ++rank) bytes.push_back(static_cast<std::size_t>(rank) * 30 % 60);
      const auto mine = letters(job.rank(), bytes[static_cast<std::size_t>(job.rank())]);
      const auto all = transport::exchange_in_pieces(job, bytes_of(mine), bytes, "letters", piece);
      for (int rank = 0; rank < job.size(); ++rank)
        text += text_of(all[static_cast<std::size_t>(rank)]) == letters(rank, bytes[static_cast<std::size_t>(rank)]) ? "=" : "!";
    }
    job.leave();
    return text;
  });
  for (const auto& result : results) CHECK(result.text == std::string(static_cast<std::size_t>(4 * count), '='));
}

TEST_CASE("a process that gives less to an exchange in pieces than all know is blamed") {
  const auto results = run_job(2, [](Job& job) -> std::string {
    const std::vector<std::size_t> bytes{3, 3};
    try {
      transport::exchange_in_pieces(job, bytes_of(job.rank() == 1 ? "ab" : "abc"), bytes, "letters");
    } catch (const CommunicationError& error) {
      job.leave();
      return error.what();
    }
    return "nothing";
  });
  for (const auto& result : results) CHECK(contains(result.text, "process 1 gave 2 bytes to letters, which cannot be"));
}

TEST_CASE("an exchange with a killed process throws the same error everywhere") {
  const auto results = run_job(3, [](Job& job) -> std::string {
    if (job.rank() == 1) ::raise(SIGKILL);
    job.barrier("fingerprint");
    return "passed";
  });
  check_survivors(results, 1, "died: its connection closed");
}

TEST_CASE("who fails says so first, and all adopt its word") {
  const int speaker = GENERATE(0, 2);
  const auto results = run_job(3, [&](Job& job) {
    job.barrier();
    if (job.rank() == speaker) {
      job.abort("replica 5 saw a NaN", speaker);
      return job.failure();
    }
    return await_failure(job);
  });
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "replica 5 saw a NaN");
}

TEST_CASE("two failures at once end in one sentence") {
  const auto results = run_job(4, [&](Job& job) {
    job.barrier();
    if (job.rank() != 0) job.abort("failure of " + std::to_string(job.rank()), job.rank());
    return await_failure(job);
  });
  INFO(describe(results));
  CHECK(contains(results[0].text, "failure of "));
  for (const auto& result : results) CHECK(result.text == results[0].text);
}

TEST_CASE("a process that unwinds an exception is named, not called dead") {
  const auto results = run_job(3, [](Job& job) -> std::string {
    job.barrier();
    if (job.rank() == 2) throw std::runtime_error{"no such file"};
    return await_failure(job);
  });
  INFO(describe(results));
  CHECK(results[2].text == "error: no such file");
  CHECK(contains(results[0].text, "process 2 (pid "));
  CHECK(contains(results[0].text, "left because of an error of its own"));
  CHECK(results[1].text == results[0].text);
}

TEST_CASE("a suspicion becomes the verdict unless a better word comes") {
  const bool dies = GENERATE(false, true);
  const auto results = run_job(3, [&](Job& job) {
    job.barrier();
    if (job.rank() == 1) job.suspect(2, "process 1 lost its wire to process 2");
    if (job.rank() == 2 && dies) ::raise(SIGKILL);
    return await_failure(job);
  });
  INFO(describe(results));
  CHECK(results[0].text == results[1].text);
  CHECK(contains(results[0].text, dies ? "process 2" : "process 1 lost its wire to process 2"));
}

TEST_CASE("exchanges that differ, and processes that have left, are errors and not a wait") {
  auto results = run_job(2, [](Job& job) -> std::string {
    job.barrier(job.rank() == 0 ? "fingerprint" : "allocate");
    return "passed";
  });
  INFO(describe(results));
  CHECK(contains(results[0].text, "asks for the exchange \"fingerprint\", and process 1 (pid "));
  CHECK(contains(results[0].text, "asks for \"allocate\""));
  CHECK(results[0].text == results[1].text);
  results = run_job(3, [](Job& job) -> std::string {
    if (job.rank() != 1) job.barrier("step");
    job.leave();
    return "passed";
  });
  INFO(describe(results));
  CHECK(contains(results[0].text, "process 1 (pid "));
  CHECK(contains(results[0].text, "has left the job, but process "));
  for (const auto& result : results) CHECK(result.text == results[0].text);
}

TEST_CASE("a process that begins a call for which another one does not come is told at once, and both are named") {
  const int early = GENERATE(0, 2);
  const bool leaves = GENERATE(false, true);
  const auto results = run_job(3, [&](Job& job) -> std::string {
    job.begin("step", 7);
    job.barrier();
    try {
      if (job.rank() == early && leaves) job.leave();
      else if (job.rank() == early) job.barrier("digest");
      else if (job.rank() == 1) job.begin("step", 8, "", {"folder/train.cpp", 40}), await_failure(job);
      else await_failure(job);
      job.check();
    } catch (const CommunicationError& error) {
      return std::to_string(error.culprit()) + " " + error.what();
    }
    return "passed";
  });
  INFO(describe(results));
  const auto waits = leaves ? ") ended after step 7; process 1 (pid " : ") asks for the exchange \"digest\" after step 7; process 1 (pid ";
  const std::string mend = leaves ? "number of steps, so stop by a condition that all of them share" : "calls in the same order, and stop by a condition that all of them share";
  for (const auto& result : results) {
    CHECK(result.text.starts_with(std::to_string(early) + " process " + std::to_string(early) + " (pid "));
    CHECK(contains(result.text, waits));
    CHECK(result.text.ends_with(") asked for step 8 at train.cpp:40: all processes must make the same " + mend));
    CHECK(result.seconds < 5);
  }
}

TEST_CASE("of processes that begin different steps the odd one is named within seconds, with both steps and their lines") {
  const int other = GENERATE(0, 2);
  const auto results = run_job(3, [&](Job& job) -> std::string {
    job.begin("step", 7);
    job.barrier();
    if (job.rank() == other) job.begin("step", 0, "", {"folder/train.cpp", 41}, 1);
    else job.begin("step", 8, "", {"folder/train.cpp", 40});
    const auto failure = await_failure(job);
    return std::to_string(job.culprit()) + " " + failure;
  });
  INFO(describe(results));
  const auto odd = std::to_string(other);
  for (const auto& result : results) {
    CHECK(result.text == results[0].text);
    CHECK(result.text.starts_with(odd + " process " + odd + " (pid "));
    CHECK(contains(result.text, ") asks for step 0 of replicated step 1 at train.cpp:41 where process " + std::to_string(other == 0 ? 1 : 0) + " (pid "));
    CHECK(result.text.ends_with(") asks for step 8 at train.cpp:40: all processes must make the same calls in the same order"));
    CHECK(result.seconds < 5);
  }
}

TEST_CASE("where each process begins another step, or asks for another exchange, nobody is accused") {
  const int count = GENERATE(2, 3);
  const bool exchanges = GENERATE(false, true);
  const std::vector<std::string> names{"fingerprint", "allocate", "digest"};
  const auto results = run_job(count, [&](Job& job) -> std::string {
    std::string failure;
    try {
      if (exchanges) job.barrier(names[static_cast<std::size_t>(job.rank())]);
      job.begin("step", static_cast<std::uint64_t>(job.rank()), "", {"train.cpp", 40});
      failure = await_failure(job);
    } catch (const CommunicationError& error) {
      failure = error.what();
    }
    return std::to_string(job.culprit()) + " " + failure;
  });
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.text == results[0].text);
    CHECK(result.text.starts_with("-1 process 0 (pid "));
    CHECK(contains(result.text, exchanges ? ") asks for the exchange \"fingerprint\", and process 1 (pid " : ") asks for step 0 at train.cpp:40, and process 1 (pid "));
    CHECK(contains(result.text, exchanges ? ") asks for \"allocate\": all processes must ask for the same exchanges" : ") asks for step 1 at train.cpp:40: all processes must make"));
    CHECK(result.seconds < 5);
  }
}

TEST_CASE("of three processes the one that asks for another exchange is named, whichever comes first") {
  const int other = GENERATE(0, 1, 2);
  const auto results = run_job(3, [&](Job& job) -> std::string {
    if (job.rank() != other && job.rank() != 1) std::this_thread::sleep_for(std::chrono::milliseconds{50});
    try {
      job.barrier(job.rank() == other ? "allocate" : "fingerprint");
    } catch (const CommunicationError& error) {
      return std::to_string(error.culprit()) + " " + error.what();
    }
    return "passed";
  });
  INFO(describe(results));
  const auto odd = std::to_string(other);
  for (const auto& result : results) {
    CHECK(result.text.starts_with(odd + " process " + odd + " (pid "));
    CHECK(contains(result.text, ") asks for the exchange \"allocate\" where process " + std::to_string(other == 0 ? 1 : 0) + " (pid "));
    CHECK(contains(result.text, ") asks for \"fingerprint\": all processes"));
  }
}

TEST_CASE("processes may begin the same step at different lines, and wait for each other in it") {
  const auto results = run_job(3, [](Job& job) -> std::string {
    for (std::uint64_t step = 0; step < 3; ++step) {
      job.begin("step", step, "", {"train.cpp", static_cast<std::uint32_t>(40 + job.rank())}, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds{job.rank() == 1 ? 500 : 100});
      job.barrier("step");
    }
    job.leave();
    return "passed";
  });
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "passed");
}

TEST_CASE("a process that makes its calls later than the others is not blamed for it") {
  const auto results = run_job(3, [](Job& job) -> std::string {
    for (std::uint64_t step = 0; step < 3; ++step) {
      if (job.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds{700});
      job.begin("step", step);
      job.barrier("step");
    }
    job.leave();
    return "passed";
  });
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "passed");
}

TEST_CASE("a process that is alive but does not come is late, by name") {
  auto options = quick_options();
  options.exchange_deadline = std::chrono::milliseconds{700};
  const auto results = run_job(
      3,
      [](Job& job) -> std::string {
        if (job.rank() == 1) return "error: " + await_failure(job);
        job.barrier("step");
        return "passed";
      },
      options);
  check_survivors(results, 1, "is late: it has not come to the exchange \"step\" within 0.7 s");
}

// Three processes come to what `wait` waits for, the one in the middle when the others have told that they wait.
std::vector<ProcessResult> run_with_one_late(void (*wait)(Job&)) {
  auto options = quick_options();
  options.late = std::chrono::milliseconds{300};
  return run_job(
      3,
      [wait](Job& job) -> std::string {
        if (job.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds{1200});
        wait(job);
        return "passed";
      },
      options);
}

TEST_CASE("who waits at an exchange says so, and process 0 for whom") {
  const auto results = run_with_one_late([](Job& job) { job.barrier("step"); });
  INFO(describe(results));
  CHECK(contains(results[0].text, "replicator: process 0 (pid "));
  CHECK(contains(results[0].text, " waits at the exchange \"step\" for process 1 (pid "));
  CHECK(contains(results[2].text, " waits at the exchange \"step\" for others\npassed"));
  CHECK(results[1].text == "passed");
}

TEST_CASE("who has finished waits for others that are alive without end, and says so") {
  const auto results = run_with_one_late([](Job& job) { job.leave(); });
  INFO(describe(results));
  CHECK(contains(results[0].text, "replicator: process 0 (pid "));
  CHECK(contains(results[0].text, " has finished, and waits for process 1 (pid "));
  CHECK(contains(results[2].text, " has finished, and waits for others, alive, to finish too\npassed"));
  CHECK(results[1].text == "passed");
}

TEST_CASE("a stop shorter than the limit harms nobody") {
  const auto results = run_job(2, [](Job& job) -> std::string {
    job.barrier();
    if (job.rank() == 1) stop_for(std::chrono::milliseconds{600});
    job.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds{500});
    job.barrier();
    return "fine";
  });
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "fine");
}

TEST_CASE("who was stopped for too long finds the verdict of the others when it wakes") {
  const int victim = GENERATE(0, 2);
  auto options = quick_options();
  options.heartbeat = std::chrono::milliseconds{100};
  options.dead_after = std::chrono::milliseconds{600};
  const auto results = run_job(
      3,
      [&](Job& job) {
        job.barrier();
        if (job.rank() == victim) {
          // Process 0 passes the barrier before it has told the others.
          std::this_thread::sleep_for(std::chrono::milliseconds{200});
          stop_for(std::chrono::milliseconds{1200});
        }
        const auto sentence = await_failure(job);
        if (job.rank() != victim) std::this_thread::sleep_for(std::chrono::milliseconds{800});
        return sentence;
      },
      options);
  INFO(describe(results));
  CHECK(contains(results[1].text, "process " + std::to_string(victim) + " (pid "));
  CHECK(contains(results[1].text, "died or was stopped: no heartbeat for 0.6 s"));
  for (const auto& result : results) CHECK(result.text == results[1].text);
}

TEST_CASE("when all are stopped and wake, nobody is blamed") {
  const auto results = run_job(3, [](Job& job) {
    job.barrier();
    if (job.rank() == 0) stop_and_wake_all(job, std::chrono::milliseconds{2500}, std::chrono::milliseconds{50});
    job.barrier();
    return std::string{"fine"};
  });
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "fine");
}

TEST_CASE("a hook runs when the job ends, at once if it has ended, never after it is gone") {
  Job job;
  int first = 0;
  int second = 0;
  int third = 0;
  const auto kept = job.on_abort([&] { ++first; });
  {
    const auto dropped = job.on_abort([&] { ++second; });
  }
  job.check();
  job.abort("done with", 0);
  const auto late = job.on_abort([&] { ++third; });
  CHECK(first == 1);
  CHECK(second == 0);
  CHECK(third == 1);
  CHECK_THROWS_AS(job.check(), CommunicationError);
  CHECK_THROWS_WITH(job.barrier(), "done with");
}

}  // namespace test_job
