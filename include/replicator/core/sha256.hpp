// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), incremental. The library has its own because a GPU machine may have no library beyond the CUDA
// toolkit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace replicator::detail {

class Sha256 {
 public:
  void update(std::span<const std::byte> data) {
    length_ += data.size();
    while (!data.empty()) {
      if (used_ == 0 && data.size() >= 64) {
        compress(data.data());
        data = data.subspan(64);
        continue;
      }
      const std::size_t take = data.size() < 64 - used_ ? data.size() : 64 - used_;
      std::memcpy(block_.data() + used_, data.data(), take);
      data = data.subspan(take);
      used_ += take;
      if (used_ == 64) {
        compress(block_.data());
        used_ = 0;
      }
    }
  }
  void update(std::string_view text) { update(std::as_bytes(std::span{text.data(), text.size()})); }

  // The digest of all data so far. update() may be called again afterwards.
  std::array<std::byte, 32> digest() const {
    Sha256 copy = *this;
    copy.pad();
    std::array<std::byte, 32> result{};
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::byte>(copy.state_[i / 4] >> (24 - 8 * (i % 4)));
    return result;
  }
  // The same as 64 hexadecimal digits.
  std::string text() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string result;
    for (const std::byte byte : digest()) {
      result += digits[std::to_integer<unsigned>(byte >> 4)];
      result += digits[std::to_integer<unsigned>(byte & std::byte{15})];
    }
    return result;
  }

 private:
  static constexpr std::array<std::uint32_t, 64> k{
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

  static std::uint32_t rotate(std::uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

  void compress(const std::byte* block) {
    std::uint32_t w[64];
    for (std::size_t i = 0; i < 16; ++i)
      w[i] = std::to_integer<std::uint32_t>(block[4 * i]) << 24 |
             std::to_integer<std::uint32_t>(block[4 * i + 1]) << 16 |
             std::to_integer<std::uint32_t>(block[4 * i + 2]) << 8 | std::to_integer<std::uint32_t>(block[4 * i + 3]);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const std::uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i];
      const std::uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::uint32_t add[8] = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
  }

  void pad() {
    std::array<std::byte, 72> tail{std::byte{0x80}};
    const std::size_t zeros = (used_ < 56 ? 56 : 120) - used_;
    for (std::size_t i = 0; i < 8; ++i) tail[zeros + i] = static_cast<std::byte>((length_ * 8) >> (56 - 8 * i));
    update(std::span{tail}.first(zeros + 8));
  }

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};
  std::size_t used_ = 0;
  std::uint64_t length_ = 0;
};

}  // namespace replicator::detail
