// SPDX-License-Identifier: Apache-2.0
// Jobs of several processes on this machine, for the tests of this folder.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <replicator/job/job.hpp>
#include <replicator/job/job_inline.hpp>
#include <string>
#include <vector>

#include "../support/processes.hpp"

namespace replicator::test {

using namespace replicator::detail;

// Quicker than the defaults, slow enough for a busy machine.
inline transport::JobOptions quick_options() {
  using std::chrono::milliseconds;
  transport::JobOptions options;
  options.heartbeat = milliseconds{200};
  options.dead_after = milliseconds{1500};
  options.connect_deadline = milliseconds{10000};
  options.exchange_deadline = milliseconds{10000};
  return options;
}

// The environment of each process of a job whose port is free for certain: process 0 inherits the listening socket.
inline std::vector<transport::ProcessEnvironment> environments(int count) {
  std::vector<transport::ProcessEnvironment> result(static_cast<std::size_t>(count));
  const auto listener = std::make_shared<transport::FileDescriptor>(transport::detail::listen_on(0));
  for (int r = 0; r < count; ++r) {
    auto& environment = result[static_cast<std::size_t>(r)];
    environment.rank = r;
    environment.world_size = count;
    environment.master_address = "127.0.0.1";
    environment.master_port = transport::detail::port_of(listener->get());
    environment.listener = listener;
  }
  return result;
}

// Every process makes the job and returns body(job).
inline std::vector<ProcessResult> run_job(int count, const std::function<std::string(transport::Job&)>& body,
                                          const transport::JobOptions& options = quick_options()) {
  auto all = environments(count);
  return run_processes(count, [&](int rank) {
    const auto environment = all[static_cast<std::size_t>(rank)];
    all.clear();  // process 0 alone keeps the listener
    transport::Job job{environment, options};
    return body(job);
  });
}

}  // namespace replicator::test
