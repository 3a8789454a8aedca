// SPDX-License-Identifier: Apache-2.0
// A pretend kind of device in place of `cuda`, to find missing copies and waits. Only its own queues can access its
// memory, and the devices that have been given access can read it. Queues run their work, in random order, at some time
// before they are waited for; the kernels are the CPU's. So a missing copy or wait crashes or changes bits. Captured
// work is repeated exactly as it was given. It sees nothing of the current step but memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/reduction.hpp>
#include <replicator/core/attributes.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/devices/tool_ranges.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/operation.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/random.hpp>

#include "wrapped.hpp"

namespace replicator::test {

using namespace replicator::detail;

namespace pretend {

inline constexpr int devices = 8;

struct Work;
inline std::atomic<int> host_blocks{0};  // of memory that was given out for copies, or pinned

// Of all that follows: devices look into each other's memory.
inline std::mutex gate;

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

// What a device has room for, at addresses that nobody touches but while its queues work.
class Memory {
 public:
  std::byte* allocate(std::size_t bytes) {
    if (!base_) base_ = static_cast<std::byte*>(::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (blocks_.empty()) used_ = 0;
    auto* const data = base_ + used_;
    used_ += (bytes + page - 1) / page * page;
    if (used_ > room) throw DeviceError{"a pretended device is full"};
    blocks_.emplace_back(data, bytes);
    return data;
  }
  void release(std::byte* data) {
    std::erase_if(blocks_, [&](const auto& block) { return block.first == data; });
    if (blocks_.empty() && base_) ::madvise(base_, used_, MADV_DONTNEED);
  }
  void protect(int protection) const {
    if (used_) ::mprotect(base_, used_, protection);
  }
  bool holds(const std::byte* pointer) const {
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const auto& block) { return pointer >= block.first && pointer <= block.first + block.second; });
  }
  bool empty() const { return blocks_.empty(); }
  std::size_t blocks() const { return blocks_.size(); }

 private:
  static constexpr std::size_t page = 4096, room = std::size_t{1} << 30;

  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  std::vector<std::pair<std::byte*, std::size_t>> blocks_;
};

struct Device {
  Memory memory;
  std::set<int> reached;  // devices whose memory it reads
  std::vector<Work*> queues;
  std::atomic<int> captures{0}, events{0};
  PhiloxStream random{17, 0};  // draws what runs next
  bool sleeps = false;
  bool held = false;                              // works when it is waited for, and by no other chance
  bool lost = false;                              // it folds no more
  std::atomic<bool> stuck{false};                 // it does nothing more
  std::atomic<bool> fails{false}, failed{false};  // its next fold does, which is told when the device is waited for

