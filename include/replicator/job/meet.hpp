// SPDX-License-Identifier: Apache-2.0
// The rendezvous of a job: process 0 listens, the others connect and identify themselves.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/job/etcd/directory.hpp>
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
    if (!environment.interface.empty()) addresses_of(environment.interface);  // throws if there is none of that name
    Membership alone;
    alone.processes = {this_process()};
    return alone;
  }
  require_token_between_machines(environment);
  auto membership = environment.rank == 0 ? RendezvousServer{environment, options}.receive() : RendezvousClient{environment, options}.arrive();
  if (membership.going_on)
    throw BuildError{"the job at " + meeting_place(environment) +
                     ", is at work already: start this process with --elastic like the others, or take another MASTER_PORT"};
  return membership;
}

// Process 0 of an elastic job that meets through an etcd. Where the key leads to a process, that one is of a running job, or it was lost
// just now. Then the key ends soon.
inline Membership meet_or_find_by_directory(const ProcessEnvironment& environment, const JobOptions& options) {
  RendezvousClient client{environment, options};
  const auto until = RendezvousClock::now() + options.connect_deadline;
  for (;;) {
    if (auto membership = client.try_connect()) return std::move(*membership);
    if (client.nobody_there()) break;
    if (RendezvousClock::now() > until) client.fail();
    client.report();
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
  }
  auto here = environment;
  if (!here.listener) here.listener = std::make_shared<FileDescriptor>(listen_on(0, listening_address(here), here.rank));
  here.master_port = port_of(here.listener->get());
  here.master_address = own_addresses_of(here);
  here.directory->publish({"", 0, here.master_port, here.master_address});
  auto rest = options;
  rest.connect_deadline = std::chrono::milliseconds{remaining_ms(until, static_cast<int>(options.connect_deadline.count()))};
  try {
    auto membership = RendezvousServer{here, rest}.receive();
    if (membership.going_on) here.directory->withdraw();
    return membership;
  } catch (...) {
    here.directory->withdraw();
    throw;
  }
}

// The rendezvous of an elastic job, which may be running already.
template <class = void>
Membership meet_or_find_running_job(const ProcessEnvironment& environment, const JobOptions& options) {
  require_token_between_machines(environment);
  if (environment.rank > 0) return RendezvousClient{environment, options}.arrive();
  if (environment.directory) return meet_or_find_by_directory(environment, options);
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
