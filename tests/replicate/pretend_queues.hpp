// SPDX-License-Identifier: Apache-2.0
// Queues and events of pretended devices. Queues work in one of two ways:
//
//   by chance    the host's threads run the work of queues in random order, at some time before they wait for it. Between,
//                nobody can access the devices' memory.
//   by threads   while ByThreads lives, each queue is a thread, which delays its work at random.
//
// Work that conflicts without a wait is refused in both (pretend_order.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/cpu/environment.hpp>

#include "pretend_memory.hpp"
#include "pretend_order.hpp"
#include "pretend_sync.hpp"

namespace replicator::test::pretend {

using namespace replicator::detail;

inline std::condition_variable changed;  // what queues have to do, or have done
inline Order order;

// When a device hangs nothing is given back any more: its queues may still be at it. What would have been is done when the test is over.
inline std::atomic<bool> abandoned{false};
struct Kept {
  std::mutex mutex;
  std::vector<std::function<void()>> give_back;
};
inline Kept kept;
template <class GiveBack>
bool keep(GiveBack give_back) {
  if (!abandoned) return false;
  const std::lock_guard lock{kept.mutex};
  kept.give_back.push_back(std::move(give_back));
  return true;
}

// Work that was given to a queue, or captured.
struct Task {
  std::function<void()> run;
  Accesses accesses = {};
  const char* what = "a task";
};
struct PretendedEvent {
  int index = 0;
  Order::Clock clock = {};  // of the last record; those of an event between processes are in its file
  SharedFile file = {};     // of an event between processes
  bool opened = false;      // of another process
  EventCounts own = {};
  EventCounts& counts = file.data() ? file.state().event : own;
};
struct Entry {
  std::function<void()> task;         // or
  PretendedEvent* records = nullptr;  // or
  PretendedEvent* waits = nullptr;
  std::uint64_t number = 0;          // of the record
  std::unique_ptr<char> given = {};  // an address of its own, see publish()

