// SPDX-License-Identifier: Apache-2.0
// Captures the stderr of a part of a test.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "../input/temporary_folder.hpp"

namespace replicator::test {

inline std::string told_file(const TemporaryFolder& folder) { return folder.path() + "/stderr"; }
inline std::string told_so_far(const TemporaryFolder& folder) {
  std::ifstream file{told_file(folder), std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}
// While told() runs f: waits until f has written the text, for at most 20 s.
inline void await_told(const TemporaryFolder& folder, const std::string& text) {
  for (int i = 0; i < 20000 && told_so_far(folder).find(text) == std::string::npos; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

// The stderr of f, captured in a file in the folder.
template <class F>
std::string told(const TemporaryFolder& folder, F f) {
  std::fflush(stderr);
  const int kept = ::dup(STDERR_FILENO), to = ::open(told_file(folder).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ::dup2(to, STDERR_FILENO);
  ::close(to);
  f();
  std::fflush(stderr);
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  return told_so_far(folder);
}

}  // namespace replicator::test
