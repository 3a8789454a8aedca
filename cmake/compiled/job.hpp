// SPDX-License-Identifier: Apache-2.0
// Meeting the other processes of a job. Every list of this folder is instantiated by the unit of its name (REPLICATOR_TEMPLATE is `template`
// there), and is `extern template` in the units that call it.
#pragma once

#include <replicator/job/job.hpp>
#include <replicator/job/meet.hpp>
#include <replicator/job/rendezvous.hpp>

namespace replicator::detail::transport {

REPLICATOR_TEMPLATE detail::Membership detail::meet<>(const ProcessEnvironment&, const JobOptions&);
REPLICATOR_TEMPLATE detail::Membership detail::meet_or_find_at_work<>(const ProcessEnvironment&, const JobOptions&);
REPLICATOR_TEMPLATE ProcessEnvironment find_environment<>(const RendezvousOptions&);

}  // namespace replicator::detail::transport