  bool owns(const std::byte* pointer) {
    const std::lock_guard lock{gate};
    return memory.holds(pointer);
  }
  bool reads(const std::byte* pointer);
  void open();
  void close();
};
inline std::array<Device, devices>& all() {
  static std::array<Device, devices> result;
  return result;
}
inline Device& device(int index) { return all().at(static_cast<std::size_t>(index)); }

inline bool Device::reads(const std::byte* pointer) {
  const std::lock_guard lock{gate};
  return memory.holds(pointer) || std::any_of(reached.begin(), reached.end(), [&](int peer) { return device(peer).memory.holds(pointer); });
}
inline void Device::open() {
  for (const int peer : reached) device(peer).memory.protect(PROT_READ);
  memory.protect(PROT_READ | PROT_WRITE);
}
inline void Device::close() {
  memory.protect(PROT_NONE);
  for (const int peer : reached) device(peer).memory.protect(PROT_NONE);
}

// Why devices do not reach each other; empty where they do.
inline std::string apart;
inline std::string reach(int index, int peer) {
  const std::lock_guard lock{gate};
  if (apart.empty()) device(index).reached.insert(peer);
  return apart;
}

// What this device copies, or else folds, from the peer's memory has other bits.
struct Misread {
  int index = -1, peer = -1;
  bool copies = false;
};
inline Misread misread;
inline void misread_into(int index, bool copies, std::byte* to, const std::byte* from) {
  if (index == misread.index && copies == misread.copies && device(misread.peer).memory.holds(from)) to[1000] ^= std::byte{1};
}

inline thread_local int entered = -1;  // by this thread
inline std::set<int> made_on;          // which devices had been entered where kernels were made

using Tasks = std::vector<std::function<void()>>;
// How often it was recorded, and how often it has happened.
struct PretendedEvent {
  int index = 0;
  std::uint64_t recorded = 0, happened = 0;
};
struct Entry {
  std::function<void()> task;         // or
  PretendedEvent* records = nullptr;  // or
  PretendedEvent* waits = nullptr;
  std::uint64_t number = 0;  // of the record
};
struct Work {
  int index = 0;
  std::deque<Entry> queued;
  Tasks captured;
  bool captures = false, spoiled = false;  // spoiled: what is captured cannot be kept
};
struct Counts {
  std::atomic<int> given{0}, captures{0}, replays{0}, abandoned{0}, merged{0};  // given: tasks, one by one, replays left out
  std::atomic<std::int64_t> from_host{0}, to_host{0};                           // bytes that were copied
};
inline Counts counts;
inline std::vector<const std::byte*> copied;  // where to, in the order in which it was done

inline void require(int index) {
  if (index >= devices) throw DeviceError{"there are 8 pretended devices"};
}
inline std::byte* allocate(int index, std::size_t bytes) {
  const std::lock_guard lock{gate};
  return device(index).memory.allocate(bytes);
}
inline void release(int index, std::byte* data, std::size_t bytes) noexcept {
  if (keep([=] { release(index, data, bytes); })) return;
  const std::lock_guard lock{gate};
  device(index).memory.release(data);
}
inline void* make_queue(int index) {
  const std::lock_guard lock{gate};
  auto* const work = new Work;
  work->index = index;
  device(index).queues.push_back(work);
  return work;
}

// One entry of some queue of the device, drawn at random, that need not wait; false where there is none.
inline bool advance(Device& own) {
  if (own.stuck) return false;
  std::vector<Work*> ready;
  for (auto* work : own.queues)
    if (!work->queued.empty() && !(work->queued.front().waits && work->queued.front().waits->happened < work->queued.front().number)) ready.push_back(work);
  if (ready.empty()) return false;
  auto& work = *ready[own.random.below(static_cast<std::uint32_t>(ready.size()))];
  const Entry entry = std::move(work.queued.front());
  work.queued.pop_front();
  if (entry.records) entry.records->happened = std::max(entry.records->happened, entry.number);
  if (!entry.task) return true;
  own.open();
  entry.task();
  own.close();
  return true;
}
// Queues work whenever they like, and for a while not at all.
inline void idle(Device& own) {
  if (own.held) return;
  if (own.random.below(16) == 0) own.sleeps = !own.sleeps;
  if (own.sleeps) return;
  while (own.random.below(3) != 0 && advance(own)) {
  }
}
// Where its own queues cannot go on, those of others must.
template <class Done>
void advance_until(int index, Done done) {
  const std::lock_guard lock{gate};
  while (!done())
    if (!advance(device(index)) && std::none_of(all().begin(), all().end(), [](Device& other) { return advance(other); }))
      throw std::logic_error{"queues wait for each other, or for events that nobody records"};
}
inline void drain(Work& work) {
  advance_until(work.index, [&] { return work.queued.empty(); });
}
// All that any queue was given is done: also what nobody waits for, like the inputs of the next step.
inline void settle() {
  for (int index = 0; index < devices; ++index)
    advance_until(index, [index] { return std::all_of(device(index).queues.begin(), device(index).queues.end(), [](auto* work) { return work->queued.empty(); }); });
}
inline void synchronise(void* queue) {
  auto& work = *static_cast<Work*>(queue);
  if (work.captures) {
    work.spoiled = true;
    throw DeviceError{"a queue that captures was waited for"};
  }
  if (abandoned) throw DeviceError{"a pretended device hangs"};
  drain(work);
  if (device(work.index).failed) throw DeviceError{"the device has failed"};
}
inline void abandon() noexcept { abandoned = true; }
inline bool is_abandoned() noexcept { return abandoned; }
inline void destroy_queue(int index, void* queue) noexcept {
  if (keep([=] { destroy_queue(index, queue); })) return;
  drain(*static_cast<Work*>(queue));
  const std::lock_guard lock{gate};
  std::erase(device(index).queues, static_cast<Work*>(queue));
  delete static_cast<Work*>(queue);
}
template <class Make>
void put(Work& work, Make make) {
  auto& own = device(work.index);
  const std::lock_guard lock{gate};
  work.queued.push_back(make());
  idle(own);
}
inline void enqueue(void* queue, std::function<void()> what) {
  auto& work = *static_cast<Work*>(queue);
  if (work.captures) return work.captured.push_back(std::move(what));
  ++counts.given;
  put(work, [&] { return Entry{.task = std::move(what)}; });
}
// Memory of the host that was given out for copies, or pinned, by where it ends.
struct Pinned {
  std::mutex mutex;
  std::map<const std::byte*, const std::byte*> begins;
  int asked = 0;
  bool all = false;  // nobody is refused

