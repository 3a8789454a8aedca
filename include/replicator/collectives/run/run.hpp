// SPDX-License-Identifier: Apache-2.0
// Makes a Communicator from a Transport, and chooses the runner of each prepared collective.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <replicator/collectives/run/communicator.hpp>
#include <replicator/collectives/run/device_runner.hpp>
#include <replicator/collectives/run/loads_to_messages.hpp>
#include <replicator/collectives/run/mailbox_runner.hpp>
#include <replicator/collectives/run/runner.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::detail::collectives {

namespace detail {

// `T` may be a reference.
template <class T>
class TransportCommunicator final : public Communicator {
  using Wire = std::remove_reference_t<T>;

 public:
  TransportCommunicator(T&& transport, const ReplicaBlocks& blocks, std::size_t piece_bytes)
      : transport_{std::forward<T>(transport)}, blocks_{blocks}, piece_bytes_{piece_bytes} {
    if (transport_.size() != blocks.ranks())
      throw BuildError{"replicas were dealt to " + std::to_string(blocks.ranks()) + " ranks, but the transport has " +
                       std::to_string(transport_.size())};
  }

  int rank() const override { return transport_.rank(); }
  int size() const override { return blocks_.ranks(); }
  const ReplicaBlocks& blocks() const override { return blocks_; }
  transport::Latency latency() const override { return transport_.latency(); }

  std::unique_ptr<Collective> prepare(const CollectiveSpec& spec, const Schedule& schedule) override {
    require_fit(spec, schedule);
    const int pieces = pieces_of(spec, schedule);
    if constexpr (transport::DeviceMemory<Wire>) {
      return std::make_unique<DeviceRunner<Wire>>(transport_, spec, schedule);
    } else if constexpr (transport::PeerReadable<Wire>) {
      if (blocks_.ranks() > 1 && loads_only_inputs(schedule) &&
          MailboxRunner<Wire>::payload_bytes(spec, schedule) <= mailbox_limit_bytes)
        return std::make_unique<MailboxRunner<Wire>>(transport_, spec, schedule);
      return std::make_unique<Runner<Wire>>(transport_, spec, schedule, pieces);
    } else {
      return std::make_unique<Runner<Wire>>(transport_, spec, lower(schedule), pieces);
    }
  }

  void check() override { transport_.progress(); }

  std::vector<std::byte*> allocate([[maybe_unused]] std::size_t bytes) override {
    std::vector<std::byte*> by_rank;
    if constexpr (transport::PeerWritable<Wire>) {
      const transport::Region region = transport_.allocate(bytes);
      for (int rank = 0; rank < size(); ++rank)
        by_rank.push_back(rank == transport_.rank() ? region.data : transport_.writable_peer(region, rank));
    }
    return by_rank;
  }

 private:
  void require_fit(const CollectiveSpec& spec, const Schedule& schedule) const {
    const std::string asked = spec.name.empty() ? std::string{name_of(spec.kind)} : spec.name;
    const auto refuse = [&](const std::string& what) {
      throw BuildError{asked + " cannot run by the schedule \"" + schedule.name + "\": " + what};
    };
    if (schedule.kind != spec.kind) refuse("that is one for " + std::string{name_of(schedule.kind)});
    if (schedule.blocks != blocks_)
      refuse("that is one for " + std::to_string(schedule.blocks.replicas()) + " replicas on " +
             std::to_string(schedule.ranks()) + " ranks, there are " + std::to_string(blocks_.replicas()) + " on " +
             std::to_string(blocks_.ranks()));
    if (spec.kind == Kind::broadcast && schedule.root != spec.root)
      refuse("its root is replica " + std::to_string(schedule.root) + ", not " + std::to_string(spec.root));
    if (schedule.groups != spec.groups.over(blocks_.replicas()))
      refuse("that is one for the groups " + schedule.groups.text() + ", not " + spec.groups.text());
    if (spec.reduction == Reduction::mean && !schedule.groups.equal_sizes())
      refuse("a mean needs groups of one size, but the sizes of the groups " + spec.groups.text() + " differ");
    if (schedule.any_order && !spec.any_order) refuse("it adds in an order of its own; allow that with any_order");
    if (spec.elements < 0) refuse("it has " + std::to_string(spec.elements) + " elements");
    if (reduces(spec.kind)) require_reducible(spec.dtype, spec.reduction);
  }

  // The number of pieces; equal on every rank. Where inputs become results that are stored to all ranks at once, pieces
  // have nothing to overlap. One long run is then faster: 75 us instead of 82 us for 4 MiB on two ranks.
  int pieces_of(const CollectiveSpec& spec, const Schedule& schedule) const {
    const bool scratch = std::any_of(schedule.scratch.begin(), schedule.scratch.end(), [](int slots) { return slots > 0; });
    if (transport::PeerWritable<Wire> && !scratch && can_push(schedule) && !spec.piecewise) return 1;
    return collectives::piece_count(spec, schedule, piece_bytes_);
  }

  T transport_;
  ReplicaBlocks blocks_;
  std::size_t piece_bytes_;
};

}  // namespace detail

// The communicator of one rank. Takes the transport, or a reference to one that outlives it. Schedules given to prepare()
// must pass `check`. `piece_bytes`, equal on every rank, is the smallest piece in which a chunk is pipelined. Throws
// BuildError where transport and blocks differ in the number of ranks.
template <class T>
requires transport::Transport<std::remove_reference_t<T>> std::unique_ptr<Communicator> make_communicator(
    T&& transport, const ReplicaBlocks& blocks, std::size_t piece_bytes = default_piece_bytes) {
  return std::make_unique<detail::TransportCommunicator<T>>(std::forward<T>(transport), blocks, piece_bytes);
}

}  // namespace replicator::detail::collectives
