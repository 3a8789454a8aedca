// SPDX-License-Identifier: Apache-2.0
// Digests that identify the running program, and the name of its instruction set. Processes of a job compare them.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/hash.hpp>

namespace replicator::detail {

// The digest of a file's bytes. Throws DataError if it cannot be read.
inline Digest file_digest(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "rb"), &std::fclose};
  if (!file) throw DataError{path + ": cannot be read"};
  Hasher hasher;
  std::vector<std::byte> chunk(1 << 20);
  while (const auto read = std::fread(chunk.data(), 1, chunk.size(), file.get())) hasher.bytes({chunk.data(), read});
  if (std::ferror(file.get())) throw DataError{path + ": cannot be read to its end"};
  return hasher.result();
}

// The digest of the running executable. Throws DeviceError if it cannot be read.
inline Digest build_digest() {
  try {
    return file_digest("/proc/self/exe");
  } catch (const DataError&) {
    throw DeviceError{"cannot read /proc/self/exe, whose bytes the processes of a job compare: mount /proc"};
  }
}

}  // namespace replicator::detail
