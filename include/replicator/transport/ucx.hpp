// SPDX-License-Identifier: Apache-2.0
// The transport between hosts: tagged messages over UCX (tcp, InfiniBand), with failures noticed by the job.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/io/file_descriptor.hpp>
#include <replicator/job/cores_of_host.hpp>
#include <replicator/job/host_identity.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/process_table.hpp>
#include <replicator/transport/memory_file.hpp>
#include <replicator/transport/message_matcher.hpp>
#include <replicator/transport/spin.hpp>
#include <replicator/transport/transport.hpp>
#include <replicator/transport/ucx_worker.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport {

// The endpoint of one rank, used by one thread. Whoever waits makes progress; a dead peer is noticed by the job's
// heartbeats, and sooner where UCX reports a broken connection. The environment's UCX_ variables are obeyed.
class Ucx {
 public:
  static constexpr std::size_t most_ranks = 4096;  // what fits into a tag beside the slot

  // The endpoints of this process's ranks, ascending: process_of_rank[r] owns rank r. Collective over the processes,
  // called by one thread of each; the endpoints may then go to threads of their own. The job outlives them.
  // Throws BuildError or DeviceError where UCX cannot be used as its variables say.
  static std::vector<std::unique_ptr<Ucx>> create(Job& job, const std::vector<int>& process_of_rank);
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;
  // Sends out what is still on its way, for at most dead_after.
  ~Ucx();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(peers_.size()); }
  Latency latency() const noexcept { return Latency::messages; }

  Region allocate(std::size_t bytes);
  Ticket send(std::span<const std::byte> out, int peer, Slot slot);
  Ticket recv(std::span<std::byte> in, int peer, Slot slot);
  bool done(Ticket ticket);
  void progress();
  bool wait(const std::function<bool()>& ready, Clock::time_point until);

 private:
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    int process = 0;
    detail::Bytes address;
    ucs_status_t failure = UCS_OK;
    bool reported = false;
  };
  struct Operation {
    void* request = nullptr;  // null: finished; else UCX's, or its error
    int peer = 0;
    bool receive = false;
    std::uint64_t slot = 0;
    std::size_t bytes = 0;
  };

  Ucx(Job& job, int rank, const std::vector<int>& process_of_rank, const Spin& spin);
  ucp_ep_h endpoint_to(int rank);
  Ticket open(void* request, const Operation& operation);
  static ucs_status_t status_of(const Operation& operation);
  void check_size(const Operation& operation);
  void report_broken();
  void sleep(Clock::time_point until);
  void settle(std::vector<void*> requests, Clock::time_point until);
  std::vector<void*> drop_unexpected();
  static std::uint64_t tag(int source, Slot slot);
  static void on_failure(void* peer, ucp_ep_h, ucs_status_t status) { static_cast<Peer*>(peer)->failure = status; }

  Job& job_;
  int rank_;
  Spin spin_;
  detail::UcxWorker worker_;
  std::vector<Peer> peers_;
  std::vector<detail::Mapping> regions_;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> free_;
  FileDescriptor wakeup_;
  Job::Hook hook_;
};

static_assert(Transport<Ucx>);

}  // namespace replicator::detail::transport

#include <replicator/transport/ucx_inline.hpp>
