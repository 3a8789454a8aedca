// SPDX-License-Identifier: Apache-2.0
// Helpers of the sources that read files: lists files, and turns bytes into an element.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace replicator::data::detail {

// Lists the file itself, or the files of a folder with fitting names, sorted. `kind` describes them in errors.
// Throws DataError for a folder without any.
inline std::vector<std::string> files_at(const std::string& path, const char* kind, bool (*fits)(std::string_view)) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed)) return {path};
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator entry{path, failed}, end; !failed && entry != end; entry.increment(failed))
    if (fits(entry->path().filename().native())) files.push_back(entry->path().native());
  if (failed) throw DataError{path + ": cannot read the folder: " + failed.message()};
  if (files.empty()) throw DataError{path + ": the folder has no " + kind};
  std::sort(files.begin(), files.end());
  return files;
}

// The bytes as uint8 [bytes].
inline Array<std::uint8_t> array_of_bytes(std::span<const std::byte> bytes) {
  Array<std::uint8_t> result{Shape{static_cast<std::int64_t>(bytes.size())}};
  if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

}  // namespace replicator::data::detail
