// SPDX-License-Identifier: Apache-2.0
// Tests whether the devices of several processes open each other's memory, and read it correctly.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/job/job.hpp>
#include <replicator/transport/check_peer_memory.hpp>
#include <replicator/transport/first_reason.hpp>
#include <replicator/transport/shared_devices.hpp>

namespace replicator::detail::transport {

namespace detail {

// The test of one process. Each function does its part of a phase; all processes end a phase together.
class SharedProbe {
 public:
  SharedProbe(SharedDeviceGroup& group, std::string_view kind) {
    for (const int rank : group.local_ranks()) probes_.push_back({std::make_unique<SharedDevices>(group, rank), {}, {}});
    for (auto& probe : probes_) probe.name = std::string{kind} + ":" + std::to_string(probe.endpoint->device_index()) + " (rank " + std::to_string(probe.endpoint->rank()) + ")";
  }

  // | own pattern | two patterns that were read |
  void allocate() {
    for (auto& probe : probes_) probe.region = probe.endpoint->allocate_on_device(3 * pattern_bytes);
  }
  void open() {
    for_each_pair([](Probe& probe, int peer) { probe.endpoint->device_peer(probe.region, peer); });
  }
  void write(std::uint32_t round) {
    for (auto& probe : probes_) {
      auto& endpoint = *probe.endpoint;
      const auto words = pattern(static_cast<std::uint64_t>(endpoint.rank()), 0, round);
      endpoint.support().enter(endpoint.device_index());
      endpoint.support().copy(endpoint.queue(probe.region), probe.region.data, reinterpret_cast<const std::byte*>(words.data()), pattern_bytes);
      settle(probe, probe.name);
    }
  }
  std::string read(std::uint32_t round) {
    std::string reason;
    for_each_pair([&](Probe& probe, int peer) {
      if (!reason.empty()) return;
      auto& endpoint = *probe.endpoint;
      const std::string owner = "rank " + std::to_string(peer);
      endpoint.support().enter(endpoint.device_index());
      endpoint.wait_for_mark(probe.region, peer);
      const auto way = read_wrongly(endpoint.support(), endpoint.queue(probe.region), probe.region.data + pattern_bytes, endpoint.device_peer(probe.region, peer),
                                    pattern(static_cast<std::uint64_t>(peer), 0, round), [&] { settle(probe, owner); });
      if (!way.empty()) reason = misread_text(way, probe.name, owner);
    });
    return reason;
  }
  void release() {
    for (auto& probe : probes_)
      if (probe.region.data) probe.endpoint->release_on_device(probe.region);
  }

 private:
  struct Probe {
    std::unique_ptr<SharedDevices> endpoint;
    Region region;
    std::string name;
  };

  template <class Work>
  void for_each_pair(Work work) {
    for (auto& probe : probes_)
      for (int peer = 0; peer < probe.endpoint->size(); ++peer)
        if (peer != probe.endpoint->rank()) work(probe, peer);
  }
  static void settle(Probe& probe, const std::string& owner) {
    auto& endpoint = *probe.endpoint;
    endpoint.mark(probe.region);
    const auto end = Clock::now() + std::chrono::seconds{20};
    while (!endpoint.marked(probe.region)) {
      if (Clock::now() > end) {
        endpoint.support().abandon();
        throw does_not_come_back(probe.name, owner);
      }
      ::sched_yield();
    }
    endpoint.support().synchronise(endpoint.queue(probe.region));
  }

  std::vector<Probe> probes_;
};

}  // namespace detail

// Collective. Returns why the devices of the group's processes do not open each other's memory or read it wrongly, the same text
// on every process, or an empty one. Throws DeviceError where a device does not come back.
inline std::string why_not_shared(Job& job, SharedDeviceGroup& group, std::string_view kind) {
  detail::SharedProbe probe{group, kind};
  const auto phase = [&](auto part) {
    std::string reason;
    try {
      reason = part();
    } catch (const DeviceError& error) {
      if (group.abandoned()) throw;
      reason = error.what();
    }
    return first_reason(job, reason);
  };
  const auto doing = [](auto work) {
    return [work] {
      work();
      return std::string{};
    };
  };
  std::string reason = phase(doing([&] { probe.allocate(); }));
  if (reason.empty()) reason = phase(doing([&] { probe.open(); }));
  for (std::uint32_t round = 0; round < 2 && reason.empty(); ++round) {  // as in why_misread
    reason = phase(doing([&] { probe.write(round); }));
    if (reason.empty()) reason = phase([&] { return probe.read(round); });
  }
  probe.release();
  job.barrier("shared device memory: closed");
  return reason;
}

}  // namespace replicator::detail::transport
