// SPDX-License-Identifier: Apache-2.0
// Adds the collective, rank and device to a `DeviceError`.
#pragma once

#include <string>
#include <type_traits>

#include <replicator/collectives/run/communicator.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/replicas_text.hpp>

namespace replicator::detail::collectives::detail {

// Calls work() of a collective. Throws DeviceError with the rank, its replicas and its device added. `device` counts the
// devices of its kind.
template <class Work>
std::invoke_result_t<Work&> named(const std::string& collective, const ReplicaBlocks& blocks, int rank, int device, Work work) {
  try {
    return work();
  } catch (const DeviceError& error) {
    throw DeviceError{collective + ": rank " + std::to_string(rank) + " (" +
                      replicas_text(blocks.begin(rank), blocks.end(rank) - 1) + ", device " + std::to_string(device) + " of its kind): " + error.what()};
  }
}

}  // namespace replicator::detail::collectives::detail
