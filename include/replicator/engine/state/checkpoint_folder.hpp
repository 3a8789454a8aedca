// SPDX-License-Identifier: Apache-2.0
// CheckpointFolder: the folder of a run's checkpoints. step-0000000400.safetensors is the state after 400 steps.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/engine/state/folder_lock.hpp>
#include <replicator/io/file.hpp>

namespace replicator::detail {

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_{std::move(path)} {}

  const std::string& path() const { return path_; }
  // "runs/a/step-0000000400.safetensors"
  std::string file(std::uint64_t steps) const {
    auto digits = std::to_string(steps);
    return path_ + "/" + std::string{prefix} + std::string(digits.size() < 10 ? 10 - digits.size() : 0, '0') + digits + std::string{suffix};
  }

  // Makes the folder if it is missing, brings its name to the disk, takes its lock, and removes the partial files of processes that were killed while
  // they wrote. Throws BuildError if another job holds the lock, and DataError if the folder is not writable or a
  // checkpoint in it is no regular file.
  void prepare() {
    for (auto slash = path_.find('/', 1);; slash = path_.find('/', slash + 1)) {
      const auto part = path_.substr(0, slash);
      if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) io::detail::fail(part, "make the folder");
      // A killed run may have made the folder and not flushed its name. A parent that cannot be opened is not this run's.
      static_cast<void>(io::detail::flush_folder(io::detail::folder_of(part)));
      if (slash == std::string::npos) break;
    }
    lock_.emplace(path_);
    if (const auto& holder = lock_->holder())
      throw BuildError{"--checkpoint: " + path_ + " is in use by " + *holder +
                       ". Two jobs would overwrite each other's checkpoints: wait until it has ended, or name another folder"};
    for (const auto& file : newest_first()) require_regular(file);
    for (const auto& name : names())
      if (name.starts_with(prefix) && name.ends_with(".partial")) ::unlink((path_ + "/" + name).c_str());
    const io::FileReplacement writable{path_ + "/" + std::string{prefix} + "writable"};
  }
  // For the process that writes from now on: takes the lock if it is free. If it is not, a former process of this job
  // holds it, which was stopped and that the job goes on without.
  void take_over() {
    if (!lock_) lock_.emplace(path_);
  }
  // Throws DataError if there is something else than a file by this name. (Opening a named pipe would wait for its other
  // end, and a link may lead into the folder of another job.)
  static void require_regular(const std::string& file) {
    struct stat status {};
    if (::lstat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
      throw DataError{file + ": a checkpoint must be a regular file, and this is " + io::detail::kind_of_file(status) + ": move it away"};
  }
  // The complete checkpoints, newest first. Other files are ignored.
  std::vector<std::string> newest_first() const {
    std::vector<std::string> result;
    for (auto& name : names())
      if (is_checkpoint(name)) result.push_back(std::move(name));
    std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() > b.size() : a > b; });
    for (auto& name : result) name = path_ + "/" + name;
    return result;
  }
  // Removes the oldest checkpoints until at most `count` are left.
  void keep(int count) const {
    const auto files = newest_first();
    for (auto i = static_cast<std::size_t>(count); i < files.size(); ++i)
      if (::unlink(files[i].c_str()) != 0 && errno != ENOENT) io::detail::fail(files[i], "remove the old checkpoint");
  }

 private:
  static constexpr std::string_view prefix = "step-", suffix = ".safetensors";

  static bool is_checkpoint(std::string_view name) {
    if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() < prefix.size() + suffix.size() + 10) return false;
    name = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    return std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  std::vector<std::string> names() const {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder{::opendir(path_.c_str()), &::closedir};
    if (!folder) io::detail::fail(path_, "open the folder");
    std::vector<std::string> result;
    while (const auto* entry = ::readdir(folder.get())) result.emplace_back(entry->d_name);
    return result;
  }

  std::string path_;
  std::optional<FolderLock> lock_;
};

}  // namespace replicator::detail
