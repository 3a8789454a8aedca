// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory (memfd) that several processes can map, and its mappings. The kernel frees it even after a crash.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <replicator/core/error.hpp>
#include <replicator/io/file_descriptor.hpp>
#include <string>
#include <utility>

namespace replicator::detail::transport::detail {

// A range of mapped memory; unmaps it at the end.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t bytes) : data_{data}, bytes_{bytes} {}
  Mapping(Mapping&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A file that only grows. It is sealed against shrinking, so every process that holds it may grow it, in any order and
// without telling the others.
class MemoryFile {
 public:
  static constexpr std::size_t page = 4096;

  static MemoryFile create() {
    FileDescriptor file{::memfd_create("replicator", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!file || ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) fail("create", 0);
    return MemoryFile{std::move(file)};
  }
  explicit MemoryFile(FileDescriptor file) : file_{std::move(file)} {}

  int descriptor() const { return file_.get(); }

  // Maps a range and grows the file if needed. Unwritten bytes are zero. Throws CommunicationError.
  Mapping map(std::size_t offset, std::size_t bytes) const {
    grow(offset + bytes);
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), static_cast<off_t>(offset));
    if (data == MAP_FAILED) fail("map", bytes);
    return {static_cast<std::byte*>(data), bytes};
  }

  // Gives the memory of a range back. It must begin and end at a page. Those who have it mapped read zeros.
  void discard(std::size_t offset, std::size_t bytes) const {
    static_cast<void>(::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)));
  }

 private:
  void grow(std::size_t bytes) const {
    struct stat now {};
    if (::fstat(file_.get(), &now) == 0 && now.st_size >= static_cast<off_t>(bytes)) return;
    // EPERM: another process has made the file larger in the meantime.
    if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0 && errno != EPERM) fail("grow", bytes);
  }

  [[noreturn]] static void fail(const char* what, std::size_t bytes) {
    throw CommunicationError{
        std::string{"cannot "} + what + " shared memory of " + std::to_string(bytes) + " bytes: " + errno_text(errno),
        -1};
  }

  FileDescriptor file_;
};

inline std::size_t round_to_pages(std::size_t bytes) {
  return (bytes + MemoryFile::page - 1) / MemoryFile::page * MemoryFile::page;
}

}  // namespace replicator::detail::transport::detail
