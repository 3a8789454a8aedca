// SPDX-License-Identifier: Apache-2.0
// What the processes of a job say to each other in the asynchronous regime, and which ranks of a transport say it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/async/stop_agreement.hpp>
#include <replicator/async/async_placement.hpp>
#include <replicator/transport/transport.hpp>

namespace replicator::detail {

// A message to the server of a process. What follows it, and what comes back, both sides know.
struct ShardCall {
  enum class Kind : std::uint32_t {
    read,      // the variables of a shard that steps read, of one moment: comes back
    update,    // the gradients that the shard takes: follow; a byte comes back when the update is made
    value,     // one variable of a shard: comes back
    report,    // a group has made a step: its results follow
    look,      // something has changed at a shard: who is held up there may go on
    vote,      // the process has caught a signal: after which call the other one can stop comes back
    stop,      // that was agreed
    pause,     // the process's groups make no step until all have met once more
    finished,  // the device's groups make no further step
    leave,     // the sender has nothing more to ask
  };
  Kind kind{};
  std::int32_t group = -1;
  std::uint32_t shard = 0;
  std::uint32_t variable = 0;  // of the shard's
  std::uint64_t steps = 0;     // that the group has made; all groups of the process that pauses
  std::uint64_t meetings = 0;  // of all processes
  StopAgreement::Vote agreed{};
  std::uint32_t ended = 0;     // not zero: it makes no other
  std::uint32_t unused = 0;    // it is sent whole
};

namespace slots {
inline constexpr transport::Slot call{0, 0, 0}, payload{0, 0, 1}, answer{0, 0, 2};
}

// Ranks of the transport: process by process its devices, which ask, and behind them its server.
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
  // All ranks that ask.
  std::vector<int> clients() const {
    std::vector<int> result;
    for (int rank = 0; rank < first_.back(); ++rank)
      if (rank != server(process_of(rank))) result.push_back(rank);
    return result;
  }

 private:
  std::vector<int> first_;  // rank, by process; last their number
  std::vector<int> process_of_rank_;
};

}  // namespace replicator::detail
