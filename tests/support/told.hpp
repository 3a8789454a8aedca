// SPDX-License-Identifier: Apache-2.0
// What a part of a test writes to stderr.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <replicator/io/file.hpp>

#include "../input/temporary_folder.hpp"

namespace replicator::test {

// Of f, by a file in the folder.
template <class F>
std::string told(const TemporaryFolder& folder, F f) {
  const auto file = folder.path() + "/stderr";
  std::fflush(stderr);
  const int kept = ::dup(STDERR_FILENO), to = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ::dup2(to, STDERR_FILENO);
  ::close(to);
  f();
  std::fflush(stderr);
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  std::vector<std::byte> bytes;
  io::read_file(file, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace replicator::test
