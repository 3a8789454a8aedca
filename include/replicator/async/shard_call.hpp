// SPDX-License-Identifier: Apache-2.0
// The protocol between shard clients and shard servers: the calls, and the transport ranks that send and receive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/async/async_placement.hpp>
#include <replicator/async/stop_agreement.hpp>
#include <replicator/transport/transport.hpp>

namespace replicator::detail {

// The header of every call to a shard server. Both sides know the sizes of its payload and of its answer.
struct ShardCall {
  enum class Kind : std::uint32_t {
    read,      // pull: the answer is the shard's variables that steps read, copied between two updates
    update,    // push: the payload is the shard's gradients; the answer is one byte, after the update
    value,     // the answer is one variable of a shard
    report,    // a group has made a step; the payload is its results
    look,      // a shard has changed: retry the updates that wait for the staleness bound
    vote,      // the sender has caught a signal; the answer is the call after which the receiver can stop
    stop,      // the call after which all have agreed to stop
    pause,     // the groups of the process make no step until all processes have met once more
    finished,  // the groups of the device make no more steps
    leave,     // the sender makes no more calls
  };
  Kind kind{};
  std::int32_t group = -1;
  std::uint32_t shard = 0;
  std::uint32_t variable = 0;  // its index in the shard
  std::uint64_t steps = 0;     // steps that the group has made; with pause: that all groups of the process have made
  std::uint64_t barriers = 0;  // number of barriers of all processes
  StopAgreement::Vote agreed{};
  std::uint32_t ended = 0;   // not zero: the input has ended
  std::uint32_t unused = 0;  // no padding: the struct is sent as bytes
};

namespace slots {
inline constexpr transport::Slot call{0, 0, 0}, payload{0, 0, 1}, answer{0, 0, 2};
}

// The ranks of the transport. Each process has a rank for each device, which is a client, and then one for its server.
class ShardRanks {
 public:
  explicit ShardRanks(const AsyncPlacement& placement) {
    for (int p = 0; p < placement.processes(); ++p) {
      first_.push_back(static_cast<int>(process_of_rank_.size()));
      process_of_rank_.insert(process_of_rank_.end(), static_cast<std::size_t>(placement.devices_of(p)) + 1, p);
    }
    first_.push_back(static_cast<int>(process_of_rank_.size()));
  }
  const std::vector<int>& process_of_rank() const { return process_of_rank_; }
  int process_of(int rank) const { return process_of_rank_[static_cast<std::size_t>(rank)]; }
  int processes() const { return static_cast<int>(first_.size()) - 1; }
  int server(int process) const { return first_[static_cast<std::size_t>(process) + 1] - 1; }
  // The ranks of all clients.
  std::vector<int> clients() const {
    std::vector<int> result;
    for (int rank = 0; rank < first_.back(); ++rank)
      if (rank != server(process_of(rank))) result.push_back(rank);
    return result;
  }

 private:
  std::vector<int> first_;  // by process: its first rank; the last entry is the number of ranks
  std::vector<int> process_of_rank_;
};

}  // namespace replicator::detail
