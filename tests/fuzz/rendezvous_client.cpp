// SPDX-License-Identifier: Apache-2.0
// Fuzzes a joining process, with anything in place of process 0. First byte: with or without a job token.
// covers: job/rendezvous_client.hpp job/membership.hpp job/token_authentication.hpp
#include "strangers.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;
using namespace transport::detail;

void one(Bytes input) {
  transport::detail::cryptography_slot.store(&guessable);
  Input in{input};
  const auto environment = environment_of_newcomer(in.number<std::uint8_t>() & 1);
  answerer().answer(text_of(in.rest()));
  documented<CommunicationError, BuildError>("", [&] {
    const auto membership = RendezvousClient{environment, hasty_options()}.arrive();
    require(membership.links.size() == 1 && (membership.going_on || membership.processes.size() == 2), "a membership without members");
  });
}

std::vector<std::string> seeds() {
  const auto text = [](const transport::detail::Bytes& frame) { return std::string{text_of(frame)}; };
  const auto challenge = text(FrameWriter{FrameKind::challenge}.blob(transport::detail::Bytes(32)).finish());
  const auto proof = text(FrameWriter{FrameKind::proof}.blob(transport::detail::Bytes(32)).finish());
  return {std::string(1, '\0') + text(FrameWriter{FrameKind::heartbeat}.finish()) + welcome(), "\1" + challenge + proof + welcome(),
          std::string(1, '\0') + text(refusal(Refusal::failure, 1, "a sentence")), "\1" + text(refusal(Refusal::token, 0, "a sentence")),
          "0SSH-2.0-OpenSSH"};
}

}  // namespace replicator::fuzz
