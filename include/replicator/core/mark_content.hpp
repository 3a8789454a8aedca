// SPDX-License-Identifier: Apache-2.0
// The code of content_mark.hpp: the keys and sums of a mark.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <replicator/core/content_mark.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>

namespace replicator::detail {

// Each block of 4 KiB has a sum modulo 2^64: of its pairs of words, and of 2^32 times each word. A word has 4 bytes, and each place
// of a block has a key. A pair counts as the product of its two (word + key) modulo 2^32. This is the hash NH of UMAC (RFC 4418,
// 5.2); the term 2^32 times each word is ours. If one word changes by d, the sum changes by d * (2^32 + the other factor). That is
// never 0 modulo 2^64. The mark is the number of bytes, plus a polynomial with the blocks' sums as coefficients.
namespace marks {

inline constexpr std::size_t block_bytes = 4096;
inline constexpr std::uint64_t base = 0x9E3779B97F4A7C15u;  // of the polynomial; odd, so that each sum counts with all its bits

// Numbers without a pattern: the finaliser of MurmurHash3 for 1, 2, 3 ...
struct alignas(64) Keys : std::array<std::uint32_t, block_bytes / sizeof(std::uint32_t)> {};
inline constexpr Keys keys = [] {
  Keys result{};
  for (std::uint32_t i = 0; i < result.size(); ++i) {
    std::uint32_t key = i + 1;
    key = (key ^ key >> 16) * 0x85EBCA6Bu;
    key = (key ^ key >> 13) * 0xC2B2AE35u;
    result[i] = key ^ key >> 16;
  }
  return result;
}();

inline std::uint64_t term_of_pair(const std::uint32_t (&pair)[2], std::size_t word) {
  const std::uint32_t low = pair[0] + keys[word], high = pair[1] + keys[word + 1];
  return std::uint64_t{low} * high + (std::uint64_t{pair[0] + pair[1]} << 32);
}
// Of a block's bytes from `begin` on, a multiple of 8. The last pair is filled up with zeros.
inline std::uint64_t sum_of_block(std::span<const std::byte> block, std::size_t begin = 0) {
  std::uint64_t sum = 0;
  std::uint32_t pair[2];
  std::size_t i = begin;
  for (; i + sizeof pair <= block.size(); i += sizeof pair) {
    std::memcpy(pair, block.data() + i, sizeof pair);
    sum += term_of_pair(pair, i / sizeof pair[0]);
  }
  if (i == block.size()) return sum;
  std::memset(pair, 0, sizeof pair);
  std::memcpy(pair, block.data() + i, block.size() - i);
  return sum + term_of_pair(pair, i / sizeof pair[0]);
}

// `sum_of`: of a block.
template <class SumOf>
std::uint64_t polynomial(std::span<const std::byte> data, SumOf sum_of) {
  std::uint64_t result = 0;
  for (std::size_t i = 0; i < data.size(); i += block_bytes) result = result * base + sum_of(data.subspan(i, std::min(block_bytes, data.size() - i)));
  return result;
}

#if defined(__x86_64__)
// 16 words in a round.
[[REPLICATOR_AVX2]] inline std::uint64_t sum_of_block_avx2(std::span<const std::byte> block) {
  constexpr std::size_t width = sizeof(__m256i);
  const auto* const key = reinterpret_cast<const __m256i*>(keys.data());
  __m256i products = _mm256_setzero_si256(), more_products = products, words = products, more_words = products;
  std::size_t i = 0;
  for (; i + 2 * width <= block.size(); i += 2 * width) {
    __m256i a, b;
    std::memcpy(&a, block.data() + i, width);
    std::memcpy(&b, block.data() + i + width, width);
    const __m256i x = _mm256_add_epi32(a, key[i / width]), y = _mm256_add_epi32(b, key[i / width + 1]);
    products = _mm256_add_epi64(products, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
    more_products = _mm256_add_epi64(more_products, _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
    words = _mm256_add_epi32(words, a);
    more_words = _mm256_add_epi32(more_words, b);
  }
  // The two words of a pair lie beside each other: each is moved to the upper half and added there.
  words = _mm256_add_epi32(words, more_words);
  const __m256i upper = _mm256_slli_epi64(_mm256_add_epi32(words, _mm256_srli_epi64(words, 32)), 32);
  const __m256i all = _mm256_add_epi64(_mm256_add_epi64(products, more_products), upper);
  std::uint64_t sums[4];
  std::memcpy(sums, &all, width);
  return sums[0] + sums[1] + sums[2] + sums[3] + sum_of_block(block, i);
}
#endif

}  // namespace marks

template <class>
std::uint64_t content_mark(std::span<const std::byte> data) {
#if defined(__x86_64__)
  if (has_avx2()) return data.size() + marks::polynomial(data, [](auto block) { return marks::sum_of_block_avx2(block); });
#endif
  return data.size() + marks::polynomial(data, [](auto block) { return marks::sum_of_block(block); });
}

}  // namespace replicator::detail
