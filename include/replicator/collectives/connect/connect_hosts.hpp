// SPDX-License-Identifier: Apache-2.0
// The code of host_transport.hpp: chooses shared memory or UCX. The headers of a transport register it in a slot.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <replicator/collectives/connect/host_transport.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/job/host_identity.hpp>
#include <replicator/job/job.hpp>
#include <replicator/transport/messenger.hpp>
#include <replicator/transport/shared_memory.hpp>

namespace replicator::detail::collectives {

// Makes the communicators of this process's ranks, in ascending order; process_of_rank[r] owns rank r.
using MakeCommunicators = std::vector<std::unique_ptr<Communicator>> (*)(transport::Job& job,
                                                                         const std::vector<int>& process_of_rank,
                                                                         const ReplicaBlocks& blocks);

// Makes the messengers of this process's ranks, in ascending order.
using MakeMessengers = std::vector<std::unique_ptr<transport::Messenger>> (*)(transport::Job& job, const std::vector<int>& process_of_rank);

// The factories of a transport between processes.
struct HostTransport {
  MakeCommunicators communicators;
  MakeMessengers messengers;
};

// The transport between machines. collectives/connect/ucx_transport.hpp fills the slot where UCX is part of the program.
inline constinit std::atomic<const HostTransport*> ucx_slot{nullptr};

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

template <class Endpoint>
std::vector<std::unique_ptr<transport::Messenger>> make_messengers(transport::Job& job, const std::vector<int>& process_of_rank) {
  std::vector<std::unique_ptr<transport::Messenger>> result;
  for (auto& endpoint : Endpoint::create(job, process_of_rank))
    result.push_back(std::make_unique<transport::MessengerOf<Endpoint>>(std::move(endpoint)));
  return result;
}

template <class Endpoint>
inline constexpr HostTransport host_transport_of{&make_host_communicators<Endpoint>, &make_messengers<Endpoint>};

inline const HostTransport& choose_host_transport(const std::string& name, transport::Job& job) {
  if (name != "auto" && name != "shared_memory" && name != "ucx")
    throw BuildError{"the transport is \"" + name + "\": choose auto, shared_memory or ucx"};
  if (name == "shared_memory" || (name == "auto" && transport::same_host(job)))
    return host_transport_of<transport::SharedMemory>;
  const auto* ucx = ucx_slot.load();
  if (!ucx)
    throw BuildError{
        "the processes of this job cannot share memory, because they are on several machines, in several containers or of several users (or "
        "--transport ucx was asked for), but this program was built without UCX: install libucx-dev and build again"};
  return *ucx;
}

}  // namespace detail

template <class>
std::vector<std::unique_ptr<Communicator>> connect_hosts(const std::string& name, transport::Job& job, const std::vector<int>& process_of_rank,
                                                         const ReplicaBlocks& blocks) {
  return detail::choose_host_transport(name, job).communicators(job, process_of_rank, blocks);
}

template <class>
std::vector<std::unique_ptr<transport::Messenger>> connect_messengers(const std::string& name, transport::Job& job, const std::vector<int>& process_of_rank) {
  return detail::choose_host_transport(name, job).messengers(job, process_of_rank);
}

}  // namespace replicator::detail::collectives
