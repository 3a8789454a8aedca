// SPDX-License-Identifier: Apache-2.0
// The 16-bit floating type bfloat16: the upper half of a float. It is a type for storage, messages and matrix products.
// It has no arithmetic of its own: values are computed as floats.
#pragma once

#include <bit>
#include <cstdint>

namespace replicator {

// Rounds a float to the nearest bfloat16, ties to even. Values that are too large become infinite. NaN stays a quiet
// NaN with its sign and upper bits. There is no branch, so loops over it vectorise.
constexpr std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  const std::uint32_t quiet = bits | 0x400000;
  const bool is_nan = static_cast<std::int32_t>(bits & 0x7fffffff) > 0x7f800000;
  return static_cast<std::uint16_t>((is_nan ? quiet : rounded) >> 16);
}

// The float with `bits` as its upper half; the lower half is zero.
constexpr float bfloat16_value(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// Converts implicitly from and to float. A double or an integer is rounded to float first.
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
