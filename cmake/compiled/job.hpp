// SPDX-License-Identifier: Apache-2.0
// Instantiates the rendezvous with the other processes of a job. Each header of this folder is a list of
// REPLICATOR_TEMPLATE lines. The unit of the same name defines that as `template` and holds the code; units that call
// it use `extern template`.
#pragma once

#include <replicator/job/job.hpp>
#include <replicator/job/meet.hpp>
#include <replicator/job/rendezvous.hpp>

namespace replicator::detail::transport {

REPLICATOR_TEMPLATE detail::Membership detail::meet<>(const ProcessEnvironment&, const JobOptions&);
REPLICATOR_TEMPLATE detail::Membership detail::meet_or_find_running_job<>(const ProcessEnvironment&, const JobOptions&);
REPLICATOR_TEMPLATE ProcessEnvironment find_environment<>(const RendezvousOptions&);

}  // namespace replicator::detail::transport