  bool holds(const std::byte* at) {
    const std::lock_guard lock{mutex};
    const auto found = begins.upper_bound(at);
    return found != begins.end() && found->second <= at;
  }
};
inline Pinned pinned;

// If all memory can be pinned, copying unpinned memory is a mistake: the copy waits until the queue has done all its
// work, and cannot be captured.
inline void require_pinned(const Work& work, const std::byte* host) {
  const std::lock_guard lock{gate};
  if (pinned.all && (work.captures || !work.queued.empty()) && !pinned.holds(host))
    throw std::logic_error{"a copy of memory that is not pinned waits for what the queue has to do before, and for ever where that hangs"};
}

inline void copy(void* queue, std::byte* to, const std::byte* from, std::size_t bytes) {
  const int index = static_cast<Work*>(queue)->index;
  auto& own = device(index);
  if (!own.reads(from)) require_pinned(*static_cast<Work*>(queue), from);
  if (!own.owns(to)) require_pinned(*static_cast<Work*>(queue), to);
  if (!own.reads(from) && !own.owns(to)) throw std::logic_error{"a device was asked to copy within the host's memory, for which CUDA waits without end"};
  const auto from_host = own.reads(from) ? 0 : static_cast<std::int64_t>(bytes), to_host = own.owns(to) ? 0 : static_cast<std::int64_t>(bytes);
  enqueue(queue, [=] {
    std::memcpy(to, from, bytes);
    misread_into(index, true, to, from);
    copied.push_back(to);
    counts.from_host += from_host, counts.to_host += to_host;
  });
}
inline void fold(void* queue, DType dtype, Reduction reduction, std::byte* into, const std::byte* left, const std::byte* right, std::int64_t elements) {
  const int index = static_cast<Work*>(queue)->index;
  auto& own = device(index);
  if (own.lost) throw DeviceError{"the device is lost"};
  if (!own.owns(into) || !own.reads(left) || !own.reads(right)) throw std::logic_error{"a fold was given memory that the device does not reach"};
  enqueue(queue, [=, &own] {
    if (own.fails) own.failed = true;
    collectives::combine(dtype, reduction, into, left, right, elements);
    misread_into(index, false, into, right);
  });
}
inline void finish(void* queue, DType dtype, Reduction reduction, std::byte* values, std::int64_t elements, int members) {
  enqueue(queue, [=] { collectives::finish_root(dtype, reduction, values, elements, members); });
}
inline constexpr PeerSupport peers{&reach, &finish};

inline void begin_capture(void* queue) { static_cast<Work*>(queue)->captures = true; }
inline void abandon_capture(void* queue) noexcept {
  auto& work = *static_cast<Work*>(queue);
  work.captures = work.spoiled = false;
  work.captured.clear();
  ++counts.abandoned;
}
inline void* end_capture(void* queue) {
  auto& work = *static_cast<Work*>(queue);
  if (work.spoiled) {
    abandon_capture(queue);
    throw DeviceError{"what was captured was spoiled"};
  }
  work.captures = false;
  ++device(work.index).captures;
  ++counts.captures;
  return new Tasks{std::exchange(work.captured, {})};
}
inline void replay(void* queue, void* captured) {
  for (const auto& task : *static_cast<const Tasks*>(captured)) put(*static_cast<Work*>(queue), [&] { return Entry{.task = task}; });
  ++counts.replays;
}
inline void release_captured(int index, void* captured) noexcept {
  if (keep([=] { release_captured(index, captured); })) return;
  --device(index).captures;
  delete static_cast<Tasks*>(captured);
}
inline constexpr CaptureSupport capture{&begin_capture, &end_capture, &abandon_capture, &replay, &release_captured};

// None for every third who asks: plain memory must do.
inline std::byte* allocate_host(std::size_t bytes) {
  static std::atomic<int> asked{0};
  if (!pinned.all && asked++ % 3 == 2) return nullptr;
  ++host_blocks;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  const std::lock_guard lock{pinned.mutex};
  pinned.begins[memory + bytes] = memory;
  return memory;
}
inline void release_host(std::byte* memory, std::size_t bytes) noexcept {
  if (keep([=] { release_host(memory, bytes); })) return;
  --host_blocks;
  {
    const std::lock_guard lock{pinned.mutex};
    pinned.begins.erase(memory + bytes);
  }
  std::free(memory);
}
// Pages are pinned, so no other memory may lie in them. Pins only every second one: who asks must do without.
inline bool pin(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t page = 4096;
  if (reinterpret_cast<std::uintptr_t>(memory) % page != 0) throw std::logic_error{"memory to pin does not begin on a page of its own"};
  const std::byte* const end = memory + (bytes + page - 1) / page * page;
  const std::lock_guard lock{pinned.mutex};
  const auto next = pinned.begins.upper_bound(memory);
  if (next != pinned.begins.end() && next->second < end) throw std::logic_error{"a page was pinned twice"};
  if (!pinned.all && pinned.asked++ % 2) return false;
  ++host_blocks;
  pinned.begins[end] = memory;
  return true;
}
inline void unpin(std::byte* memory) noexcept {
  if (keep([=] { unpin(memory); })) return;
  const std::lock_guard lock{pinned.mutex};
  std::erase_if(pinned.begins, [=](const auto& block) { return block.second == memory; });
  --host_blocks;
}
inline void* make_event(int index) {
  ++device(index).events;
  return new PretendedEvent{index};
}
inline void destroy_event(int index, void* event) noexcept {
  if (keep([=] { destroy_event(index, event); })) return;
  --device(index).events;
  delete static_cast<PretendedEvent*>(event);
}
inline void record(void* queue, void* event) {
  auto& recorded = *static_cast<PretendedEvent*>(event);
  put(*static_cast<Work*>(queue), [&] { return Entry{.task = {}, .records = &recorded, .number = ++recorded.recorded}; });
}
inline void wait(void* queue, void* event) {
  auto& awaited = *static_cast<PretendedEvent*>(event);
  put(*static_cast<Work*>(queue), [&] { return Entry{.task = {}, .waits = &awaited, .number = awaited.recorded}; });
}
inline void await(void* event) {
  auto& awaited = *static_cast<PretendedEvent*>(event);
  advance_until(awaited.index, [&] { return awaited.happened >= awaited.recorded; });
}
inline bool happened(void* event) {
  auto& asked = *static_cast<PretendedEvent*>(event);
  const std::lock_guard lock{gate};
  for (auto& each : all()) idle(each);  // it may be behind what others do, whose threads sleep
  return asked.happened >= asked.recorded;
}
inline constexpr StagingSupport staging{&allocate_host, &release_host, &pin, &unpin, &make_event, &destroy_event, &record, &wait, &await, &happened};

inline constexpr DeviceSupport support{.require = &require,
                                       .allocate = &allocate,
                                       .release = &release,
                                       .make_queue = &make_queue,
                                       .destroy_queue = &destroy_queue,
                                       .enter = [](int index) { entered = index; },
                                       .copy = &copy,
                                       .fold = &fold,
                                       .synchronise = &synchronise,
                                       .abandon = &abandon,
                                       .abandoned = &is_abandoned,
                                       .staging = &staging,
                                       .capture = &capture,
                                       .peers = &peers};

inline std::unique_ptr<replicator::Executable> merge(std::span<const replicator::Executable* const> parts);

// What kernels have thrown when their queues got there: by Refusal::value.
struct Refused {
  std::mutex mutex;
  std::vector<std::string> words;
};
inline Refused refused;

// The CPU's executable of the same operation, run when the queue gets there.
class Executable final : public Wrapped {
 public:
  Executable(std::unique_ptr<replicator::Executable> inner, const AnyOperation& operation) : Wrapped{std::move(inner)} {
    if (const auto* map = operation.get<Map>()) {
      Hasher hasher;
      AttributeHasher attributes{hasher};
      map->expression->describe(attributes);
      family = hasher.result();
    }
    reads_step = true;
    refuses = operation.get<Gather>() || operation.get<ScatterAdd>();
  }
  void refuse(const Refusal& refusal) const override {
    const std::lock_guard lock{refused.mutex};
    throw DataError{refused.words.at(static_cast<std::size_t>(refusal.value))};
  }
  void run(const Launch& launch) const override {
    const int index = static_cast<Work*>(launch.stream)->index;
    if (entered != index) throw std::logic_error{"a kernel was launched while another device was entered"};
    auto& own = device(index);
    const std::vector<const std::byte*> inputs{launch.inputs, launch.inputs + input_layouts.size()};
    const std::vector<std::byte*> outputs{launch.outputs, launch.outputs + output_layouts.size()};
    for (const auto* input : inputs)
      if (!own.owns(input)) throw std::logic_error{"a kernel was given an input in the host's memory"};
    for (const auto* output : outputs)
      if (!own.owns(output)) throw std::logic_error{"a kernel was given an output in the host's memory"};
    if (refuses && !own.owns(reinterpret_cast<const std::byte*>(launch.refused))) throw std::logic_error{"what a kernel refuses is told in the host's memory"};
    enqueue(launch.stream, [this, inputs, outputs, scratch = launch.scratch, context = launch.context, step = launch.step, noted = launch.refused]() mutable {
      context.step = *step;
      try {
        inner().run({inputs.data(), outputs.data(), scratch, context, nullptr});
      } catch (const DataError& error) {
        note(error, *noted);
      }
    });
  }
  std::unique_ptr<replicator::Executable> merge(std::span<const replicator::Executable* const> parts) const override { return pretend::merge(parts); }

