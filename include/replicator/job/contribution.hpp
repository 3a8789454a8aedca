// SPDX-License-Identifier: Apache-2.0
// Validates one process's contribution to an exchange, before it is read.
#pragma once

#include <cstddef>
#include <replicator/core/error.hpp>
#include <string>
#include <string_view>

namespace replicator::detail::transport {

// Unless `sound`, throws CommunicationError that blames the process: the `bytes` bytes that it gave cannot be what `what`
// asked for.
inline void require_contribution(bool sound, int process, std::size_t bytes, std::string_view what) {
  if (!sound)
    throw CommunicationError{"process " + std::to_string(process) + " gave " + std::to_string(bytes) + " bytes to " + std::string{what} +
                                 ", which cannot be: it runs another program, or its memory is damaged",
                             process};
}

}  // namespace replicator::detail::transport
