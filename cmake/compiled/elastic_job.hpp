// SPDX-License-Identifier: Apache-2.0
// Instantiates the jobs that lose and admit processes, where the source tree has them.
#pragma once

#if __has_include(<replicator/job/elastic/job_sequence.hpp>)
#include <replicator/job/elastic/job_sequence.hpp>

namespace replicator::detail::transport {

REPLICATOR_TEMPLATE std::unique_ptr<JobSequence> open_job_sequence<>(const ProcessEnvironment&, const JobOptions&, Admission, std::string);

}  // namespace replicator::detail::transport
#endif
