// SPDX-License-Identifier: Apache-2.0
// What the devices that hold the same replicas give each other within a step: values, each written once by the device that
// makes it and read by the others until the step ends, and the word that a device has come to the end of its work.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/graph/node_text.hpp>
#include <replicator/runtime/host_memory.hpp>
#include <replicator/runtime/lowering.hpp>
#include <replicator/transport/spin.hpp>

namespace replicator::detail {

// Shared by the devices' threads; made before their programs are planned, and it outlives them.
class Handoffs {
 public:
  // A value of a class's lowered graph, of one replica counted on the devices, or (-1) of all.
  struct Key {
    std::uint32_t class_index;
    std::uint32_t value;
    int replica;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // Of the replicas of these devices, each with its class: a place for every value that crosses. `staging`: of devices that copy from there and to
  // it; null where they compute on the host's memory.
  Handoffs(int devices, const std::vector<GraphClass>& sources, const std::vector<LoweredGraph>& lowered, const std::vector<std::uint32_t>& class_of,
           const StagingSupport* staging)
      : spin_{devices} {
    for (int device = 0; device < devices; ++device) add(device, 0, "the end of its work");
    for (std::size_t r = 0; r < class_of.size(); ++r) {
      const auto c = class_of[r];
      for (std::uint32_t v = 0; v < lowered[c].values.size(); ++v) {
        const auto& value = lowered[c].values[v];
        // A variable lies in the host's memory: whoever needs it from elsewhere takes a copy.
        if (!value.crosses || value.variable) continue;
        const Key key{c, v, value.uniform ? -1 : static_cast<int>(r)};
        if (index_.try_emplace(key, static_cast<std::uint32_t>(places_.size())).second)
          add(value.device, value.bytes, located_text(sources[c].graph, value.node));
      }
    }
    memory_ = HostMemory{staging, bytes_};
    std::memset(memory_.data(), 0, bytes_);  // the padding of blocked layouts stays zero
  }
  Handoffs(const Handoffs&) = delete;
  Handoffs& operator=(const Handoffs&) = delete;

  // The place of a value that crosses.
  std::uint32_t find(const Key& key) const { return index_.at(key); }
  // The place that says that a device has done its work.
  static std::uint32_t end_of(int device) { return static_cast<std::uint32_t>(device); }
  // In the host's memory, 64-byte aligned.
  std::byte* data(std::uint32_t place) const { return memory_.data() + places_[place].offset; }
  std::size_t bytes(std::uint32_t place) const { return places_[place].bytes; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
  int device_of(std::uint32_t place) const { return places_[place].device; }
  // "convolution#17 at resnet.cpp:31"
  const std::string& text(std::uint32_t place) const { return places_[place].text; }

  // In step `tick`, the value is written. Ticks grow.
  void give(std::uint32_t place, std::uint64_t tick) {
    places_[place].given.store(tick, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    { const std::lock_guard lock{mutex_}; }
    awake_.notify_all();
  }
  bool given(std::uint32_t place, std::uint64_t tick) const { return places_[place].given.load(std::memory_order_seq_cst) >= tick; }

  // Until it is given; false at the time `until`. Meanwhile progress() moves on what else the device has under way, and says
  // whether something is; it throws once the job has failed.
  template <class Progress>
  bool wait(std::uint32_t place, std::uint64_t tick, transport::Clock::time_point until, Progress progress) {
    const auto look = [&] {
      if (given(place, tick)) return true;
      progress();
      return false;
    };
    if (spin_(look, until)) return true;
    ++sleepers_;
    const Leave leave{sleepers_};
    while (!given(place, tick)) {
      // Collectives under way are advanced by this thread alone, and a failure is seen by looking: so it never sleeps for long.
      const auto nap = progress() ? std::chrono::microseconds{50} : std::chrono::microseconds{5000};
      const auto now = transport::Clock::now();
      if (now >= until) return given(place, tick);
      std::unique_lock lock{mutex_};
      awake_.wait_until(lock, std::min(until, now + nap), [&] { return given(place, tick); });
    }
    return true;
  }

 private:
  struct Place {
    int device;
    std::size_t bytes, offset;
    std::string text;
    std::atomic<std::uint64_t> given{0};
  };
  struct Leave {
    std::atomic<int>& count;
    ~Leave() { --count; }
  };

  void add(int device, std::size_t bytes, std::string text) {
    auto& place = places_.emplace_back();
    place.device = device;
    place.bytes = bytes;
    place.offset = bytes_;
    place.text = std::move(text);
    bytes_ += (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
  }

  transport::Spin spin_;
  std::deque<Place> places_;  // atomics stay where they are
  std::size_t bytes_ = 0;     // of all
  HostMemory memory_;
  std::map<Key, std::uint32_t> index_;
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable awake_;
};

}  // namespace replicator::detail
