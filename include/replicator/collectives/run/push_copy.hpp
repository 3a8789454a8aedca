// SPDX-License-Identifier: Apache-2.0
// A copy to memory that another core reads next.
#pragma once

#include <cstddef>

namespace replicator::detail::collectives {

// Bytes that are worth one push_copy: more in a row, and what was just computed leaves the first cache meanwhile.
inline constexpr std::size_t push_tile_bytes = 4096;

// Copies `bytes`, a few kilobytes, with the processor's string move: it need not read the lines that it overwrites as a
// whole, and leaves them in the caches. Measured for 4 MiB between two cores, with what follows: 70 us against 75 with
// memcpy, 527 against 540 where the receiver reads them. Stores past the caches depend on the neighbours' use of
// memory: 64 or 93 us.
inline void push_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  asm volatile("rep movsb"
               : "+D"(to), "+S"(from), "+c"(bytes)
               :
               : "memory");
}

}  // namespace replicator::detail::collectives
