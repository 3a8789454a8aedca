// SPDX-License-Identifier: Apache-2.0
// FlightRecord: where a device stands, and which collectives it started last. Every step writes it; a hang report reads
// it. After the flight recorder of PyTorch's distributed package.
#pragma once

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace replicator::detail {

// Like trace_clock(), but some milliseconds old, at a fifth of the cost.
inline std::int64_t coarse_clock() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The record of one device. Its thread writes, any thread may read. Memory is fixed. A step costs plain stores and one
// read of the coarse clock. All other times are taken only when a wait has begun, so a collective that is ready at once
// is not slowed.
class alignas(64) FlightRecord {
 public:
  static constexpr std::size_t capacity = 64;
  static constexpr std::uint32_t nothing = ~0u;

  // Where the device stands. Times are those of trace_clock().
  struct Position {
    std::uint32_t compiled = nothing;     // number of the compiled step; nothing: no step was begun
    std::uint32_t instruction = nothing;  // nothing: the step has ended
    std::uint64_t step = 0;
    std::int64_t began = 0;         // when the step began
    std::int64_t waits_since = 0;   // zero: the device does not wait, or not yet for long
    int missing = -1;               // the rank for which it waits, known after a tenth of a second
    std::uint64_t moved_bytes = 0;  // bytes moved so far
  };
  // A collective that was started.
  struct Entry {
    std::uint64_t number = 0;  // counted over all collectives of the device
    std::uint64_t step = 0;
    std::uint32_t compiled = 0, collective = 0;
    bool finished = false;
  };

  FlightRecord() = default;
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;

  // --- by the device -------------------------------------------------------------------------------------------------------
  void begin(std::uint32_t compiled, std::uint64_t step, std::int64_t now) {
    compiled_ = compiled;
    step_number_ = step;
    step_.store(step, order);
    began_.store(now, order);
    at(0);
  }
  void at(std::uint32_t instruction) { place_.store(std::uint64_t{compiled_} << 32 | instruction, order); }
  void end() { at(nothing); }
  void started(std::uint32_t collective) {
    const auto number = count_.load(order);
    auto& slot = slots_[number % capacity];
    // Keep this order. Readers load in the opposite order, so they see either a whole entry or that its number has
    // changed.
    slot.number.store(being_written, order);
    slot.step.store(step_number_, std::memory_order_release);
    slot.what.store(std::uint64_t{compiled_} << 32 | collective, std::memory_order_release);
    slot.finished.store(false, std::memory_order_release);
    slot.number.store(number, std::memory_order_release);
    count_.store(number + 1, std::memory_order_release);
  }
  // The collective is among the latest, because it is in flight.
  void finished(std::uint32_t collective) {
    const auto count = count_.load(order);
    for (auto number = count; number > first(count); --number) {
      auto& slot = slots_[(number - 1) % capacity];
      if (slot.what.load(order) != (std::uint64_t{compiled_} << 32 | collective)) continue;
      slot.finished.store(true, order);
      return;
    }
  }
  void waits(std::int64_t since) { waits_since_.store(since, order); }
  void misses(int rank, std::uint64_t moved_bytes) {
    missing_.store(rank, order);
    moved_bytes_.store(moved_bytes, order);
  }
  void waits_no_more() {
    waits(0);
    misses(-1, 0);
  }

  // --- by anyone -----------------------------------------------------------------------------------------------------------
  // The parts may be of two moments if the device runs meanwhile.
  Position position() const {
    const auto place = place_.load(order);
    return {static_cast<std::uint32_t>(place >> 32), static_cast<std::uint32_t>(place), step_.load(order), began_.load(order),
            waits_since_.load(order), missing_.load(order), moved_bytes_.load(order)};
  }
  // Oldest first. Entries that are overwritten meanwhile are left out.
  std::vector<Entry> last() const {
    std::vector<Entry> entries;
    const auto count = count_.load(std::memory_order_acquire);
    for (auto number = first(count); number < count; ++number) {
      const auto& slot = slots_[number % capacity];
      if (slot.number.load(std::memory_order_acquire) != number) continue;
      const auto what = slot.what.load(std::memory_order_acquire);
      const Entry entry{number, slot.step.load(std::memory_order_acquire), static_cast<std::uint32_t>(what >> 32),
                        static_cast<std::uint32_t>(what), slot.finished.load(std::memory_order_acquire)};
      if (slot.number.load(order) == number) entries.push_back(entry);
    }
    return entries;
  }

 private:
  static constexpr auto order = std::memory_order_relaxed;
  static constexpr std::uint64_t being_written = ~std::uint64_t{0};
  static std::uint64_t first(std::uint64_t count) { return count - std::min<std::uint64_t>(count, capacity); }

  struct Slot {
    std::atomic<std::uint64_t> number{being_written}, step{0}, what{0};
    std::atomic<bool> finished{false};
  };

  std::uint32_t compiled_ = nothing;  // only the device's thread uses it
  std::uint64_t step_number_ = 0;
  std::atomic<std::uint64_t> place_{~std::uint64_t{0}};
  std::atomic<std::uint64_t> step_{0};
  std::atomic<std::int64_t> began_{0}, waits_since_{0};
  std::atomic<int> missing_{-1};
  std::atomic<std::uint64_t> moved_bytes_{0}, count_{0};
  std::array<Slot, capacity> slots_;
};

}  // namespace replicator::detail
