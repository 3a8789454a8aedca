// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: the rendezvous of processes.
#include <replicator/job/job_inline.hpp>
#if __has_include(<replicator/job/elastic/elastic_job.hpp>)
#include <replicator/job/elastic/elastic_job.hpp>
#endif

#define REPLICATOR_TEMPLATE template
#include "elastic_job.hpp"
#include "job.hpp"
