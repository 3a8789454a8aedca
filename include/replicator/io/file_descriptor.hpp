// SPDX-License-Identifier: Apache-2.0
// A file descriptor that closes itself, and errno as text.
#pragma once

#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

namespace replicator::detail::transport {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_{number} {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }
  void close() noexcept {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_ = -1;
};

// "Connection refused" and the like. Thread-safe, unlike strerror.
inline std::string errno_text(int number) { return std::generic_category().message(number); }

}  // namespace replicator::detail::transport
