// SPDX-License-Identifier: Apache-2.0
// A copy into memory that another core reads next.
#pragma once

#include <cstddef>
#include <cstring>

namespace replicator::detail::collectives {

// The size of one push_copy. With larger pieces the source, which was just computed, leaves the first cache before it is
// copied.
inline constexpr std::size_t push_tile_bytes = 4096;

// Copies `bytes`, a few kilobytes, with the processor's string move. It need not read a line that it overwrites as a whole,
// and it leaves the lines in the caches. Measured for 4 MiB between two cores, with the work that follows:
//
//                                rep movsb    memcpy    stores past the caches
//   stored                          70 us     75 us     64 to 93 us, depending on the neighbours' use of memory
//   where the receiver reads it    527 us    540 us
#if defined(__x86_64__)
inline void push_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  asm volatile("rep movsb"
               : "+D"(to), "+S"(from), "+c"(bytes)
               :
               : "memory");
}
#else
inline void push_copy(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

}  // namespace replicator::detail::collectives
