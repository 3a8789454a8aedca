// SPDX-License-Identifier: Apache-2.0
// Reads and writes whole files. A regular file is written beside its place and then renamed; devices and pipes in
// place.
#pragma once

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/io/input_file.hpp>

namespace replicator::io {

namespace detail {

// 16 random hexadecimal digits. A process id would not do: ids repeat between containers.
inline std::string random_name() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR) throw DataError{std::string{"cannot draw a random file name: "} + std::strerror(errno)};
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, number);
  return digits;
}

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

inline std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

// Brings the names in a folder to the disk, where the file system can do that. Returns false, and sets errno, if it fails.
inline bool flush_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const File names{fd};
  return ::fsync(fd) == 0 || errno == EINVAL;
}

// Follows symbolic links. The last link may name a file that does not exist yet.
inline std::string followed(const std::string& path) {
  auto at = path;
  for (int links = 0; links < 40; ++links) {
    char target[PATH_MAX];
    const ssize_t length = ::readlink(at.c_str(), target, sizeof target);
    if (length < 0) return at;
    const std::string to(target, static_cast<std::size_t>(length));
    at = to.starts_with('/') ? to : folder_of(at) + to;
  }
  errno = ELOOP;
  fail(path, "follow the links");
}

// The status of the file behind all links; nothing if there is none. Throws DataError for a folder.
inline std::optional<struct stat> status_of_output(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  if (S_ISDIR(status.st_mode)) throw DataError{path + ": is a folder: name a file in it"};
  return status;
}

// stdout or stderr of this process if `status` belongs to one of them. "/dev/stdout" may be a file, a terminal or a
// pipe.
inline std::FILE* own_stream(const struct stat& status) {
  for (std::FILE* stream : {stdout, stderr}) {
    struct stat own {};
    if (::fstat(::fileno(stream), &own) == 0 && own.st_dev == status.st_dev && own.st_ino == status.st_ino) return stream;
  }
  return nullptr;
}

inline bool in_place(const struct stat& status) { return !S_ISREG(status.st_mode) || own_stream(status); }

// Opens a stream that is written in place. Output that was printed there before comes first.
inline std::unique_ptr<File> open_in_place(const std::string& path, const struct stat& status) {
  std::FILE* const own = own_stream(status);
  if (!own) return std::make_unique<File>(path, O_WRONLY | O_NOCTTY, "open for writing");
  std::fflush(own);
  const int fd = ::fcntl(::fileno(own), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) fail(path, "open for writing");
  return std::make_unique<File>(fd);
}

}  // namespace detail

// Reads the whole file into `bytes`, and keeps the vector's capacity. Throws DataError that names the file.
inline void read_file(const std::string& path, std::vector<std::byte>& bytes) {
  const detail::InputFile file{path};
  bytes.resize(file.size());
  detail::read_exactly(path, file.fd(), bytes);
}

// True for devices, pipes, and the files behind stdout or stderr of this process. Such a stream takes several files one
// after the other.
// Throws DataError for a folder.
inline bool written_in_place(const std::string& path) {
  const auto status = detail::status_of_output(path);
  return status && detail::in_place(*status);
}

// Replaces a file as a whole. Writes go to "<path>.<random>.partial"; no other process on any host that shares the
// folder writes there. commit() flushes that file to the disk and renames it to `path`. Without commit(), as after an
// exception, the old file stays and the partial one is removed.
//
// - A symbolic link stays, and the file it leads to is replaced.
// - A stream that is written in place (see above) is opened by the constructor, and each write() reaches it at once.
//   For a named pipe the constructor waits for the reader.
//
// All members throw DataError that names the path, also for a folder.
class FileReplacement {
 public:
  explicit FileReplacement(std::string path) : path_{std::move(path)} {
    if (const auto status = detail::status_of_output(path_); status && detail::in_place(*status)) {
      file_ = detail::open_in_place(path_, *status);
      return;
    }
    target_ = detail::followed(path_);
    partial_ = target_ + "." + detail::random_name() + ".partial";
    file_ = std::make_unique<detail::File>(partial_, O_WRONLY | O_CREAT | O_EXCL, "create", path_);
  }
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;
  ~FileReplacement() {
    if (file_ && !partial_.empty()) ::unlink(partial_.c_str());
  }

  void write(std::span<const std::byte> data) { detail::write_all(path_, file_->fd(), data); }

  void commit() {
    if (!partial_.empty()) rename_into_place();
    file_.reset();
  }

 private:
  void rename_into_place() {
    if (::fsync(file_->fd()) != 0) detail::fail(path_, "flush to the disk");
    if (::rename(partial_.c_str(), target_.c_str()) != 0) detail::fail(path_, "rename the finished file to this name");
    partial_.clear();
    const auto folder = detail::folder_of(target_);
    if (!detail::flush_folder(folder)) detail::fail(folder, "flush the folder to the disk");
  }

  std::string path_, target_, partial_;  // partial_ is empty if the file is written in place
  std::unique_ptr<detail::File> file_;
};

// Checks early that a file can be written that a long computation will write at its end.
// Throws DataError that begins with `flag` if it cannot, also for a folder. Leaves nothing behind, and opens no device
// or pipe.
inline void require_writable(const std::string& flag, const std::string& path) {
  try {
    if (!written_in_place(path)) const FileReplacement tried{path};
    else if (::access(path.c_str(), W_OK) != 0) detail::fail(path, "write");
  } catch (const DataError& error) {
    throw DataError{flag + ": " + error.what()};
  }
}

// Writes `data` as the whole file, in place: without a rename or a flush. Throws DataError.
inline void write_file(const std::string& path, std::span<const std::byte> data) {
  const detail::File file{path, O_WRONLY | O_CREAT | O_TRUNC, "create"};
  detail::write_all(path, file.fd(), data);
}

}  // namespace replicator::io
