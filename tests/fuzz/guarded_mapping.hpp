// SPDX-License-Identifier: Apache-2.0
// Puts the files of MappedFile on the heap, where AddressSanitizer sees a read past the last byte. A mapped page may
// have readable bytes there.
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
