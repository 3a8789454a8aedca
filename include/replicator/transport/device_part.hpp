// SPDX-License-Identifier: Apache-2.0
// One rank's part of an allocation in device memory, and the calls of DeviceMemory that order queues by its events.
#pragma once

#include <cstddef>

#include <replicator/devices/device_support.hpp>
#include <replicator/transport/transport.hpp>

namespace replicator::detail::transport {

struct DevicePart {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  void* queue = nullptr;
  void* begun = nullptr;  // events
  void* mark = nullptr;
};

// A base of endpoints that model DeviceMemory. An endpoint has support(), own_part(region), and mark_of(region, peer), the event
// that is the peer's mark.
template <class Endpoint>
class DevicePartCalls {
 public:
  void* queue(Region region) { return own(region).queue; }
  void begin_behind(Region region, void* queue) {
    const DevicePart& part = own(region);
    staging().record(queue, part.begun);
    staging().wait(part.queue, part.begun);
  }
  bool begun(Region region) { return staging().happened(own(region).begun); }
  void mark(Region region) {
    const DevicePart& part = own(region);
    staging().record(part.queue, part.mark);
  }
  void wait_for_mark(Region region, int peer) { staging().wait(queue(region), endpoint().mark_of(region, peer)); }
  void precede(Region region, void* queue) { staging().wait(queue, own(region).mark); }
  bool marked(Region region) { return staging().happened(own(region).mark); }

 private:
  Endpoint& endpoint() { return static_cast<Endpoint&>(*this); }
  const DevicePart& own(Region region) { return endpoint().own_part(region); }
  const StagingSupport& staging() { return *endpoint().support().staging; }
};

}  // namespace replicator::detail::transport
