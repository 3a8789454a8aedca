// SPDX-License-Identifier: Apache-2.0
// What the runtime sees of collectives: a Communicator per device rank, a Collective per prepared use of it.
// Virtual, so that the runtime is no template of the transport; `run.hpp` makes one from a Transport.
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

// Equal on every rank.
struct CollectiveSpec {
  Kind kind = Kind::all_reduce;
  DType dtype = DType::float32;
  Reduction reduction = Reduction::sum;  // all_reduce and reduce_scatter only
  std::int64_t elements = 0;             // of one block: what a replica contributes (reduce_scatter: what it receives)
  int root = 0;                          // broadcast: the position in each group
  bool any_order = false;                // allow the bits to depend on the placement
  std::string name;                      // for messages: all_reduce "fc.weight/gradient" (train.cpp:31)
  std::uint32_t id = 0;                  // unique in the program, below 2^20
  Groups groups = {};                    // by default all replicas are one
  bool piecewise = false;                // inputs are written piece by piece, see Collective::give
};

// What a collective of a device's memory needs of the host: bytes that are copied in a step, and bytes of its memory.
struct HostPart {
  std::size_t from_host = 0, to_host = 0, held = 0;
};

// What a collective can do besides whose buffers lie in the memory of the rank's device. The host goes ahead of the device: advance() is true
// when all of the rank's work is queued, and only then the device is told to wait for others'.
class DeviceCollective {
 public:
  virtual ~DeviceCollective() = default;
  // start(), the inputs being written by what `queue`, of the device, has been given until now.
  virtual void start_behind(void* queue) = 0;
  // Whether `queue` has come there.
  virtual bool reached() const = 0;
  // When advance() has been true: what `queue` is given from now on comes behind the step.
  virtual void precede(void* queue) = 0;
  // The same of the host: whether the device has done the step.
  virtual bool done() const = 0;
  virtual HostPart host_part() const { return {}; }
};

// A prepared collective: used again every step, allocates nothing after preparation. Belongs to the thread of its
// rank, which must not destroy it before its communicator's peers are through with the step.
// Steps of one collective run in the same order on every rank; several collectives may be in flight at once.
class Collective {
 public:
  virtual ~Collective() = default;
  // Buffers in the transport's memory, 64-byte aligned; write them before start(), from when the last step's
  // advance() was true. all_reduce (`elements`), reduce_scatter (R blocks of `elements`): one for each partial
  // (`partials_on` the rank). all_gather, broadcast (`elements`), all_to_all (R blocks): one for each replica.
  // In groups R is the number of a group's members.
  virtual int inputs() const = 0;
  virtual std::byte* input(int index) = 0;
  // all_reduce, broadcast: `elements`. all_gather: R blocks. In groups, that for each of `groups_on` the rank.
  // reduce_scatter: a block, all_to_all: R blocks, for each replica of the rank. Read it only: peers read it too.
  virtual std::byte* output() = 0;
  // Of its memory on this rank.
  virtual std::size_t bytes() const = 0;
  // Null where input(i) and output() are memory of the host.
  virtual DeviceCollective* on_device() { return nullptr; }
  // The inputs are written: begin a step.
  virtual void start() = 0;
  // The same for who writes them one after the other: a step runs by itself on each of so many pieces, the elements from
  // part_begin(elements, pieces(), k) on of every block.
  virtual int pieces() const { return 1; }
  // The inputs of the first `count` pieces, at least one, are written: begins a step on them, or lets the one under way go on with them. It is
  // finished when it was given all.
  virtual void give([[maybe_unused]] int count) { start(); }
  // Of the step under way: so many pieces, from the first on, whose output is valid already.
  virtual int received() const { return 0; }
  // Begins a step on memory of the caller's, who leaves it alone until the step is finished. False where the output is
  // left in output() all the same, because peers read it there, or it comes as a message.
  virtual bool start_on(const CallerBuffers& buffers) = 0;
  // Does what can be done now, without blocking. True when finished: the output is valid until the next start().
  virtual bool advance() = 0;
  // Until finished. Throws CommunicationError at the deadline, naming the collective, the missing rank, its replicas
  // and the bytes moved.
  virtual void wait(transport::Clock::time_point deadline) = 0;
  // The same, but false at the time. `beside` (it may be empty) is called whenever something has moved: other collectives of the
  // thread should not stand still meanwhile.
  virtual bool wait_until(transport::Clock::time_point time, const std::function<void()>& beside) = 0;
  // Of one that is under way: a rank that this one waits for, or -1, and how many bytes have been written here.
  struct Missing {
    int rank = -1;
    std::uint64_t moved_bytes = 0;
  };
  virtual Missing missing() const = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const ReplicaBlocks& blocks() const = 0;
  virtual transport::Latency latency() const = 0;
  // Collective: every rank calls it in the same order with the same spec and schedule. The result must not outlive
  // the communicator. Throws BuildError where spec and schedule do not fit each other or this communicator.
  virtual std::unique_ptr<Collective> prepare(const CollectiveSpec& spec, const Schedule& schedule) = 0;
  // Makes progress; throws CommunicationError once the job has been aborted.
  virtual void check() = 0;
  // Collective: memory of this size on every rank, zero-filled and aligned to 64 bytes, that all ranks read and write; its
  // addresses here, by rank. Lives as long as the communicator. Empty where ranks do not reach each other's memory.
  virtual std::vector<std::byte*> allocate(std::size_t) { return {}; }
};

}  // namespace replicator::detail::collectives
