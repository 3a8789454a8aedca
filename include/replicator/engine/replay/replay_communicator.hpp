// SPDX-License-Identifier: Apache-2.0
// ReplayCommunicator: the communicator of a replica that runs alone. It has as many ranks as there are replicas, but
// the other ranks do not exist. Its collectives have buffers in the memory of the device but move nothing: the replay
// writes their outputs before the step.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>

#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/run/region_layout.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/runtime/arena.hpp>

namespace replicator::detail {

class ReplayCollective final : public collectives::Collective, public collectives::DeviceCollective {
 public:
  ReplayCollective(const collectives::CollectiveSpec& spec, const collectives::Schedule& schedule, int rank, const DeviceSupport& support, int index)
      : layout_{spec, schedule, 1}, inputs_{static_cast<int>(schedule.inputs(rank).size())}, on_host_{support.runs_on_host()}, memory_{support, index, std::max<std::size_t>(layout_.end(), 1)} {}
  int inputs() const override { return inputs_; }
  std::byte* input(int index) override { return memory_.data() + layout_.input(index); }
  std::byte* output() override { return memory_.data() + layout_.output(); }
  std::size_t bytes() const override { return layout_.end(); }
  void start() override {}
  bool start_on(const collectives::CallerBuffers&) override { return false; }
  bool advance() override { return true; }
  void wait(transport::Clock::time_point) override {}
  bool wait_until(transport::Clock::time_point, const std::function<void()>&) override { return true; }
  Missing missing() const override { return {}; }
  DeviceCollective* on_device() override { return on_host_ ? nullptr : this; }
  void start_behind(void*) override {}
  bool reached() const override { return true; }
  void precede(void*) override {}
  bool done() const override { return true; }

 private:
  collectives::Layout layout_;
  int inputs_;
  bool on_host_;
  Arena memory_;
};

class ReplayCommunicator final : public collectives::Communicator {
 public:
  // With buffers in host memory.
  ReplayCommunicator(int replica, int replicas) : ReplayCommunicator{replica, replicas, support_of(DeviceKind::cpu), 0} {}
  ReplayCommunicator(int replica, int replicas, const DeviceSupport& support, int index)
      : replica_{replica}, blocks_{replicas, replicas}, support_{support}, index_{index} {}
  int rank() const override { return replica_; }
  int size() const override { return blocks_.ranks(); }
  const collectives::ReplicaBlocks& blocks() const override { return blocks_; }
  transport::Latency latency() const override { return transport::Latency::memory; }
  std::unique_ptr<collectives::Collective> prepare(const collectives::CollectiveSpec& spec, const collectives::Schedule& schedule) override {
    return std::make_unique<ReplayCollective>(spec, schedule, replica_, support_, index_);
  }
  void check() override {}

 private:
  int replica_;
  collectives::ReplicaBlocks blocks_;
  const DeviceSupport& support_;
  int index_;
};

}  // namespace replicator::detail
