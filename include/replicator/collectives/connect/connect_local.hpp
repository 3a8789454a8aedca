// SPDX-License-Identifier: Apache-2.0
// The code of local_group.hpp: makes the communicators.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/collectives/connect/local_group.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/transport/check_shared_devices.hpp>
#include <replicator/transport/in_process.hpp>
#include <replicator/transport/in_process_devices.hpp>
#include <replicator/transport/shared_devices.hpp>

namespace replicator::detail::collectives {

namespace detail {

// The group of all ranks 0 to blocks.ranks() - 1, which are of this process.
template <class Endpoint, class State>
LocalGroup connect_ranks(std::shared_ptr<State> state, const ReplicaBlocks& blocks) {
  LocalGroup group;
  for (int rank = 0; rank < blocks.ranks(); ++rank) group.communicators.push_back(make_communicator(Endpoint{*state, rank}, blocks));
  group.abort = [&state = *state](const CommunicationError& error) { state.abort(error); };
  group.state = std::move(state);
  return group;
}

}  // namespace detail

template <class>
LocalGroup connect_threads(const ReplicaBlocks& blocks) {
  return detail::connect_ranks<transport::InProcess>(std::make_shared<transport::InProcessGroup>(blocks.ranks()), blocks);
}

template <class>
LocalGroup connect_devices(const DeviceSupport& support, const std::vector<int>& devices, const ReplicaBlocks& blocks) {
  return detail::connect_ranks<transport::InProcessDevices>(std::make_shared<transport::InProcessDeviceGroup>(support, devices), blocks);
}

template <class>
std::string connect_shared_devices(transport::Job& job, const DeviceSupport& support, std::string_view kind, const std::vector<int>& process_of_rank,
                                   const std::vector<int>& devices, const ReplicaBlocks& blocks, LocalGroup& group) {
  const auto state = std::make_shared<transport::SharedDeviceGroup>(job, support, process_of_rank, devices);
  if (auto reason = transport::why_not_shared(job, *state, kind); !reason.empty()) return reason;
  for (const int rank : state->local_ranks()) group.communicators.push_back(make_communicator(transport::SharedDevices{*state, rank}, blocks));
  group.state = state;
  return {};
}

}  // namespace replicator::detail::collectives
