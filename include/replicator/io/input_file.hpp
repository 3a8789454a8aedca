// SPDX-License-Identifier: Apache-2.0
// File descriptors with an owner, and regular files that are opened for reading.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include <replicator/core/error.hpp>

namespace replicator::io::detail {

[[noreturn]] inline void fail(const std::string& path, const char* what) {
  throw DataError{path + ": cannot " + what + ": " + std::strerror(errno)};
}

// Owns a file descriptor.
class File {
 public:
  File(const std::string& path, int flags, const char* what) : File{path, flags, what, path} {}
  // `named`: the path as the user wrote it, for errors.
  File(const std::string& path, int flags, const char* what, const std::string& named) : fd_{::open(path.c_str(), flags | O_CLOEXEC, 0666)} {
    if (fd_ < 0) fail(named, what);
  }
  explicit File(int fd) : fd_{fd} {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// "a folder", for messages.
inline const char* kind_of_file(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) return "a folder";
  if (S_ISLNK(status.st_mode)) return "a symbolic link";
  if (S_ISFIFO(status.st_mode)) return "a named pipe";
  return S_ISREG(status.st_mode) ? "a regular file" : "a device";
}

// Opens a regular file for reading. Refuses all else, and does not wait for the writer of a named pipe.
class InputFile : public File {
 public:
  explicit InputFile(const std::string& path) : File{path, O_RDONLY | O_NONBLOCK, "open for reading"} {
    struct stat status {};
    if (::fstat(fd(), &status) != 0) fail(path, "stat");
    if (!S_ISREG(status.st_mode)) throw DataError{path + ": must be a regular file, and is " + kind_of_file(status)};
    size_ = static_cast<std::size_t>(status.st_size);
  }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
};

}  // namespace replicator::io::detail
