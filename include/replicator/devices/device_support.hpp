// SPDX-License-Identifier: Apache-2.0
// What a kind of device must offer to run programs. The headers of the kind store it in a slot.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/reduction.hpp>
#include <replicator/devices/device_kind.hpp>

namespace replicator::detail {

// An ability of some kinds of devices. Work that is the same in every step is captured once, and then given to the queue as a
// whole. Addresses and arguments are those of the capture. What changes from step to step must be in memory.
struct CaptureSupport {
  // From here on, work that the queue is given is kept and not done. Waiting for the queue is an error meanwhile.
  void (*begin)(void* queue) = nullptr;
  // Ends the capture and returns the work, ready to be replayed. Throws where something could not be captured. In both cases the
  // queue is afterwards as it was before `begin`.
  void* (*end)(void* queue) = nullptr;
  // Also ends the capture, but forgets the work.
  void (*abandon)(void* queue) noexcept = nullptr;
  // Gives the captured work to the queue, after all that the queue was given before.
  void (*replay)(void* queue, void* captured) = nullptr;
  void (*release)(int index, void* captured) noexcept = nullptr;
};

// For kinds with queues: host memory that is made for copies, and events by which queues wait for each other.
struct StagingSupport {
  // Allocates memory for copies that block nobody, at least 64-byte aligned. Null where there is none: copies of plain memory work too.
  std::byte* (*allocate)(std::size_t bytes) = nullptr;
  void (*release)(std::byte* memory, std::size_t bytes) noexcept = nullptr;
  // Makes memory that others allocated, on pages of its own, fit for such copies until it is unpinned. False where it cannot.
  bool (*pin)(std::byte* memory, std::size_t bytes) = nullptr;
  void (*unpin)(std::byte* memory) noexcept = nullptr;
  void* (*make_event)(int index) = nullptr;
  void (*destroy_event)(int index, void* event) noexcept = nullptr;
  // The event now stands for all work that the queue has been given so far, and happens when it is done. Before the first record
  // an event counts as happened.
  void (*record)(void* queue, void* event) = nullptr;
  // Work that the queue is given from now on starts after the event, as it was recorded last.
  void (*wait)(void* queue, void* event) = nullptr;
  // The host waits for the event.
  void (*await)(void* event) = nullptr;
  // Whether the event has happened. Returns at once.
  bool (*happened)(void* event) = nullptr;
};

// An ability of some kinds of devices: collectives between them, with values that never leave the devices' memory.
struct PeerSupport {
  // From now on, queues of device `index` may read the memory of `peer`, another device of the kind. Returns why they cannot, or
  // an empty text where they can.
  std::string (*reach)(int index, int peer) = nullptr;
  // Turns the root of the reduction tree into the result, in place: divides a mean by `members`. Gives the host's bits.
  void (*finish)(void* queue, DType dtype, Reduction reduction, std::byte* values, std::int64_t elements, int members) = nullptr;
};

// Names memory or an event of a device to other processes of the host. Plain bytes, which may be sent by any way.
using SharedHandle = std::array<std::byte, 64>;

// An ability of some kinds of devices: memory and events that other processes of the host can open. A process must not open its
// own. **Release memory, and destroy an event, only after every process has closed it.** All throw DeviceError where the device, the
// driver or the system refuses, except `close`.
struct SharingSupport {
  // As DeviceSupport::allocate, for memory that can be shared, and writes its handle. DeviceSupport::release releases it.
  std::byte* (*allocate)(int index, std::size_t bytes, SharedHandle& handle) = nullptr;
  // Opens memory of a device of another process. Queues of device `index` can then read it, by copies and by folds.
  const std::byte* (*open)(int index, const SharedHandle& handle) = nullptr;
  void (*close)(int index, const std::byte* memory) noexcept = nullptr;
  // As StagingSupport::make_event, for an event that can be shared, and writes its handle. Only this process may record it.
  void* (*make_event)(int index, SharedHandle& handle) = nullptr;
  // Opens an event of another process. Queues of device `index` can then wait for it. StagingSupport::destroy_event closes it.
  void* (*open_event)(int index, const SharedHandle& handle) = nullptr;
};

// The functions of a kind of device. All throw DeviceError, except those that release something. `index` is the device's number.
// Several programs may use one device at the same time, each with its own queue and memory.
struct DeviceSupport {
  // Throws where device `index` cannot be used, and says what is missing.
  void (*require)(int index) = nullptr;
  // Memory for values and scratch, at least 64-byte aligned.
  std::byte* (*allocate)(int index, std::size_t bytes) = nullptr;
  void (*release)(int index, std::byte* memory, std::size_t bytes) noexcept = nullptr;

  // Null where kernels run at once, in the calling thread and on the host's memory. Otherwise kernels see only the device's
  // memory, and work is queued in order. All copies between host and device must then be asked for.
  void* (*make_queue)(int index) = nullptr;
  void (*destroy_queue)(int index, void* queue) noexcept = nullptr;
  // Call this before anything below, and before kernels: in each thread and for each step.
  void (*enter)(int index) = nullptr;
  // Copies between host and device in either direction, within one of them, or from a device that is reached (PeerSupport). The
  // host's side must not change until `synchronise`.
  void (*copy)(void* queue, std::byte* to, const std::byte* from, std::size_t bytes) = nullptr;
  // into = combine(left, right): one node of the reduction tree, in the device's memory, with the host's bits. `into` may be the
  // memory of `left` or `right`. These two may also lie on devices that are reached.
  void (*fold)(void* queue, DType dtype, Reduction reduction, std::byte* into, const std::byte* left, const std::byte* right,
               std::int64_t elements) = nullptr;
  // Returns when all queued work is done.
  void (*synchronise)(void* queue) = nullptr;
  // Declares that a device of the kind hangs. From now on `synchronise` throws, and nothing is released, because no call that
  // waits for the device would return. All of it stays allocated until the process ends.
  void (*abandon)() noexcept = nullptr;
  bool (*abandoned)() noexcept = nullptr;
  // Total memory of device `index` in bytes, or 0 where it cannot be found out. Null where it never can.
  std::size_t (*memory)(int index) = nullptr;
  const StagingSupport* staging = nullptr;  // for kinds with queues
  // Null: work cannot be captured.
  const CaptureSupport* capture = nullptr;
  // Null: devices do not reach each other.
  const PeerSupport* peers = nullptr;
  // Null: processes cannot open each other's memory. Needs `peers`.
  const SharingSupport* sharing = nullptr;

  bool runs_on_host() const { return make_queue == nullptr; }
};

// The slots of the kinds. Constant-initialised; storing twice is harmless.
inline constinit std::atomic<const DeviceSupport*> device_support[device_kinds]{};

// Throws BuildError where the program does not include the kind's headers.
inline const DeviceSupport& support_of(DeviceKind kind) {
  if (const auto* support = device_support[static_cast<std::size_t>(kind)].load()) return *support;
  const std::string name{name_of(kind)};
  throw BuildError{name + " devices are not part of this program: include <replicator/" + name +
                   (kind == DeviceKind::cpu ? "/kernels.hpp>" : "/kernels.cuh>")};
}

}  // namespace replicator::detail
