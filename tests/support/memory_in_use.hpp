// SPDX-License-Identifier: Apache-2.0
// The memory that this process has now.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace replicator::test {

inline std::int64_t resident_bytes() {
  std::int64_t size = 0, pages = 0;
  std::ifstream{"/proc/self/statm"} >> size >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

// Of all shared memory (memfd) that this process has open, whether it has mapped it or not.
inline std::int64_t bytes_of_memory_files() {
  std::int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat file {};
    if (target.starts_with("/memfd:replicator") && ::stat(entry.path().c_str(), &file) == 0) bytes += file.st_blocks * 512;
  }
  return bytes;
}

}  // namespace replicator::test