 private:
  static void note(const DataError& error, Refusal& noted) {
    const std::lock_guard lock{refused.mutex};
    noted = {0, static_cast<std::int64_t>(refused.words.size())};
    refused.words.push_back(error.what());
  }
};

// The last part runs first. Where the operands are is known from nothing but the table.
class Merged final : public replicator::Executable {
 public:
  explicit Merged(std::span<const replicator::Executable* const> parts) : parts_{parts.begin(), parts.end()} {
    for (const auto* part : parts_) {
      for (const auto input : part->in_place) in_place.push_back(input < 0 ? -1 : input + static_cast<int>(input_layouts.size()));
      input_layouts.insert(input_layouts.end(), part->input_layouts.begin(), part->input_layouts.end());
      output_layouts.insert(output_layouts.end(), part->output_layouts.begin(), part->output_layouts.end());
      scratch_bytes = std::max(scratch_bytes, part->scratch_bytes);
    }
    table_bytes = (input_layouts.size() + output_layouts.size()) * sizeof(std::byte*);
  }
  std::vector<std::byte> table(const std::byte* const* inputs, std::byte* const* outputs) const override {
    std::vector<std::byte> table(table_bytes);
    std::memcpy(table.data(), inputs, input_layouts.size() * sizeof *inputs);
    std::memcpy(table.data() + input_layouts.size() * sizeof *inputs, outputs, output_layouts.size() * sizeof *outputs);
    return table;
  }
  void run(const Launch& launch) const override {
    if (!device(static_cast<Work*>(launch.stream)->index).owns(launch.table)) throw std::logic_error{"a table is in the host's memory"};
    ++counts.merged;
    enqueue(launch.stream, [this, table = launch.table, scratch = launch.scratch, context = launch.context] {
      const auto* inputs = reinterpret_cast<const std::byte* const*>(table) + input_layouts.size();
      auto* const* outputs = reinterpret_cast<std::byte* const*>(table) + input_layouts.size() + output_layouts.size();
      for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
        inputs -= (*part)->input_layouts.size();
        outputs -= (*part)->output_layouts.size();
        static_cast<const pretend::Executable*>(*part)->inner().run({inputs, outputs, scratch, context, nullptr});
      }
    });
  }

