// SPDX-License-Identifier: Apache-2.0
// Refuses to start UCX where limits of the process (ulimit) are so low that UCX 1.13 would end it by SIGABRT.
#pragma once

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <replicator/core/error.hpp>
#include <string>

namespace replicator::detail::transport::detail {

// The number of files that this process has open; 0 if /proc does not tell.
inline std::uint64_t open_files() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  std::uint64_t entries = 0;
  while (::readdir(folder) != nullptr) ++entries;
  ::closedir(folder);
  return entries > 3 ? entries - 3 : 0;  // without ".", "..", and the folder itself
}

// The bytes of this process's address space; 0 if /proc does not tell.
inline std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::ifstream{"/proc/self/statm"} >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Throws DeviceError, which names the limit and how to raise it, if `workers` workers that each talk to `peers` others may
// not get what they need. UCX 1.13 asks for a thread, and for two sockets per peer where both connect at once. It ends the
// process if one of them is refused.
inline void require_room_for_ucx(std::uint64_t workers, std::uint64_t peers) {
  constexpr std::uint64_t files_of_a_worker = 20, bytes_of_a_worker = std::uint64_t{64} << 20;
  const auto limit = [](auto resource) {
    rlimit found{};
    return ::getrlimit(resource, &found) == 0 ? static_cast<std::uint64_t>(found.rlim_cur) : std::uint64_t{RLIM_INFINITY};
  };
  const auto files = limit(RLIMIT_NOFILE), open = open_files(), more = workers * (files_of_a_worker + 2 * peers);
  if (files != RLIM_INFINITY && open + more > files)
    throw DeviceError{"ucx: this process may open " + std::to_string(files) + " files and has " + std::to_string(open) +
                      " open, but connections to " + std::to_string(peers) + " other ranks may take " +
                      std::to_string(more) + " more: raise the limit, for instance by `ulimit -n " +
                      std::to_string(open + more < 1024 ? 1024 : 2 * (open + more)) + "`"};
  const auto space = limit(RLIMIT_AS), used = address_space(), wanted = workers * bytes_of_a_worker;
  if (space != RLIM_INFINITY && used + wanted > space)
    throw DeviceError{"ucx: this process may have " + std::to_string(space >> 20) + " MiB of address space and uses " +
                      std::to_string(used >> 20) + ", but UCX may take " + std::to_string(wanted >> 20) +
                      " more: raise the limit, for instance by `ulimit -v unlimited`"};
}

}  // namespace replicator::detail::transport::detail
