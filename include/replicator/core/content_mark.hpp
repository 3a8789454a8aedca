// SPDX-License-Identifier: Apache-2.0
// A 64-bit mark of bytes in memory, to compare large values fast. Two contents that differ in one aligned 4-byte word always
// have different marks. Other pairs of different contents, which were not made with the keys of mark_content.hpp in mind, have equal marks with
// a probability of at most about 2^-32. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace replicator::detail {

template <class = void>
std::uint64_t content_mark(std::span<const std::byte> data);

}  // namespace replicator::detail
