// SPDX-License-Identifier: Apache-2.0
// ShardListener: receives what a process's shard server hears about the steps of other processes. SharedProgress
// implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include <replicator/async/shard_call.hpp>

namespace replicator::detail {

// The server's thread calls these functions.
class ShardListener {
 public:
  // A group of another process has made a step. The sender owns this group. `results` are packed by AsyncResults::pack.
  virtual void hear(const ShardCall& report, std::span<const std::byte> results) = 0;
  // No group of the process makes more steps. All its steps have been reported.
  virtual void hear_left(int process) = 0;
  // No group of the process makes a step until all processes have passed more than `barriers` barriers. Together its groups
  // have made `steps`.
  virtual void hear_pause(int process, std::uint64_t steps, std::uint64_t barriers) = 0;
  // The server has stopped.
  virtual void fail(const std::exception_ptr& error) = 0;

 protected:
  ~ShardListener() = default;
};

}  // namespace replicator::detail
