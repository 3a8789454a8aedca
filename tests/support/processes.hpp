// SPDX-License-Identifier: Apache-2.0
// Runs a function in several processes and collects their results.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace replicator::test {

struct ProcessResult {
  int exit_code = -1;      // of exit(); -1 if a signal ended it
  int signal = 0;          // the signal that ended it
  bool stopped = false;    // by SIGSTOP; killed after all others have ended
  bool timed_out = false;  // killed because it was stuck
  double seconds = 0;      // until it ended
  std::string text;        // stderr, then the function's result, or "error: " and the exception's message
};

namespace detail {

struct Child {
  pid_t pid = -1;
  int output = -1;
  bool ended = false;
};

[[noreturn]] inline void run_child(int rank, int output, const std::function<std::string(int)>& body) {
  ::dup2(output, STDERR_FILENO);
  std::string text;
  int code = 0;
  try {
    text = body(rank);
  } catch (const std::exception& error) {
    text = std::string{"error: "} + error.what();
    code = 1;
  }
  for (std::size_t sent = 0; sent < text.size();) {
    const auto n = ::write(output, text.data() + sent, text.size() - sent);
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  ::_exit(code);
}

inline void drain(Child& child, std::string& text) {
  char chunk[4096];
  for (;;) {
    const auto n = ::read(child.output, chunk, sizeof chunk);
    if (n <= 0) return;
    text.append(chunk, static_cast<std::size_t>(n));
  }
}

inline void look_at(Child& child, ProcessResult& result) {
  int status = 0;
  if (child.ended || ::waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.pid) return;
  if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
    result.stopped = WIFSTOPPED(status);
    return;
  }
  child.ended = true;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
}

}  // namespace detail

// Forks `count` processes; process r returns body(r), or throws. Call it only while this process has a single thread.
// Processes that still run after `limit` are killed and marked. A stopped process is killed when the others have ended.
inline std::vector<ProcessResult> run_processes(int count, const std::function<std::string(int)>& body,
                                                std::chrono::seconds limit = std::chrono::seconds{60}) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::vector<detail::Child> children(static_cast<std::size_t>(count));
  std::vector<ProcessResult> results(children.size());
  std::fflush(nullptr);  // else each child would repeat Catch2's buffered output
  for (int rank = 0; rank < count; ++rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error{"pipe2 failed"};
    const pid_t pid = ::fork();
    if (pid == 0) detail::run_child(rank, ends[1], body);
    ::close(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    children[static_cast<std::size_t>(rank)] = {pid, ends[0], false};
  }
  for (std::size_t running = children.size(); running > 0;) {
    std::size_t stopped = 0;
    running = 0;
    const bool late = Clock::now() - start > limit;
    for (std::size_t r = 0; r < children.size(); ++r) {
      auto& child = children[r];
      if (child.ended) continue;
      detail::look_at(child, results[r]);
      detail::drain(child, results[r].text);
      results[r].seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (child.ended) continue;
      ++running;
      stopped += results[r].stopped ? 1 : 0;
      if (late && !results[r].stopped) results[r].timed_out = true;
      if (late) ::kill(child.pid, SIGKILL);
    }
    if (running > 0 && running == stopped && running < children.size())
      for (const auto& child : children)
        if (!child.ended) ::kill(child.pid, SIGKILL);
    if (running > 0) ::poll(nullptr, 0, 2);
  }
  for (auto& child : children) ::close(child.output);
  return results;
}

// One line per process, for failure messages.
inline std::string describe(const std::vector<ProcessResult>& results) {
  std::string text;
  for (std::size_t r = 0; r < results.size(); ++r) {
    const auto& result = results[r];
    text += "process " + std::to_string(r) + ": exit " + std::to_string(result.exit_code) + ", signal " +
            std::to_string(result.signal) + (result.timed_out ? ", STUCK" : "") + (result.stopped ? ", stopped" : "") +
            ", after " + std::to_string(result.seconds) + " s: " + result.text + "\n";
  }
  return text;
}

}  // namespace replicator::test
