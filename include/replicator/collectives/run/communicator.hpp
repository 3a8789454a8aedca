// SPDX-License-Identifier: Apache-2.0
// The interface between the runtime and collectives: a Communicator for each device rank, a Collective for each prepared
// use of it. Virtual, so that the runtime is no template of the transport; run.hpp makes a Communicator from a Transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <replicator/collectives/reduction.hpp>
#include <replicator/collectives/run/caller_buffers.hpp>
#include <replicator/collectives/schedule.hpp>
#include <replicator/core/dtype.hpp>
#include <replicator/transport/transport.hpp>
#include <string>
#include <vector>

namespace replicator::detail::collectives {

// What a collective does. Equal on every rank.
struct CollectiveSpec {
  Kind kind = Kind::all_reduce;
  DType dtype = DType::float32;
  Reduction reduction = Reduction::sum;  // all_reduce and reduce_scatter only
  std::int64_t elements = 0;             // of one block: a replica's contribution (reduce_scatter: a replica's result)
  int root = 0;                          // broadcast: the position in each group
  bool any_order = false;                // allow the bits to depend on the placement
  std::string name;                      // for messages: all_reduce "fc.weight/gradient" (train.cpp:31)
  std::uint32_t id = 0;                  // unique in the program, below 2^20
  Groups groups = {};                    // default: one group of all replicas
  bool piecewise = false;                // inputs are written piece by piece, see Collective::give
};

// The host's part in a collective on device memory: bytes copied from and to the host in a step, and bytes of host memory
// held.
struct HostPart {
  std::size_t from_host = 0, to_host = 0, held = 0;
};

// The additional interface of a collective with buffers in device memory. The host runs ahead of the device: advance() is
// true when all of the rank's work is queued. Only then is the device told to wait for other ranks' work.
class DeviceCollective {
 public:
  virtual ~DeviceCollective() = default;
  // As start(), where the inputs are written by work that `queue`, of the device, was given until now.
  virtual void start_behind(void* queue) = 0;
  // Whether `queue` has reached that point.
  virtual bool reached() const = 0;
  // Call it after advance() was true: work that `queue` is given from now on runs after the step.
  virtual void precede(void* queue) = 0;
  // The same for the host: whether the device has finished the step.
  virtual bool done() const = 0;
  // After a failed step: work that `queue` is given from now on runs after all that the collective still does. Returns true, and
  // does so, only where that waits for queues of other processes. If one of them has died, it may wait for ever.
  virtual bool join_after_failure(void*) { return false; }
  virtual HostPart host_part() const { return {}; }
};

// A prepared collective. It is used again in every step and allocates nothing after preparation. It belongs to the thread
// of its rank. Its memory lives until all ranks have destroyed their part of the collective, because peers read it. Steps of
// one collective run in the same order on every rank. Several collectives may be in flight at once.
class Collective {
 public:
  virtual ~Collective() = default;
  // The number of input buffers, 64-byte aligned and in the transport's memory. Write them before start(), and not before
  // advance() was true for the last step. In groups R is the number of a group's members.
  // - all_reduce (`elements`), reduce_scatter (R blocks of `elements`): one input for each partial of the rank
  //   (`partials_on`)
  // - all_gather, broadcast (`elements`), all_to_all (R blocks): one input for each replica of the rank
  virtual int inputs() const = 0;
  virtual std::byte* input(int index) = 0;
  // The output buffer. Read-only, because peers read it too.
  // - all_reduce, broadcast: `elements`, for each of `groups_on` the rank
  // - all_gather: R blocks, for each of `groups_on` the rank
  // - reduce_scatter: a block for each replica of the rank
  // - all_to_all: R blocks for each replica of the rank
  virtual std::byte* output() = 0;
  // Size of its memory on this rank.
  virtual std::size_t bytes() const = 0;
  // Null where input(i) and output() are host memory.
  virtual DeviceCollective* on_device() { return nullptr; }
  // Begins a step. All inputs must be written.
  virtual void start() = 0;
  // Inputs may also be written piece by piece. A step runs separately on each of pieces() pieces: piece k is the elements
  // of every block from part_begin(elements, pieces(), k) on.
  virtual int pieces() const { return 1; }
  // Says that the inputs of the first `count` pieces, at least one, are written. Begins a step on them, or lets the step
  // under way continue with them. The step finishes only after all pieces were given.
  virtual void give([[maybe_unused]] int count) { start(); }
  // How many pieces of the step under way, from the first on, have a valid output already.
  virtual int received() const { return 0; }
  // Begins a step on buffers of the caller, who must not touch them until the step is finished. Returns false where the
  // result is nevertheless left in output(): peers read it there, or it arrives as a message.
  virtual bool start_on(const CallerBuffers& buffers) = 0;
  // Does what can be done now, without blocking. True when the step is finished: the output is valid until the next
  // start().
  virtual bool advance() = 0;
  // Blocks until the step is finished. Throws CommunicationError at the deadline: it names the collective, the missing
  // rank, its replicas and the bytes moved.
  virtual void wait(transport::Clock::time_point deadline) = 0;
  // Like wait(), but returns false at `time` instead of throwing. It calls `beside` (may be empty) whenever something has
  // moved, so that other collectives of the thread make progress.
  virtual bool wait_until(transport::Clock::time_point time, const std::function<void()>& beside) = 0;
  // The state of a step under way: a rank that this one waits for, or -1, and the bytes written here so far.
  struct Missing {
    int rank = -1;
    std::uint64_t moved_bytes = 0;
  };
  virtual Missing missing() const = 0;
};

// Makes the collectives of one rank.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const ReplicaBlocks& blocks() const = 0;
  virtual transport::Latency latency() const = 0;
  // Collective: every rank calls it in the same order with the same spec and schedule. The result must not outlive the
  // communicator. Throws BuildError where spec and schedule do not fit each other or this communicator.
  virtual std::unique_ptr<Collective> prepare(const CollectiveSpec& spec, const Schedule& schedule) = 0;
  // Makes progress; throws CommunicationError once the job has been aborted.
  virtual void check() = 0;
  // Collective. Allocates `bytes` on every rank: zero-filled, aligned to 64 bytes, readable and writable by all ranks.
  // Returns the address of each rank's memory in this process, by rank. The memory lives as long as the communicator. Empty
  // where ranks do not reach each other's memory.
  virtual std::vector<std::byte*> allocate(std::size_t) { return {}; }
};

}  // namespace replicator::detail::collectives
