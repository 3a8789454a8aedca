// SPDX-License-Identifier: Apache-2.0
// A 64-bit mark of bytes in memory, to compare large values fast. Two contents that differ in one 8-byte word always have
// different marks; other pairs of different contents do so with a probability of about 1 - 2^-60. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <replicator/core/processor.hpp>

namespace replicator::detail {

namespace marks {

// The factor of word i is first_factor + i * stride. The stride is even, so that all factors are odd.
inline constexpr std::uint64_t first_factor = 0xBF58476D1CE4E5B9u, stride = 0x9E3779B97F4A7C14u;

// Four words, which the compiler multiplies at once where the processor can.
using Words [[gnu::vector_size(32)]] = std::uint64_t;

[[gnu::always_inline]] inline std::uint64_t sum_of_words(std::span<const std::byte> data) {
  Words low = {first_factor, first_factor + stride, first_factor + 2 * stride, first_factor + 3 * stride};
  Words high = low + 4 * stride, even = {}, odd = {};
  std::size_t i = 0;
  for (; i + 2 * sizeof(Words) <= data.size(); i += 2 * sizeof(Words)) {
    Words a, b;
    std::memcpy(&a, data.data() + i, sizeof a);
    std::memcpy(&b, data.data() + i + sizeof a, sizeof b);
    even += a * low;
    odd += b * high;
    low += 8 * stride;
    high += 8 * stride;
  }
  even += odd;
  std::uint64_t sum = even[0] + even[1] + even[2] + even[3], factor = low[0];
  for (; i < data.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data() + i, data.size() - i < sizeof word ? data.size() - i : sizeof word);
    sum += word * factor;
    factor += stride;
  }
  return sum;
}

[[REPLICATOR_AVX2]] inline std::uint64_t sum_of_words_avx2(std::span<const std::byte> data) { return sum_of_words(data); }

}  // namespace marks

// The number of bytes plus the sum of all words, each times its own odd number, modulo 2^64. No multiplication waits for the one
// before.
inline std::uint64_t content_mark(std::span<const std::byte> data) {
  return data.size() + (has_avx2() ? marks::sum_of_words_avx2(data) : marks::sum_of_words(data));
}

}  // namespace replicator::detail
