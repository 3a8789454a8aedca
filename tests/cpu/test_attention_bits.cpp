// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/cpu/attention/attention_bits.hpp>

namespace test_attention_bits {

using namespace replicator;
using namespace replicator::detail;

namespace {

bool has_bit(const cpu::AttentionBits& bits, std::int64_t row, std::int64_t key) {
  return bits[static_cast<std::size_t>(row / cpu::tile_group * cpu::attention_tile + key)] >> row % cpu::tile_group & 1;
}

}  // namespace

TEST_CASE("a tile of a mask has a bit for each query and key, and none beyond the rows and keys that it is given") {
  std::vector<std::byte> mask(64 * 100);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<std::byte>(i * i % 7 < 3 ? i % 2 + 1 : 0);
  const std::int64_t step = GENERATE(0, 64, 100);
  const bool one_key = GENERATE(false, true);
  for (const std::int64_t rows : {1, 16, 17, 64})
    for (const std::int64_t keys : {1, 16, 63, 64}) {
      cpu::AttentionBits bits;
      bits.fill(0xabcd);
      bool any = false, equal = true;
      const bool found = cpu::read_mask(mask.data(), step, one_key, rows, keys, bits);
      for (std::int64_t row = 0; row < 64; ++row)
        for (std::int64_t key = 0; key < 64; ++key) {
          const bool expected = row < rows && key < keys && mask[static_cast<std::size_t>(row * step + (one_key ? 0 : key))] != std::byte{0};
          equal = equal && has_bit(bits, row, key) == expected;
          any = any || expected;
        }
      CAPTURE(step, one_key, rows, keys);
      CHECK(equal);
      CHECK(found == any);
    }
}

TEST_CASE("a tile that a mask hides has no bit") {
  const std::vector<std::byte> mask(64 * 64);
  cpu::AttentionBits bits;
  CHECK_FALSE(cpu::read_mask(mask.data(), 64, false, 64, 64, bits));
  CHECK_FALSE(cpu::read_mask(mask.data(), 0, true, 64, 64, bits));
}

TEST_CASE("on the diagonal a query of the first vector sees the keys up to its own place, and later ones see all") {
  for (std::int64_t row = 0; row < 64; ++row)
    for (std::int64_t key = 0; key < 16; ++key) CHECK(has_bit(cpu::diagonal_bits, row, key) == (key <= row));
}

TEST_CASE("dropout keeps a weight where its uniform number is not less than the rate") {
#if defined(__x86_64__)
  if (!has_avx2()) {
    WARN("skipped: draw_kept needs AVX2");
    return;
  }
#endif
  const double rate = GENERATE(0.1, 0.25, 0.5, 0.999);
  const cpu::AttentionDropout dropout{{0, 3, 1, 9}, {5, 6}, cpu::AttentionDropout::threshold_of(rate), 1};
  const std::int64_t first = 4 * 1000, step = 204;
  cpu::AttentionBits bits{};
  cpu::draw_kept(dropout, first, step, 3, bits);
  int wrong = 0, kept = 0;
  for (std::int64_t row = 0; row < 48; ++row)
    for (std::int64_t key = 0; key < 64; ++key) {
      const std::int64_t place = first + row * step + key;
      const auto block = philox({static_cast<std::uint32_t>(place / 4), 3, 1, 9}, {5, 6});
      const float uniform = static_cast<float>(block[static_cast<std::size_t>(place % 4)] >> 8) * 0x1p-24f;
      wrong += has_bit(bits, row, key) != (uniform >= static_cast<float>(rate));
      kept += has_bit(bits, row, key);
    }
  CHECK(wrong == 0);
  CHECK(std::abs(kept / (48.0 * 64) - (1 - rate)) < 0.05);
}

}  // namespace test_attention_bits
