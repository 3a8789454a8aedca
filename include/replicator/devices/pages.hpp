// SPDX-License-Identifier: Apache-2.0
// Memory directly from the system. It is zero-filled, mapped until it is released, and in huge pages where the system grants them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>

namespace replicator::detail {

inline constexpr std::size_t huge_page = std::size_t{2} << 20;

// Size of a mapping with room for huge pages. Linux aligns a mapping to huge pages if its size is a multiple of theirs.
constexpr std::size_t mapped_bytes(std::size_t bytes) { return bytes < huge_page ? bytes + (bytes == 0) : (bytes + huge_page - 1) / huge_page * huge_page; }

struct Unmap {
  std::size_t bytes = 0;  // as requested
  void operator()(std::byte* memory) const noexcept { ::munmap(memory, mapped_bytes(bytes)); }
};
using Pages = std::unique_ptr<std::byte, Unmap>;

// Empty where the system refuses.
inline Pages map_pages(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  if (bytes >= huge_page) ::madvise(memory, mapped_bytes(bytes), MADV_HUGEPAGE);
  return {static_cast<std::byte*>(memory), Unmap{bytes}};
}

}  // namespace replicator::detail
