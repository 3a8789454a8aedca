// SPDX-License-Identifier: Apache-2.0
// Instantiates the jobs that lose and admit processes, where the source tree has them.
#pragma once

#if __has_include(<replicator/job/elastic/elastic_job.hpp>)
#include <replicator/job/elastic/elastic_job.hpp>

namespace replicator::detail::transport {

REPLICATOR_TEMPLATE ElasticJob::ElasticJob(const ProcessEnvironment&, const JobOptions&, Admission, std::string);
REPLICATOR_TEMPLATE detail::Bytes ElasticJob::enter<>(const detail::Bytes&);
REPLICATOR_TEMPLATE std::optional<AdmissionOffer> ElasticJob::hand_over<>(const std::function<bool(const detail::Bytes&)>&, const std::function<detail::Bytes()>&);
REPLICATOR_TEMPLATE void ElasticJob::follow<>();

}  // namespace replicator::detail::transport
#endif
