// SPDX-License-Identifier: Apache-2.0
// Fuzzes process 0 with arbitrary joining processes. First byte: with or without a job token, one or two of them.
// covers: job/rendezvous_server.hpp job/pending_connections.hpp job/token_authentication.hpp job/join_request.hpp
#include "strangers.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;
using namespace transport::detail;

void one(Bytes input) {
  transport::detail::cryptography_slot.store(&guessable);
  Input in{input};
  const auto mode = in.number<std::uint8_t>();
  const auto environment = environment_of_first(mode & 1);
  std::vector<FileDescriptor> strangers;
  if (mode & 2) strangers.push_back(stranger(*environment.listener, text_of(in.take(in.number<std::uint8_t>()))));
  strangers.push_back(stranger(*environment.listener, text_of(in.rest())));
  documented<CommunicationError, BuildError>("process ", [&] {
    const auto membership = RendezvousServer{environment, hasty_options()}.receive();
    require(membership.going_on || (membership.links.size() == 2 && membership.processes.size() == 2 && membership.links[1].open()), "a membership without members");
  });
}

std::vector<std::string> seeds() {
  const auto text = [](const transport::detail::Bytes& frame) { return std::string{text_of(frame)}; };
  const JoinRequest who{"", 2, 1, {4711, "host"}, transport::detail::Bytes(32)};
  transport::detail::cryptography_slot.store(&guessable);
  const auto proof = text(FrameWriter{FrameKind::proof}.blob(proof_of(token, Prover::newcomer, who, {})).finish());
  return {std::string(1, '\0') + hello(false), "\1" + hello(true) + proof, "\1" + hello(true), "\2\x10GET / HTTP/1.1\r\n" + hello(false),
          std::string(1, '\0') + hello(false) + text(FrameWriter{FrameKind::bye}.number(0).text("").text("").finish())};
}

}  // namespace replicator::fuzz
