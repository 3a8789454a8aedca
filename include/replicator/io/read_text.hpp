// SPDX-License-Identifier: Apache-2.0
// Reads the whole text of a file, a pipe or a device.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace replicator::detail {

// Returns nothing if it cannot be read, for example a folder. errno then says why.
inline std::optional<std::string> read_text(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "rbe"), &std::fclose};
  if (!file) return {};
  std::string text;
  char part[4096];
  while (const auto length = std::fread(part, 1, sizeof part, file.get())) text.append(part, length);
  if (std::ferror(file.get())) return {};
  return text;
}

}  // namespace replicator::detail
