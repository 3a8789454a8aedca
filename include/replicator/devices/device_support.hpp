// SPDX-License-Identifier: Apache-2.0
// What a kind of device must offer to run programs: a slot that the headers of the kind fill.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/reduction.hpp>
#include <replicator/devices/device_kind.hpp>

namespace replicator::detail {

// An ability of some kinds of devices: work that is the same in every step is captured once, and given to the queue again as one.
// Addresses and arguments are those of the capture; what changes from step to step must lie in memory.
struct CaptureSupport {
  // From here on what is given to the queue is kept and not done. Waiting for the queue is an error meanwhile.
  void (*begin)(void* queue) = nullptr;
  // What was captured, made ready. Throws where something could not be; the queue is as it was before `begin`.
  void* (*end)(void* queue) = nullptr;
  // Ends it too, and forgets what was captured.
  void (*abandon)(void* queue) noexcept = nullptr;
  // Behind all that the queue was given.
  void (*replay)(void* queue, void* captured) = nullptr;
  void (*release)(int index, void* captured) noexcept = nullptr;
};

// What kinds with queues have beside them: memory of the host that is made for copies, and events by which queues wait for each other.
struct StagingSupport {
  // At least 64-byte aligned, for copies by which nobody is blocked. Null where it cannot be had: copies of plain memory are correct too.
  std::byte* (*allocate)(std::size_t bytes) = nullptr;
  void (*release)(std::byte* memory, std::size_t bytes) noexcept = nullptr;
  // Makes others' memory such memory, until it is unpinned. False where that cannot be done.
  bool (*pin)(std::byte* memory, std::size_t bytes) = nullptr;
  void (*unpin)(std::byte* memory) noexcept = nullptr;
  void* (*make_event)(int index) = nullptr;
  void (*destroy_event)(int index, void* event) noexcept = nullptr;
  // From now on the event is that all work is done which the queue has been given until now. Before its first record it has happened.
  void (*record)(void* queue, void* event) = nullptr;
  // What the queue is given from now on is done when the event, as it was recorded last, has happened.
  void (*wait)(void* queue, void* event) = nullptr;
  // The host waits for it.
  void (*await)(void* event) = nullptr;
  // Whether it has happened, at once.
  bool (*happened)(void* event) = nullptr;
};

// An ability of some kinds of devices: collectives between them whose values never leave the devices' memory.
struct PeerSupport {
  // From now on queues of device `index` read the memory of device `peer`, another one of the kind. Why they cannot; empty where they can.
  std::string (*reach)(int index, int peer) = nullptr;
  // What turns the root of the reduction tree into the result, in place: a mean is divided by `members`. The host's bits.
  void (*finish)(void* queue, DType dtype, Reduction reduction, std::byte* values, std::int64_t elements, int members) = nullptr;
};

// All functions throw DeviceError, save those that give back. `index` is the device's; several programs may use one
// device at the same time, each with a queue and memory of its own.
struct DeviceSupport {
  // Throws where device `index` cannot be used, saying what is missing.
  void (*require)(int index) = nullptr;
  // Memory for values and scratch, at least 64-byte aligned.
  std::byte* (*allocate)(int index, std::size_t bytes) = nullptr;
  void (*release)(int index, std::byte* memory, std::size_t bytes) noexcept = nullptr;

  // Null where kernels run at once, in the calling thread and on the host's memory. Otherwise kernels see only memory of
  // the device, and work is queued, in order: all copies between host and device are asked for.
  void* (*make_queue)(int index) = nullptr;
  void (*destroy_queue)(int index, void* queue) noexcept = nullptr;
  // Before anything below, and before kernels: in each thread and for each step.
  void (*enter)(int index) = nullptr;
  // Between host and device in either direction, within one of them, or from a device that is reached (PeerSupport). The host's side stays as
  // it is until `synchronise`.
  void (*copy)(void* queue, std::byte* to, const std::byte* from, std::size_t bytes) = nullptr;
  // into = combine(left, right), the node of the reduction tree, in the device's memory: the host's bits. `into` may be one of the two; they
  // may also lie on devices that are reached.
  void (*fold)(void* queue, DType dtype, Reduction reduction, std::byte* into, const std::byte* left, const std::byte* right,
               std::int64_t elements) = nullptr;
  // Returns when all that was queued is done.
  void (*synchronise)(void* queue) = nullptr;
  // A device of the kind hangs. From now on `synchronise` throws, and nothing is given back, for no call that waits for the device would return: all
  // of it stays taken until the process ends.
  void (*abandon)() noexcept = nullptr;
  bool (*abandoned)() noexcept = nullptr;
  // Bytes of memory that device `index` has in all, 0 where that cannot be found out. Null: never.
  std::size_t (*memory)(int index) = nullptr;
  const StagingSupport* staging = nullptr;  // of kinds with queues
  // Null: work cannot be captured.
  const CaptureSupport* capture = nullptr;
  // Null: devices do not reach each other.
  const PeerSupport* peers = nullptr;

  bool runs_on_host() const { return make_queue == nullptr; }
};

// Constant-initialised; storing twice is harmless.
inline constinit std::atomic<const DeviceSupport*> device_support[device_kinds]{};

// Throws BuildError where the kind is not part of the program.
inline const DeviceSupport& support_of(DeviceKind kind) {
  if (const auto* support = device_support[static_cast<std::size_t>(kind)].load()) return *support;
  const std::string name{name_of(kind)};
  throw BuildError{name + " devices are not part of this program: include <replicator/" + name +
                   (kind == DeviceKind::cpu ? "/kernels.hpp>" : "/kernels.cuh>")};
}

}  // namespace replicator::detail