  bool can_start() const { return !waits || waits->counts.happened >= number; }
};
struct Work {
  int index = 0, number = 0;  // of the device, and in `order`
  std::deque<Entry> queued;   // the first one may be under way
  std::vector<Task> captured;
  bool captures = false, spoiled = false;  // spoiled: what is captured cannot be kept
  std::thread thread;                      // works by threads
  bool ends = false;                       // its thread does, whatever is queued
};

// The queue that this thread captures. Meanwhile CUDA refuses the thread's calls that wait, ask, allocate or make something, and
// the capture is lost.
inline thread_local Work* capturing = nullptr;
inline void spoil(Work& work, const char* what) {
  work.spoiled = true;
  throw DeviceError{what};
}
inline void refuse_while_capturing(const char* what) {
  if (capturing) spoil(*capturing, what);
}

// A mistake that is planted: of all calls by which a queue waits for an event, this one does nothing. None: -1.
struct Planted {
  int left_out = -1;
  int waits = 0;                        // how many calls there were
  std::vector<std::string> found = {};  // conflicts, which are errors only where nothing is planted
};
inline Planted planted;
inline std::atomic<int> released_early{0};  // blocks that another process still had open

inline std::byte* allocate(int index, std::size_t bytes) {
  refuse_while_capturing("memory was allocated while a queue captures");
  const Locked locked;
  return device(index).memory.allocate(bytes);
}
inline void release(int index, std::byte* data, std::size_t bytes) noexcept {
  if (capturing) capturing->spoiled = true;
  if (keep([=] { release(index, data, bytes); })) return;
  const Locked locked;
  order.forget(data, bytes);
  if (!device(index).memory.release(data)) ++released_early;
}

// Has begun and ended one entry.
inline void done(Work& work, const Entry& entry) {
  work.queued.pop_front();
  if (entry.records) entry.records->counts.happened = std::max<std::uint64_t>(entry.records->counts.happened, entry.number);
}
// One entry of some queue of the device, drawn at random, that need not wait; false where there is none.
inline bool advance(Device& own) {
  if (own.stuck || by_threads) return false;
  std::vector<Work*> ready;
  for (auto* work : own.queues)
    if (!work->queued.empty() && work->queued.front().can_start()) ready.push_back(work);
  if (ready.empty()) return false;
  auto& work = *ready[own.random.below(static_cast<std::uint32_t>(ready.size()))];
  const Entry entry = std::move(work.queued.front());
  done(work, entry);
  if (!entry.task) return true;
  own.open();
  entry.task();
  own.close();
  return true;
}
// Whether a queue of this process waits for one of another process.
inline bool waits_for_process() {
  return std::any_of(all().begin(), all().end(), [](const Device& device) {
    return std::any_of(device.queues.begin(), device.queues.end(), [](const Work* work) {
      return !work->queued.empty() && work->queued.front().waits && work->queued.front().waits->opened;
    });
  });
}
// Queues work whenever they like, and for a while not at all.
inline void idle(Device& own) {
  if (own.held || by_threads) return;
  if (own.random.below(16) == 0) own.sleeps = !own.sleeps;
  if (own.sleeps) return;
  while (own.random.below(3) != 0 && advance(own)) {
  }
}
// The thread of a queue. An entry waits for up to 200 us before it begins, one in four at random.
inline void work_off(Work& work, PhiloxStream random) {
  const cpu::KernelEnvironment environment{1};
  const auto& own = device(work.index);
  for (;;) {
    Entry entry;
    {
      Locked locked;
      const auto has_work = [&] { return work.ends || (!own.stuck && !work.queued.empty() && work.queued.front().can_start()); };
      while (!changed.wait_for(locked.lock, waits_for_process() ? std::chrono::milliseconds{1} : std::chrono::milliseconds{100}, has_work)) {
      }
      if (work.ends) return;
      entry = std::move(work.queued.front());
    }
    if (random.below(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds{random.below(200)});
    follow(entry.given.get());
    if (entry.waits) follow(entry.waits);
    if (entry.task) entry.task();
    if (entry.records) publish(entry.records);
    publish(&work);
    const Locked locked;
    done(work, entry);
    changed.notify_all();
  }
}
inline void end_thread(Work& work) {
  if (!work.thread.joinable()) return;
  {
    const Locked locked;
    work.ends = true;
    changed.notify_all();
  }
  work.thread.join();
}

// Where its own queues cannot go on, those of others must.
template <class Done>
void advance_until(int index, Done done) {
  Locked locked;
  constexpr auto what = "queues wait for each other, or for events that nobody records";
  if (by_threads) {
    if (!changed.wait_for(locked.lock, std::chrono::seconds{60}, done)) throw std::logic_error{what};
    return;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (!done()) {
    if (advance(device(index)) || std::any_of(all().begin(), all().end(), [](Device& other) { return advance(other); })) continue;
    if (!waits_for_process() || std::chrono::steady_clock::now() > end) throw std::logic_error{what};
    locked.lock.unlock();
    std::this_thread::yield();
    locked.lock.lock();
  }
}
inline void drain(Work& work) {
  advance_until(work.index, [&] { return work.queued.empty(); });
  follow(&work);
}
// All that any queue was given is done: also what nobody waits for, like the inputs of the next step.
inline void settle() {
  for (int index = 0; index < devices; ++index)
    advance_until(index, [index] { return std::all_of(device(index).queues.begin(), device(index).queues.end(), [](auto* work) { return work->queued.empty(); }); });
}

inline void abandon() noexcept { abandoned = true; }
inline bool is_abandoned() noexcept { return abandoned; }
inline void* make_queue(int index) {
  refuse_while_capturing("a queue was made while another one captures");
  auto* const work = new Work;
  work->index = index;
  {
    const Locked locked;
    work->number = order.add(index);
    device(index).queues.push_back(work);
  }
  if (by_threads) work->thread = std::thread{[=, random = PhiloxStream{*by_threads, static_cast<std::uint64_t>(work->number)}] { work_off(*work, random); }};
  return work;
}
inline void destroy_queue(int index, void* queue) noexcept {
  if (capturing) capturing->spoiled = true;
  if (keep([=] { destroy_queue(index, queue); })) return;
  auto& work = *static_cast<Work*>(queue);
  drain(work);
  end_thread(work);
  const Locked locked;
  order.remove(work.number);
  std::erase(device(index).queues, &work);
  delete &work;
}
inline void synchronise(void* queue) {
  auto& work = *static_cast<Work*>(queue);
  if (work.captures) spoil(work, "a queue that captures was waited for");
  refuse_while_capturing("a queue was waited for while another one captures");
  if (abandoned) throw DeviceError{"a pretended device hangs"};
  drain(work);
  if (device(work.index).failed) throw DeviceError{"the device has failed"};
  const Locked locked;
  order.host_sees(work.number);
}

// Gives the queue the entry that make() returns under the lock.
template <class Make>
void push(Work& work, Make make) {
  auto given = std::make_unique<char>();
  publish(given.get());
  const Locked locked;
  work.queued.push_back(make());
  work.queued.back().given = std::move(given);
  if (by_threads) changed.notify_all();
  else idle(device(work.index));
}
inline void put(Work& work, const Task& task) {
  push(work, [&] {
    if (auto conflict = order.submit(work.number, task.accesses, task.what); !conflict.empty()) {
      if (planted.left_out < 0) throw std::logic_error{conflict};
      planted.found.push_back(std::move(conflict));
    }
    return Entry{.task = task.run};
  });
}

inline void* make_event(int index) {
  refuse_while_capturing("an event was made while a queue captures");
  ++device(index).events;
  return new PretendedEvent{.index = index};
}
inline void destroy_event(int index, void* event) noexcept {
  if (keep([=] { destroy_event(index, event); })) return;
  --device(index).events;
  auto* const destroyed = static_cast<PretendedEvent*>(event);
  if (destroyed->file.data()) {
    if (!destroyed->opened && destroyed->file.state().open != 0) ++released_early;
    destroyed->opened ? destroyed->file.close() : destroyed->file.unmap();
  }
  delete destroyed;
}
// Neither is part of a capture here: only one queue is captured at a time.
inline void record(void* queue, void* event) {
  auto& work = *static_cast<Work*>(queue);
  auto& recorded = *static_cast<PretendedEvent*>(event);
  if (work.captures) spoil(work, "an event was recorded in a queue that captures");
  if (recorded.opened) throw std::logic_error{"an event of another process was recorded"};
  push(work, [&] {
    recorded.clock = order.record(work.number);
    if (recorded.file.data()) recorded.file.keep(recorded.clock);
    return Entry{.task = {}, .records = &recorded, .number = ++recorded.counts.recorded};
  });
}
inline void wait(void* queue, void* event) {
  auto& work = *static_cast<Work*>(queue);
  auto& awaited = *static_cast<PretendedEvent*>(event);
  if (work.captures) spoil(work, "a queue that captures was told to wait for another one");
  push(work, [&] {
    if (planted.waits++ == planted.left_out) return Entry{};
    order.wait(work.number, awaited.opened ? awaited.file.kept() : awaited.clock);
    return Entry{.task = {}, .waits = &awaited, .number = awaited.counts.recorded};
  });
}
inline void await(void* event) {
  refuse_while_capturing("an event was waited for while a queue captures");
  auto& awaited = *static_cast<PretendedEvent*>(event);
  advance_until(awaited.index, [&] { return awaited.counts.happened >= awaited.counts.recorded; });
  follow(event);
  const Locked locked;
  order.host_sees(awaited.clock);
}
inline bool happened(void* event) {
  refuse_while_capturing("an event was asked for while a queue captures");
  auto& asked = *static_cast<PretendedEvent*>(event);
  {
    const Locked locked;
    for (auto& each : all()) idle(each);  // it may be behind what others do, whose threads sleep
    if (asked.counts.happened < asked.counts.recorded) return false;
    order.host_sees(asked.clock);
  }
  follow(event);
  return true;
}

inline std::string unshared;  // why devices do not open the memory of other processes; empty where they do
inline std::byte* share_memory(int index, std::size_t bytes, SharedHandle& handle) {
  refuse_while_capturing("memory was allocated while a queue captures");
  const Locked locked;
  return device(index).memory.share(bytes, handle);
}
inline const std::byte* open_memory(int index, const SharedHandle& handle) {
  if (!unshared.empty()) throw DeviceError{unshared};
  const Locked locked;
  return device(index).memory.open(handle);
}
inline void close_memory(int index, const std::byte* memory) noexcept {
  if (keep([=] { close_memory(index, memory); })) return;
  const Locked locked;
  order.forget(memory, device(index).memory.close(memory));
}
inline void* share_event(int index, SharedHandle& handle) {
  const SharedFile file{std::size_t{0}};
  handle = file.handle();
  ++device(index).events;
  return new PretendedEvent{.index = index, .file = file};
}
inline void* open_event(int index, const SharedHandle& handle) {
  const SharedFile file{handle};
  ++device(index).events;
  return new PretendedEvent{.index = index, .file = file, .opened = true};
}
inline constexpr SharingSupport sharing{&share_memory, &open_memory, &close_memory, &share_event, &open_event};

// While it lives, queues that are made are threads. Make it before them, and let it outlive them.
class ByThreads {
 public:
  explicit ByThreads(std::uint64_t seed) { by_threads = seed; }
  ByThreads(const ByThreads&) = delete;
  ByThreads& operator=(const ByThreads&) = delete;
  ~ByThreads() {
    for (auto& device : all())
      for (auto* work : device.queues) end_thread(*work);  // those of a device that hangs are still there
    by_threads.reset();
    for (auto& device : all()) device.close();
  }
};

}  // namespace replicator::test::pretend
