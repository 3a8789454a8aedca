// SPDX-License-Identifier: Apache-2.0
// The transport between hosts: tagged messages over UCX (tcp, InfiniBand). The job detects failures.
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
#include <map>
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
#include <replicator/transport/ucx_assertion.hpp>
#include <replicator/transport/ucx_worker.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport {

// The endpoint of one rank, used by one thread. The thread that waits makes progress. The job's heartbeats detect a dead
// peer, and UCX may report a broken connection sooner. The environment's UCX_ variables apply.
class Ucx {
 public:
  static constexpr std::size_t most_ranks = 4096;  // what fits into a tag beside the slot

  // Makes the endpoints of this process's ranks, in ascending order; process_of_rank[r] owns rank r. Collective: one thread
  // of each process calls it; the endpoints may then be used by other threads. The job must outlive them. Throws BuildError
  // or DeviceError where UCX cannot be used in the way its variables ask for.
  static std::vector<std::unique_ptr<Ucx>> create(Job& job, const std::vector<int>& process_of_rank);
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;
  // Sends pending messages first, for at most dead_after.
  ~Ucx();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(peers_.size()); }
  Latency latency() const noexcept { return Latency::messages; }

  Region allocate(std::size_t bytes);
  void release(Region region);
  Ticket send(std::span<const std::byte> out, int peer, Slot slot);
  Ticket recv(std::span<std::byte> in, int peer, Slot slot);
  bool done(Ticket ticket);
  void progress();
  bool flushed();
  int unsent_to();
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
    void* request = nullptr;  // null: finished; otherwise UCX's request, or its error
    int peer = 0;
    bool receive = false;
    std::uint64_t slot = 0;
    std::size_t bytes = 0;
  };

  Ucx(Job& job, int rank, const std::vector<int>& process_of_rank, const Spin& spin, Clock::time_point until);
  static std::unique_ptr<detail::UcxWorker> open_worker(Job& job, Clock::time_point until);
  ucp_ep_h endpoint_to(int rank);
  template <class Request>
  Ticket post(const Operation& operation, Request request);
  Ticket open(void* request, const Operation& operation);
  static ucs_status_t status_of(const Operation& operation);
  void check_size(const Operation& operation);
  void report_broken();
  void sleep(Clock::time_point until);
  void settle(std::vector<void*> requests, Clock::time_point until);
  std::vector<void*> drop_unexpected();
  static std::uint64_t tag(int source, Slot slot);
  void close();
  void fail(const detail::UcxAssertion& assertion);
  static void on_failure(void* peer, ucp_ep_h, ucs_status_t status) { static_cast<Peer*>(peer)->failure = status; }

  Job& job_;
  int rank_;
  Spin spin_;
  std::unique_ptr<detail::UcxWorker> worker_;
  std::vector<Peer> peers_;
  std::map<std::uint32_t, detail::Mapping> regions_;  // by id
  std::uint32_t next_region_ = 0;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> free_;
  void* flush_ = nullptr;  // UCX's request for a flush under way
  static constexpr int nobody = -1, several = -2;
  int sent_to_ = nobody;  // the rank that was sent messages since flushed() was true
  FileDescriptor wakeup_;
  Job::Hook hook_;
  std::string assertion_;  // of UCX that failed. Then nothing calls UCX any more
  Clock::time_point verdict_by_;
};

static_assert(Transport<Ucx>);

}  // namespace replicator::detail::transport

#include <replicator/transport/ucx_inline.hpp>
