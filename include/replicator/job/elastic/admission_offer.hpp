// SPDX-License-Identifier: Apache-2.0
// The message that tells all processes of an elastic job which process is about to be admitted, and where it listens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <replicator/job/membership.hpp>
#include <replicator/job/wire/frame.hpp>
#include <string>
#include <vector>

namespace replicator::detail::transport {

// A process that is about to be admitted.
struct AdmissionOffer {
  int process = 0;         // number from the job's first rendezvous
  std::uint64_t life = 0;  // see Survivors
  detail::RegroupAddress regroup_address{};
  std::string name{};  // for messages

  // The contribution to an exchange; empty where nobody is admitted.
  static detail::Bytes pack(const std::optional<AdmissionOffer>& offer) {
    if (!offer) return {};
    detail::FrameWriter to{detail::FrameKind::apply};
    to.number(static_cast<std::uint64_t>(offer->process)).number(offer->life);
    to.text(offer->regroup_address.address).number(offer->regroup_address.port).text(offer->name);
    const auto fields = to.fields();
    return {fields.begin(), fields.end()};
  }
  // Throws CommunicationError for bytes that pack() has not made.
  static std::optional<AdmissionOffer> unpack(const detail::Bytes& bytes) {
    if (bytes.empty()) return {};
    detail::FrameReader from{bytes};
    AdmissionOffer result;
    result.process = static_cast<int>(from.number());
    result.life = from.number();
    result.regroup_address.address = from.text();
    result.regroup_address.port = static_cast<std::uint16_t>(from.number());
    result.name = from.text();
    return result;
  }
};

}  // namespace replicator::detail::transport
