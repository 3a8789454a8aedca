// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256 from OpenSSL's libcrypto. Including this header enables job tokens.
#pragma once

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <climits>
#include <cstddef>
#include <replicator/core/error.hpp>
#include <replicator/job/token_authentication.hpp>
#include <span>
#include <string_view>

namespace replicator::detail::transport {

namespace detail {

inline Mac openssl_hmac_sha256(std::string_view key, std::span<const std::byte> message) {
  Mac result{};
  unsigned length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
  auto* out = reinterpret_cast<unsigned char*>(result.data());
  if (key.size() > INT_MAX ||
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, message.size(), out, &length) == nullptr ||
      length != result.size())
    throw CommunicationError{"libcrypto cannot compute HMAC-SHA256", -1};
  return result;
}

inline Nonce openssl_random() {
  Nonce result{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(result.data()), static_cast<int>(result.size())) != 1)
    throw CommunicationError{"libcrypto has no random numbers", -1};
  return result;
}

inline bool openssl_equal(const Mac& a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace detail

inline constexpr Cryptography openssl_cryptography{detail::openssl_hmac_sha256, detail::openssl_random,
                                                   detail::openssl_equal};

// Registers it in every program that includes this header.
inline const bool cryptography_is_known = (cryptography_slot.store(&openssl_cryptography), true);

}  // namespace replicator::detail::transport
