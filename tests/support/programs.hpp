// SPDX-License-Identifier: Apache-2.0
// Runs programs, alone or as the processes of a job, and keeps their output.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "processes.hpp"

namespace replicator::test {

#if __has_include(<replicator/with/ucx.hpp>)
inline constexpr bool built_with_ucx = true;
#else
inline constexpr bool built_with_ucx = false;
#endif

struct ProgramResult {
  int exit_code = -1;
  std::string text;  // its output, errors included
};

inline ProgramResult run_program(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error{"cannot run " + command};
  ProgramResult result;
  char chunk[4096];
  while (const auto n = std::fread(chunk, 1, sizeof chunk, pipe)) result.text.append(chunk, n);
  const int status = ::pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

// The rest of the first line that begins with `start`, or nothing.
inline std::string line_of(const std::string& text, const std::string& start) {
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    if (text.compare(at, start.size(), start) == 0) return text.substr(at + start.size(), end - at - start.size());
    at = end + 1;
  }
  return {};
}

// A port that was free a moment ago.
inline int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(listener, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(listener);
  return ntohs(address.sin_port);
}

// Sets the variables by which a launcher describes a job on this machine to process `rank`.
inline void set_environment(int rank, int count, int port) {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(count).c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

// Like run_processes, but the processes form a job, as if started by a launcher.
inline std::vector<ProcessResult> run_as_job(int count, const std::function<std::string(int)>& body,
                                             std::chrono::seconds limit = std::chrono::seconds{60}) {
  const int port = free_port();
  return run_processes(
      count,
      [&](int rank) {
        set_environment(rank, count, port);
        return body(rank);
      },
      limit);
}

// Runs the command as each process of a job. The exit codes are the program's own.
inline std::vector<ProcessResult> run_as_processes(int count, const std::string& command) {
  return run_as_job(count, [&](int) {
    const auto result = run_program(command);
    if (result.exit_code != 0)
      throw std::runtime_error{"exit " + std::to_string(result.exit_code) + ": " + result.text};
    return result.text;
  });
}

}  // namespace replicator::test
