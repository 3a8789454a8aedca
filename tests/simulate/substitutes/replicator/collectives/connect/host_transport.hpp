// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: messengers over the simulated network.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <replicator/job/job.hpp>
#include <replicator/transport/messenger.hpp>

namespace replicator::detail::collectives {

// One for each rank of this process. Defined in tests/simulate/messages.hpp.
std::vector<std::unique_ptr<transport::Messenger>> connect_messengers(const std::string& name, transport::Job& job, const std::vector<int>& process_of_rank);

}  // namespace replicator::detail::collectives
