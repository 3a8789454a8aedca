// SPDX-License-Identifier: Apache-2.0
// Memory straight from the system: zero-filled, mapped until it is given back, in huge pages where the system grants them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>

namespace replicator::detail {

inline constexpr std::size_t huge_page = std::size_t{2} << 20;

// Of a mapping that has room for huge pages; Linux aligns to them what is a multiple of them.
constexpr std::size_t mapped_bytes(std::size_t bytes) { return bytes < huge_page ? bytes + (bytes == 0) : (bytes + huge_page - 1) / huge_page * huge_page; }

struct Unmap {
  std::size_t bytes = 0;  // as asked
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
