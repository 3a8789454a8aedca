// SPDX-License-Identifier: Apache-2.0
// Mutual authentication with the job token: a challenge and an HMAC in each direction. The token itself is never sent.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <replicator/job/join_request.hpp>
#include <replicator/job/wire/frame.hpp>
#include <span>
#include <string>
#include <string_view>

namespace replicator::detail::transport {

using Mac = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;

// The interface to a library of cryptography. All functions throw CommunicationError where the library fails.
struct Cryptography {
  Mac (*hmac_sha256)(std::string_view key, std::span<const std::byte> message);
  Nonce (*random)();
  // A constant-time comparison.
  bool (*equal)(const Mac& a, std::span<const std::byte> b);
};

// The header of a library (hmac.hpp) fills this slot where it is part of the program.
inline constinit std::atomic<const Cryptography*> cryptography_slot{nullptr};

namespace detail {

// Throws BuildError where the program has no library: a job token cannot be used then.
inline const Cryptography& cryptography() {
  if (const auto* found = cryptography_slot.load()) return *found;
  throw BuildError{
      "a job token was given, but the program has nothing to prove it with: install libssl-dev and link "
      "replicator::crypto (or include <replicator/job/hmac.hpp> and link crypto), or give no token"};
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
