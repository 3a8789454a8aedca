// SPDX-License-Identifier: Apache-2.0
// Whole files: read at once, or written beside their place and renamed into it.
#pragma once

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>

namespace replicator::io {

namespace detail {

[[noreturn]] inline void fail(const std::string& path, const char* what) {
  throw DataError{path + ": cannot " + what + ": " + std::strerror(errno)};
}

// 16 hexadecimal digits; process numbers repeat between containers.
inline std::string random_name() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR) throw DataError{std::string{"cannot draw a random file name: "} + std::strerror(errno)};
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, number);
  return digits;
}

// Owns a file descriptor.
class File {
 public:
  File(const std::string& path, int flags, const char* what) : File{path, flags, what, path} {}
  // `named`: what the user calls it.
  File(const std::string& path, int flags, const char* what, const std::string& named) : fd_{::open(path.c_str(), flags | O_CLOEXEC, 0666)} {
    if (fd_ < 0) fail(named, what);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

inline void write_all(const std::string& path, int fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "write");
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

inline void read_exactly(const std::string& path, int fd, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t got = ::read(fd, to.data(), to.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "read");
    if (got == 0) throw DataError{path + ": became shorter while it was read"};
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace detail

// Reads the whole file into `bytes`, keeping its capacity. Throws DataError that names the file.
inline void read_file(const std::string& path, std::vector<std::byte>& bytes) {
  const detail::File file{path, O_RDONLY, "open for reading"};
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) detail::fail(path, "stat");
  if (!S_ISREG(status.st_mode)) throw DataError{path + ": not a regular file"};
  bytes.resize(static_cast<std::size_t>(status.st_size));
  detail::read_exactly(path, file.fd(), bytes);
}

// Replaces a file as a whole: what is written goes to "<path>.<random>.partial", which nobody else on any host that shares the folder
// writes to, and commit() renames it into place once it is on the disk. Without commit() (an exception, say) the old file stays and
// the partial one is removed.
// All members throw DataError.
class FileReplacement {
 public:
  explicit FileReplacement(std::string path)
      : path_{std::move(path)},
        partial_{path_ + "." + detail::random_name() + ".partial"},
        file_{std::make_unique<detail::File>(partial_, O_WRONLY | O_CREAT | O_EXCL, "create", path_)} {}
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;
  ~FileReplacement() {
    if (file_) ::unlink(partial_.c_str());
  }

  void write(std::span<const std::byte> data) { detail::write_all(partial_, file_->fd(), data); }

  void commit() {
    if (::fsync(file_->fd()) != 0) detail::fail(partial_, "flush to the disk");
    if (::rename(partial_.c_str(), path_.c_str()) != 0) detail::fail(path_, "rename the finished file to this name");
    file_.reset();
    const auto slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const detail::File names{folder, O_RDONLY | O_DIRECTORY, "open the folder"};
    if (::fsync(names.fd()) != 0 && errno != EINVAL) detail::fail(folder, "flush the folder to the disk");
  }

 private:
  std::string path_;
  std::string partial_;
  std::unique_ptr<detail::File> file_;
};

// For files that are written after long work. Throws DataError, which begins with `flag`, where one could not be created;
// leaves nothing behind.
inline void require_writable(const std::string& flag, const std::string& path) {
  try {
    const FileReplacement tried{path};
  } catch (const DataError& error) {
    throw DataError{flag + ": " + error.what()};
  }
}

// Writes `data` as the whole file, in place (no rename, no flush). Throws DataError.
inline void write_file(const std::string& path, std::span<const std::byte> data) {
  const detail::File file{path, O_WRONLY | O_CREAT | O_TRUNC, "create"};
  detail::write_all(path, file.fd(), data);
}

}  // namespace replicator::io
