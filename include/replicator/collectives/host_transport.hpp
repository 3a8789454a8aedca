// SPDX-License-Identifier: Apache-2.0
// How the ranks of several processes may be connected: slots that the headers of transports fill.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <replicator/collectives/run.hpp>
#include <replicator/transport/host_identity.hpp>
#include <replicator/transport/job.hpp>
#include <replicator/transport/shared_memory.hpp>

namespace replicator::collectives {

// The communicators of this process's ranks, ascending; process_of_rank[r] owns rank r.
using MakeCommunicators = std::vector<std::unique_ptr<Communicator>> (*)(transport::Job& job,
                                                                         const std::vector<int>& process_of_rank,
                                                                         const ReplicaBlocks& blocks);

// The transport between machines, filled by collectives/ucx_transport.hpp where UCX is part of the program.
inline constinit std::atomic<MakeCommunicators> ucx_slot{nullptr};

namespace detail {

// A communicator that owns its endpoint.
template <class Endpoint>
class OwningCommunicator final : public Communicator {
 public:
  OwningCommunicator(std::unique_ptr<Endpoint> endpoint, const ReplicaBlocks& blocks)
      : endpoint_{std::move(endpoint)}, communicator_{make_communicator<Endpoint&>(*endpoint_, blocks)} {}
  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  const ReplicaBlocks& blocks() const override { return communicator_->blocks(); }
  transport::Latency latency() const override { return communicator_->latency(); }
  std::unique_ptr<Collective> prepare(const CollectiveSpec& spec, const Schedule& schedule) override {
    return communicator_->prepare(spec, schedule);
  }
  void check() override { communicator_->check(); }
  std::vector<std::byte*> allocate(std::size_t bytes) override { return communicator_->allocate(bytes); }

 private:
  std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<Communicator> communicator_;
};

template <class Endpoint>
std::vector<std::unique_ptr<Communicator>> make_host_communicators(transport::Job& job,
                                                                   const std::vector<int>& process_of_rank,
                                                                   const ReplicaBlocks& blocks) {
  std::vector<std::unique_ptr<Communicator>> result;
  for (auto& endpoint : Endpoint::create(job, process_of_rank))
    result.push_back(std::make_unique<OwningCommunicator<Endpoint>>(std::move(endpoint), blocks));
  return result;
}

}  // namespace detail

// `name`: auto, shared_memory or ucx. Throws BuildError for a transport that does not exist or is not part of the program.
inline std::vector<std::unique_ptr<Communicator>> connect_hosts(const std::string& name, transport::Job& job,
                                                                const std::vector<int>& process_of_rank,
                                                                const ReplicaBlocks& blocks) {
  if (name != "auto" && name != "shared_memory" && name != "ucx")
    throw BuildError{"--transport is \"" + name + "\": choose auto, shared_memory or ucx"};
  if (name == "shared_memory" || (name == "auto" && transport::same_host(job)))
    return detail::make_host_communicators<transport::SharedMemory>(job, process_of_rank, blocks);
  const auto make = ucx_slot.load();
  if (!make)
    throw BuildError{"the processes of this job are on several machines (or --transport ucx was asked for), but this "
                     "program was built without UCX: install libucx-dev and build again"};
  return make(job, process_of_rank, blocks);
}

}  // namespace replicator::collectives
