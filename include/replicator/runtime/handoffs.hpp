// SPDX-License-Identifier: Apache-2.0
// Handoffs: the values that devices with the same replicas pass to each other within a step. One device writes each
// value once, and the others read it until the step ends. A device also announces the end of its work here.
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

// Shared by the threads of the devices. It is made before their programs are planned, and outlives them.
class Handoffs {
 public:
  // A value of a class's lowered graph, for one replica (counted on these devices) or for all (-1).
  struct Key {
    std::uint32_t class_index;
    std::uint32_t value;
    int replica;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // Makes a place for every value that crosses between these devices. `class_of`: the class of each of their replicas.
  // `staging`: for devices that copy from and to these places; null if they compute on host memory.
  Handoffs(int devices, const std::vector<GraphClass>& sources, const std::vector<LoweredGraph>& lowered, const std::vector<std::uint32_t>& class_of,
           const StagingSupport* staging)
      : spin_{devices} {
    for (int device = 0; device < devices; ++device) add(device, 0, "the end of its work");
    for (std::size_t r = 0; r < class_of.size(); ++r) {
      const auto c = class_of[r];
      for (std::uint32_t v = 0; v < lowered[c].values.size(); ++v) {
        const auto& value = lowered[c].values[v];
        // A variable is in host memory, so another device that needs it copies it itself.
        if (!value.crosses || value.variable) continue;
        const Key key{c, v, value.uniform ? -1 : static_cast<int>(r)};
        if (index_.try_emplace(key, static_cast<std::uint32_t>(places_.size())).second)
          add(value.device, value.bytes, located_text(sources[c].graph, value.node));
      }
    }
    memory_ = HostMemory{staging, bytes_};
    std::memset(memory_.data(), 0, bytes_);  // zero padding for blocked layouts
  }
  Handoffs(const Handoffs&) = delete;
  Handoffs& operator=(const Handoffs&) = delete;

  // The place of a value that crosses.
  std::uint32_t find(const Key& key) const { return index_.at(key); }
  // The place where a device announces the end of its work.
  static std::uint32_t end_of(int device) { return static_cast<std::uint32_t>(device); }
  // In host memory, 64-byte aligned.
  std::byte* data(std::uint32_t place) const { return memory_.data() + places_[place].offset; }
  std::size_t bytes(std::uint32_t place) const { return places_[place].bytes; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
  int device_of(std::uint32_t place) const { return places_[place].device; }
  // "convolution#17 at resnet.cpp:31"
  const std::string& text(std::uint32_t place) const { return places_[place].text; }

  // Announces that the value of step `tick` is written. Ticks ascend.
  void give(std::uint32_t place, std::uint64_t tick) {
    places_[place].given.store(tick, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    { const std::lock_guard lock{mutex_}; }
    awake_.notify_all();
  }
  bool given(std::uint32_t place, std::uint64_t tick) const { return places_[place].given.load(std::memory_order_seq_cst) >= tick; }

  // Waits until the value is given. Returns false at the time `until`. Meanwhile it calls progress(), which advances
  // the device's other work, returns true if there is any, and throws once the job has failed.
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
      // Only this thread advances its collectives in flight, and it must notice a failure, so it never sleeps for long.
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
  std::deque<Place> places_;  // a deque, because atomics cannot move
  std::size_t bytes_ = 0;     // of all places
  HostMemory memory_;
  std::map<Key, std::uint32_t> index_;
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable awake_;
};

}  // namespace replicator::detail
