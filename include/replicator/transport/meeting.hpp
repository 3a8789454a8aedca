// SPDX-License-Identifier: Apache-2.0
// How the processes of a job meet: process 0 listens, the others connect and say who they are.
#pragma once

#include <replicator/transport/acquaintance.hpp>
#include <replicator/transport/arrival.hpp>
#include <replicator/transport/job_options.hpp>
#include <replicator/transport/proof.hpp>
#include <replicator/transport/reception.hpp>
#include <replicator/transport/rendezvous.hpp>

namespace replicator::transport::detail {

inline Meeting meet(const ProcessEnvironment& environment, const JobOptions& options) {
  if (environment.world_size == 1) {
    Meeting alone;
    alone.processes = {this_process()};
    return alone;
  }
  if (!environment.job_token.empty()) cryptography();  // else it says what is missing
  if (environment.rank == 0) return Reception{environment, options}.receive();
  return Arrival{environment, options}.arrive();
}

}  // namespace replicator::transport::detail