 private:
  std::vector<const replicator::Executable*> parts_;
};
inline std::unique_ptr<replicator::Executable> merge(std::span<const replicator::Executable* const> parts) { return std::make_unique<Merged>(parts); }

inline std::unique_ptr<replicator::Executable> make(const KernelRequest& request) {
  made_on.insert(entered);
  const auto& tiers = request.operation.slots()[static_cast<std::size_t>(DeviceKind::cpu)];
  for (std::size_t tier = kernel_tiers; tier-- > 0;)
    if (const Kernel* kernel = tiers[tier].load())
      if (auto inner = kernel->make(request)) return std::make_unique<Executable>(std::move(inner), request.operation);
  return nullptr;
}
inline constexpr Kernel kernel{"pretended", &make};

}  // namespace pretend

// While it lives, `cuda:0` to `cuda:7` are pretended devices that can run these operations.
template <class... Ops>
class PretendDevices {
 public:
  PretendDevices() { set(&pretend::support, &pretend::kernel); }
  PretendDevices(const PretendDevices&) = delete;
  PretendDevices& operator=(const PretendDevices&) = delete;
  ~PretendDevices() {
    set(nullptr, nullptr);
    for (auto& device : pretend::all()) {
      device.reached.clear();
      device.lost = device.fails = device.failed = device.held = device.stuck = false;
    }
    if (pretend::abandoned.exchange(false)) give_back();
    pretend::pinned.all = false;
    pretend::apart.clear();
    pretend::copied.clear();
    pretend::misread = {};
  }

  // Blocks of memory, queues, events and captures that are there.
  std::size_t in_use() const {
    auto count = static_cast<std::size_t>(pretend::host_blocks);
    for (const auto& device : pretend::all()) count += device.memory.blocks() + device.queues.size() + static_cast<std::size_t>(device.captures + device.events);
    return count;
  }

 private:
  static void give_back() {
    for (auto& device : pretend::all())
      for (auto* queue : device.queues) queue->queued.clear();
    for (const auto& one : std::exchange(pretend::kept.give_back, {})) one();
  }
  static void set(const DeviceSupport* support, [[maybe_unused]] const Kernel* kernel) {
    device_support[static_cast<std::size_t>(DeviceKind::cuda)].store(support);
    (register_kernel<Ops>(DeviceKind::cuda, KernelTier::reference, kernel), ...);
  }
};

// That can run what small programs are made of, and more.
template <class... More>
using PretendGpus = PretendDevices<Map, Reduce, Matmul, Transpose, Slice, Pad, Concat, Random, ArgMax, LayoutCopy, More...>;

}  // namespace replicator::test
