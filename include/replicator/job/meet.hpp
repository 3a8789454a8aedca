// SPDX-License-Identifier: Apache-2.0
// The rendezvous of a job: process 0 listens, the others connect and identify themselves.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/rendezvous_client.hpp>
#include <replicator/job/rendezvous_server.hpp>
#include <replicator/job/trust.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <string>
#include <thread>
#include <utility>

namespace replicator::detail::transport::detail {

// The rendezvous of an ordinary job. Throws BuildError where the job is running already, and what the rendezvous throws.
template <class = void>
Membership meet(const ProcessEnvironment& environment, const JobOptions& options) {
  if (environment.world_size == 1) {
    Membership alone;
    alone.processes = {this_process()};
    return alone;
  }
  require_token_between_machines(environment);
  auto membership = environment.rank == 0 ? RendezvousServer{environment, options}.receive() : RendezvousClient{environment, options}.arrive();
  if (membership.going_on)
    throw BuildError{"the job at " + environment.master_address + ", port " + std::to_string(environment.master_port) +
                     ", is at work already: start this process with --elastic like the others, or take another MASTER_PORT"};
  return membership;
}

// The rendezvous of an elastic job, which may be running already.
template <class = void>
Membership meet_or_find_running_job(const ProcessEnvironment& environment, const JobOptions& options) {
  require_token_between_machines(environment);
  if (environment.rank > 0) return RendezvousClient{environment, options}.arrive();
  auto here = environment;
  // The port may belong to a process of the running job that meets the others just now. It will answer later.
  const auto until = RendezvousClock::now() + std::min(options.connect_deadline, std::chrono::milliseconds{12000});
  while (!here.listener) {
    if (auto membership = RendezvousClient{environment, options}.try_connect()) return std::move(*membership);
    try {
      here.listener =
          std::make_shared<FileDescriptor>(listen_on(here.master_port, listening_address(here), here.rank));
    } catch (const CommunicationError&) {
      if (RendezvousClock::now() > until) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
  }
  return RendezvousServer{here, options}.receive();
}

}  // namespace replicator::detail::transport::detail
