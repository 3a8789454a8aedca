// SPDX-License-Identifier: Apache-2.0
// A replica that runs alone: it is one of as many ranks as there are replicas, and the others do not exist. Its collectives
// have buffers as ever, but move nothing: what they give is written to their outputs before the step.
#pragma once

#include <cstring>
#include <functional>
#include <memory>

#include <replicator/collectives/communicator.hpp>
#include <replicator/collectives/layout.hpp>
#include <replicator/core/array.hpp>

namespace replicator {

class ReplayCollective final : public collectives::Collective {
 public:
  ReplayCollective(const collectives::CollectiveSpec& spec, const collectives::Schedule& schedule, int rank)
      : layout_{spec, schedule, 1}, inputs_{static_cast<int>(schedule.inputs(rank).size())}, memory_{detail::aligned_bytes(layout_.end())} {
    std::memset(memory_.get(), 0, layout_.end());
  }
  int inputs() const override { return inputs_; }
  std::byte* input(int index) override { return memory_.get() + layout_.input(index); }
  std::byte* output() override { return memory_.get() + layout_.output(); }
  std::size_t bytes() const override { return layout_.end(); }
  void start() override {}
  bool start_on(const collectives::CallerBuffers&) override { return false; }
  bool advance() override { return true; }
  void wait(transport::Clock::time_point) override {}
  bool wait_until(transport::Clock::time_point, const std::function<void()>&) override { return true; }
  Missing missing() const override { return {}; }

 private:
  collectives::Layout layout_;
  int inputs_;
  detail::AlignedBytes memory_;
};

class ReplayCommunicator final : public collectives::Communicator {
 public:
  ReplayCommunicator(int replica, int replicas) : replica_{replica}, blocks_{replicas, replicas} {}
  int rank() const override { return replica_; }
  int size() const override { return blocks_.ranks(); }
  const collectives::ReplicaBlocks& blocks() const override { return blocks_; }
  transport::Latency latency() const override { return transport::Latency::memory; }
  std::unique_ptr<collectives::Collective> prepare(const collectives::CollectiveSpec& spec, const collectives::Schedule& schedule) override {
    return std::make_unique<ReplayCollective>(spec, schedule, replica_);
  }
  void check() override {}

 private:
  int replica_;
  collectives::ReplicaBlocks blocks_;
};

}  // namespace replicator
