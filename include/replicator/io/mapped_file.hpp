// SPDX-License-Identifier: Apache-2.0
// A read-only memory-mapped file. The system reads its pages on demand.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <replicator/core/error.hpp>
#include <replicator/io/input_file.hpp>
#include <span>
#include <string>
#include <utility>

namespace replicator::io::detail {

// **Replace mapped files by renaming, never truncate them**: readers of the missing part die of SIGBUS. Keeps no file
// descriptor, so thousands of files may be mapped.
class MappedFile {
 public:
  // Throws DataError that names the file.
  explicit MappedFile(std::string path) : path_{std::move(path)} {
    const detail::InputFile file{path_};
    if (file.size() == 0) return;
    void* const memory = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
    if (memory == MAP_FAILED) detail::fail(path_, "map");
    bytes_ = {static_cast<const std::byte*>(memory), file.size()};
  }
  MappedFile(MappedFile&& other) noexcept : path_{std::move(other.path_)}, bytes_{std::exchange(other.bytes_, {})} {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace replicator::io::detail
