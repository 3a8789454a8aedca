// SPDX-License-Identifier: Apache-2.0
// What all processes of an elastic job must know of one that they take in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <replicator/job/survivors.hpp>
#include <replicator/job/wire/frame.hpp>
#include <string>
#include <vector>

namespace replicator::detail::transport {

struct AdmissionOffer {
  int process = 0;         // as the processes were counted at first
  std::uint64_t life = 0;  // see Survivors
  detail::RegroupAddress refuge{};
  std::string name{};  // in sentences

  // For an exchange; nothing where nobody is taken in.
  static detail::Bytes pack(const std::optional<AdmissionOffer>& offer) {
    if (!offer) return {};
    detail::FrameWriter to{detail::FrameKind::apply};
    to.number(static_cast<std::uint64_t>(offer->process)).number(offer->life);
    to.text(offer->refuge.address).number(offer->refuge.port).text(offer->name);
    const auto fields = to.fields();
    return {fields.begin(), fields.end()};
  }
  // Throws CommunicationError for what pack() has not made.
  static std::optional<AdmissionOffer> unpack(const detail::Bytes& bytes) {
    if (bytes.empty()) return {};
    detail::FrameReader from{bytes};
    AdmissionOffer result;
    result.process = static_cast<int>(from.number());
    result.life = from.number();
    result.refuge.address = from.text();
    result.refuge.port = static_cast<std::uint16_t>(from.number());
    result.name = from.text();
    return result;
  }
};

}  // namespace replicator::detail::transport
