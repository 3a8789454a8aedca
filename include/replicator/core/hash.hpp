// SPDX-License-Identifier: Apache-2.0
// A 128-bit hash for graphs, plans and fingerprints. It never hashes a pointer, so it is the same on every host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace replicator::detail {

// A 128-bit hash value.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  std::string text() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string result(32, '0');
    for (int i = 0; i < 16; ++i) {
      result[static_cast<std::size_t>(15 - i)] = digits[(high >> (4 * i)) & 15];
      result[static_cast<std::size_t>(31 - i)] = digits[(low >> (4 * i)) & 15];
    }
    return result;
  }
  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

// Two multiply-xorshift lanes over 8-byte words (the finaliser of SplitMix64, Steele 2014). Not cryptographic.
class Hasher {
 public:
  void word(std::uint64_t value) {
    a_ = mix(a_ ^ value);
    b_ = mix(b_ + value * 0x9E3779B97F4A7C15u + 1);
  }
  void bytes(std::span<const std::byte> data) {
    word(data.size());
    std::size_t i = 0;
    for (; i + 8 <= data.size(); i += 8) {
      std::uint64_t value;
      std::memcpy(&value, data.data() + i, 8);
      word(value);
    }
    if (i < data.size()) {
      std::uint64_t value = 0;
      std::memcpy(&value, data.data() + i, data.size() - i);
      word(value);
    }
  }
  void text(std::string_view value) { bytes({reinterpret_cast<const std::byte*>(value.data()), value.size()}); }
  void digest(const Digest& value) {
    word(value.high);
    word(value.low);
  }
  Digest result() const { return {mix(a_), mix(b_ ^ a_)}; }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

  std::uint64_t a_ = 0x243F6A8885A308D3u;
  std::uint64_t b_ = 0x13198A2E03707344u;
};

struct DigestHash {
  std::size_t operator()(const Digest& digest) const { return static_cast<std::size_t>(digest.low); }
};

}  // namespace replicator::detail
