// SPDX-License-Identifier: Apache-2.0
// Files that MappedFile maps lie on the heap instead, where AddressSanitizer sees a read behind their last byte: a page has room
// behind it.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>

inline void* guarded_mmap(void*, std::size_t bytes, int, int, int file, off_t offset) {
  void* const memory = std::malloc(bytes);
  return ::pread(file, memory, bytes, offset) == static_cast<ssize_t>(bytes) ? memory : MAP_FAILED;
}
inline int guarded_munmap(void* memory, std::size_t) {
  std::free(memory);
  return 0;
}

#define mmap guarded_mmap
#define munmap guarded_munmap
#include <replicator/io/mapped_file.hpp>
#undef mmap
#undef munmap
