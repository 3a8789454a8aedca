// SPDX-License-Identifier: Apache-2.0
// Sixteen bits of floating point: the upper half of a float. Something to store, send and multiply matrices of; it has no
// arithmetic of its own, values are computed as floats.
#pragma once

#include <bit>
#include <cstdint>

namespace replicator {

// The nearest bfloat16 of a float, ties to even; what is too large becomes infinite, NaN stays NaN (quiet, with its sign
// and upper bits). Without branches, so that loops of it vectorise.
constexpr std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  const std::uint32_t quiet = bits | 0x400000;
  const bool is_nan = static_cast<std::int32_t>(bits & 0x7fffffff) > 0x7f800000;
  return static_cast<std::uint16_t>((is_nan ? quiet : rounded) >> 16);
}

// The float that these bits are the upper half of.
constexpr float bfloat16_value(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// Numbers convert to it and back without being asked, as between float and double. A double and an integer are rounded to
// float first.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  constexpr bfloat16(float value) : bits{bfloat16_bits(value)} {}    // NOLINT: implicit on purpose
  constexpr operator float() const { return bfloat16_value(bits); }  // NOLINT: implicit on purpose

  static constexpr bfloat16 from_bits(std::uint16_t bits) {
    bfloat16 result{0.0f};
    result.bits = bits;
    return result;
  }
};
static_assert(sizeof(bfloat16) == 2 && alignof(bfloat16) == 2);

}  // namespace replicator
