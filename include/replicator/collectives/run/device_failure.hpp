// SPDX-License-Identifier: Apache-2.0
// What a device refuses is told with whose it is.
#pragma once

#include <string>
#include <type_traits>

#include <replicator/collectives/run/communicator.hpp>
#include <replicator/core/error.hpp>

namespace replicator::detail::collectives::detail {

// Does work() of a collective. `device`: counted in its kind.
template <class Work>
std::invoke_result_t<Work&> named(const std::string& collective, const ReplicaBlocks& blocks, int rank, int device, Work work) {
  try {
    return work();
  } catch (const DeviceError& error) {
    throw DeviceError{collective + ": rank " + std::to_string(rank) + " (replicas " + std::to_string(blocks.begin(rank)) + " to " +
                      std::to_string(blocks.end(rank) - 1) + ", device " + std::to_string(device) + " of its kind): " + error.what()};
  }
}

}  // namespace replicator::detail::collectives::detail
