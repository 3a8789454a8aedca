// SPDX-License-Identifier: Apache-2.0
// Numbers that are easy to reproduce in any language. See also hashed.py.
#pragma once

#include <cstdint>

namespace bench {

// A number in [-0.5, 0.5): the finaliser of MurmurHash3 over (salt, index).
inline float hashed(std::uint32_t index, std::uint32_t salt) {
  std::uint32_t h = index + salt * 0x9E3779B9u;
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  h ^= h >> 16;
  return static_cast<float>(h >> 8) * 0x1p-24f - 0.5f;
}

}  // namespace bench
