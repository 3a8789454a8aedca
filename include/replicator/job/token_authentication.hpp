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

// What a proof needs of a library of cryptography. All throw CommunicationError where the library fails.
struct Cryptography {
  Mac (*hmac_sha256)(std::string_view key, std::span<const std::byte> message);
  Nonce (*random)();
  // In a time that does not depend on what is compared.
  bool (*equal)(const Mac& a, std::span<const std::byte> b);
};

// Filled by the header that brings one (hmac.hpp) when it is part of the program.
inline constinit std::atomic<const Cryptography*> cryptography_slot{nullptr};

namespace detail {

// Throws BuildError where the program has none: a job token cannot be used then.
inline const Cryptography& cryptography() {
  if (const auto* found = cryptography_slot.load()) return *found;
  throw BuildError{
      "a job token was given, but the program has nothing to prove it with: install libssl-dev and link "
      "replicator::crypto (or include <replicator/job/hmac.hpp> and link crypto), or give no token"};
}

enum class Prover {
  newcomer,
  process_0
};

// What `prover` sends: HMAC-SHA256 under the token, of who proves, all that the newcomer said of itself, and a fresh
// random number of each side. So a proof is good for one connection, one rank and one direction: neither a recorded one
// nor one's own, sent back, is accepted.
inline Mac proof_of(const std::string& token, Prover prover, const JoinRequest& newcomer, const Nonce& challenge) {
  FrameWriter message{FrameKind::proof};
  message.text(prover == Prover::newcomer ? "replicator rendezvous 1: newcomer" : "replicator rendezvous 1: process 0");
  newcomer.write(message);
  message.blob(challenge);
  return cryptography().hmac_sha256(token, message.fields());
}

}  // namespace detail

}  // namespace replicator::detail::transport
