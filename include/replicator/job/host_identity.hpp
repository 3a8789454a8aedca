// SPDX-License-Identifier: Apache-2.0
// Finds which processes of a job run on the same host, in the sense that they can share memory.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <replicator/job/job.hpp>
#include <span>
#include <string>
#include <vector>

namespace replicator::detail::transport {

// A text that is equal for two processes exactly where memory can be passed between them. That needs:
// - the same running kernel,
// - the same namespaces of host name, IPC and network (abstract sockets live in the last),
// - the same user in the same user namespace, because a process does not trust user numbers of another namespace.
inline std::string host_identity() {
  std::string result;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> result;
  char text[256] = {};
  ::gethostname(text, sizeof text - 1);
  result += std::string{" "} + text;
  for (const char* space : {"/proc/self/ns/uts", "/proc/self/ns/ipc", "/proc/self/ns/net"}) {
    const auto length = ::readlink(space, text, sizeof text);
    result += " " + std::string(text, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  }
  std::ifstream users{"/proc/self/uid_map"};
  return result + " " + std::to_string(::geteuid()) + " " + std::string{std::istreambuf_iterator<char>{users}, {}};
}

// Collective. The host number of every process, counted from 0 in the order of the processes.
inline std::vector<int> host_of_processes(Job& job) {
  const auto mine = host_identity();
  const auto all = job.exchange(std::as_bytes(std::span{mine.data(), mine.size()}), "host identity");
  std::vector<int> result;
  int hosts = 0;
  for (std::size_t p = 0; p < all.size(); ++p) {
    const auto first = static_cast<std::size_t>(std::find(all.begin(), all.end(), all[p]) - all.begin());
    result.push_back(first < p ? result[first] : hosts++);
  }
  return result;
}

// Collective. Whether all processes of the job can share memory.
inline bool same_host(Job& job) {
  const auto hosts = host_of_processes(job);
  return std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; });
}

}  // namespace replicator::detail::transport
