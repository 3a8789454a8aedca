// SPDX-License-Identifier: Apache-2.0
// Instantiates the engine's file formats: checkpoints, recordings, topologies.
#pragma once

#include <replicator/engine/find_topology.hpp>
#include <replicator/engine/replay/recording.hpp>
#include <replicator/engine/state/checkpoint.hpp>

namespace replicator::detail {

REPLICATOR_TEMPLATE void write_checkpoint<>(const std::string&, const Checkpoint&, std::vector<io::NamedTensor>);
REPLICATOR_TEMPLATE std::vector<std::byte> checkpoint_bytes<>(const Checkpoint&, std::vector<io::NamedTensor>);
REPLICATOR_TEMPLATE Checkpoint read_checkpoint<>(const std::string&);
REPLICATOR_TEMPLATE Checkpoint read_checkpoint<>(const std::string&, std::span<const std::byte>);
REPLICATOR_TEMPLATE void save_recording<>(const std::string&, const Recording&);
REPLICATOR_TEMPLATE Recording load_recording<>(const std::string&);
REPLICATOR_TEMPLATE collectives::Topology find_topology<>(transport::Job&, const std::string&, const std::string&, const std::vector<int>&,
                                                          const collectives::MeasureOptions&);

}  // namespace replicator::detail
