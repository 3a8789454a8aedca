// SPDX-License-Identifier: Apache-2.0
// Mutual authentication with the job token: a challenge and an HMAC in each direction. The token itself is never sent.
#pragma once

#include <sys/random.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <replicator/job/hmac.hpp>
#include <replicator/job/join_request.hpp>
#include <replicator/job/wire/frame.hpp>
#include <span>
#include <string>
#include <string_view>

namespace replicator::detail::transport {

using Nonce = std::array<std::byte, 32>;

// What the proofs are made of.
struct Cryptography {
  Mac (*hmac_sha256)(std::string_view key, std::span<const std::byte> message);
  Nonce (*random)();
};

namespace detail {

inline Nonce random_of_kernel() {
  Nonce result{};
  while (::getrandom(result.data(), result.size(), 0) != static_cast<ssize_t>(result.size())) {
  }
  return result;
}

inline constexpr Cryptography own_cryptography{hmac_sha256, random_of_kernel};
// The fuzz targets put in one whose proofs an input can guess.
inline constinit std::atomic<const Cryptography*> cryptography_slot{&own_cryptography};
inline const Cryptography& cryptography() { return *cryptography_slot.load(); }

// Whether they are equal, in a time that does not tell where they differ.
inline bool equal_macs(const Mac& a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  std::byte difference{};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

// A new job token, which nobody can guess.
inline std::string random_token() {
  Sha256 hash;
  hash.update(random_of_kernel());
  return hash.text();
}

// The role of the process that sends a proof.
enum class Prover {
  newcomer,
  process_0
};

// The proof that `prover` sends: HMAC-SHA256 under the token. It covers the prover's role, the newcomer's hello, and a
// fresh random number of each side. So a proof is valid for one connection, one rank and one direction. A recorded proof is
// refused, and so is the receiver's own proof sent back.
inline Mac proof_of(const std::string& token, Prover prover, const JoinRequest& newcomer, const Nonce& challenge) {
  FrameWriter message{FrameKind::proof};
  message.text(prover == Prover::newcomer ? "replicator rendezvous 1: newcomer" : "replicator rendezvous 1: process 0");
  newcomer.write(message);
  message.blob(challenge);
  return cryptography().hmac_sha256(token, message.fields());
}

}  // namespace detail

}  // namespace replicator::detail::transport
