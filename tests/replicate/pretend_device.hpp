// SPDX-License-Identifier: Apache-2.0
// A pretend kind of device in place of `cuda`, to find missing copies and waits. Only its own queues can access its
// memory, and the devices that have been given access can read it. Queues run their work later (pretend_queues.hpp); the
// kernels are the CPU's. So a missing copy crashes or changes bits, and a missing wait is refused. Captured work is
// repeated exactly as it was given. It sees nothing of the current step but memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
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

#include "flipped_bits.hpp"
#include "pretend_queues.hpp"
#include "wrapped.hpp"

namespace replicator::test {

using namespace replicator::detail;

namespace pretend {

inline std::atomic<int> host_blocks{0};  // of memory that was given out for copies, or pinned

// Why devices do not reach each other; empty where they do.
inline std::string apart;
inline std::string reach(int index, int peer) {
  const Locked locked;
  if (apart.empty()) device(index).reached.insert(peer);
  return apart;
}

// What this device copies, or else folds, from the peer's memory has other bits. Peer -1: all memory of other processes.
struct Misread {
  int index = -1, peer = -1;
  bool copies = false;
};
inline Misread misread;
inline void misread_into(int index, bool copies, std::byte* to, const std::byte* from) {
  if (index != misread.index || copies != misread.copies) return;
  if (misread.peer < 0 ? device(index).memory.has_opened(from) : device(misread.peer).memory.holds(from)) to[1000] ^= std::byte{1};
}

inline thread_local int entered = -1;  // by this thread
inline std::set<int> made_on;          // which devices had been entered where kernels were made

struct Counts {
  std::atomic<int> given{0}, captures{0}, replays{0}, abandoned{0}, merged{0};  // given: tasks, one by one, replays left out
  std::atomic<std::int64_t> from_host{0}, to_host{0};                           // bytes that were copied
};
inline Counts counts;
inline std::vector<const std::byte*> copied;  // where to, in the order in which it was done

inline void require(int index) {
  if (index >= devices) throw DeviceError{"there are 8 pretended devices"};
}
inline void enqueue(void* queue, Task task) {
  auto& work = *static_cast<Work*>(queue);
  if (work.spoiled) throw DeviceError{"a queue was given work whose capture is lost"};
  if (work.captures) return work.captured.push_back(std::move(task));
  ++counts.given;
  put(work, task);
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
  const Locked locked;
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
  const auto run = [=] {
    std::memcpy(to, from, bytes);
    misread_into(index, true, to, from);
    const Unseen unseen;
    if (!by_threads) copied.push_back(to);
    counts.from_host += from_host, counts.to_host += to_host;
  };
  enqueue(queue, {run, {{from, bytes, false}, {to, bytes, true}}, "a copy"});
}
inline void fold(void* queue, DType dtype, Reduction reduction, std::byte* into, const std::byte* left, const std::byte* right, std::int64_t elements) {
  const int index = static_cast<Work*>(queue)->index;
  auto& own = device(index);
  if (own.lost) throw DeviceError{"the device is lost"};
  if (!own.owns(into) || !own.reads(left) || !own.reads(right)) throw std::logic_error{"a fold was given memory that the device does not reach"};
  const auto run = [=, &own] {
    if (own.fails) own.failed = true;
    collectives::combine(dtype, reduction, into, left, right, elements);
    misread_into(index, false, into, right);
  };
  const auto bytes = static_cast<std::size_t>(elements) * size_of(dtype);
  enqueue(queue, {run, {{left, bytes, false}, {right, bytes, false}, {into, bytes, true}}, "a fold"});
}
inline void finish(void* queue, DType dtype, Reduction reduction, std::byte* values, std::int64_t elements, int members) {
  const auto run = [=] { collectives::finish_root(dtype, reduction, values, elements, members); };
  enqueue(queue, {run, {{values, static_cast<std::size_t>(elements) * size_of(dtype), true}}, "the end of a fold"});
}
inline constexpr PeerSupport peers{&reach, &finish};

inline void begin_capture(void* queue) {
  refuse_while_capturing("a capture began within another one");
  capturing = static_cast<Work*>(queue);
  capturing->captures = true;
}
inline void leave_capture(Work& work) {
  if (capturing == &work) capturing = nullptr;
  work.captures = work.spoiled = false;
}
inline void abandon_capture(void* queue) noexcept {
  auto& work = *static_cast<Work*>(queue);
  leave_capture(work);
  work.captured.clear();
  ++counts.abandoned;
}
inline void* end_capture(void* queue) {
  auto& work = *static_cast<Work*>(queue);
  if (work.spoiled) {
    abandon_capture(queue);
    throw DeviceError{"what was captured was spoiled"};
  }
  leave_capture(work);
  ++device(work.index).captures;
  ++counts.captures;
  return new std::vector<Task>{std::exchange(work.captured, {})};
}
inline void replay(void* queue, void* captured) {
  refuse_while_capturing("captured work was replayed while a queue captures");
  for (const auto& task : *static_cast<const std::vector<Task>*>(captured)) put(*static_cast<Work*>(queue), task);
  ++counts.replays;
}
inline void release_captured(int index, void* captured) noexcept {
  if (keep([=] { release_captured(index, captured); })) return;
  --device(index).captures;
  delete static_cast<std::vector<Task>*>(captured);
}
inline constexpr CaptureSupport capture{&begin_capture, &end_capture, &abandon_capture, &replay, &release_captured};

// None for every third who asks: plain memory must do.
inline std::byte* allocate_host(std::size_t bytes) {
  refuse_while_capturing("memory of the host was allocated while a queue captures");
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
  {
    const Locked locked;
    order.forget(memory, bytes);
  }
  std::free(memory);
}
// Pages are pinned, so no other memory may lie in them. Pins only every second one: who asks must do without.
inline bool pin(std::byte* memory, std::size_t bytes) {
  refuse_while_capturing("memory was pinned while a queue captures");
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
                                       .peers = &peers,
                                       .sharing = &sharing};

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
  Executable(std::unique_ptr<replicator::Executable> inner, const KernelRequest& request) : Wrapped{std::move(inner)} {
    const auto& operation = request.operation;
    for (std::size_t i = 0; i < input_layouts.size(); ++i) bytes_.push_back(stored_bytes(input_layouts[i], request.inputs[i]));
    for (std::size_t o = 0; o < output_layouts.size(); ++o) bytes_.push_back(stored_bytes(output_layouts[o], request.outputs[o]));
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
    const auto run = [this, index, inputs, outputs, scratch = launch.scratch, context = launch.context, step = launch.step, noted = launch.refused]() mutable {
      context.step = *step;
      try {
        inner().run({inputs.data(), outputs.data(), scratch, context, nullptr});
        flip_result(index, outputs.data(), bytes_of_outputs());
      } catch (const DataError& error) {
        note(error, *noted);
      }
    };
    auto accesses = operands(launch.inputs, launch.outputs);
    accesses.push_back({launch.scratch, scratch_bytes, true});
    accesses.push_back({reinterpret_cast<const std::byte*>(launch.step), sizeof *launch.step, false});
    if (refuses) accesses.push_back({reinterpret_cast<const std::byte*>(launch.refused), sizeof *launch.refused, true});
    enqueue(launch.stream, {run, std::move(accesses), "a kernel"});
  }
  Accesses operands(const std::byte* const* inputs, std::byte* const* outputs) const {
    Accesses result;
    for (std::size_t i = 0; i < input_layouts.size(); ++i) result.push_back({inputs[i], bytes_[i], false});
    for (std::size_t o = 0; o < output_layouts.size(); ++o) result.push_back({outputs[o], bytes_[input_layouts.size() + o], true});
    return result;
  }
  std::unique_ptr<replicator::Executable> merge(std::span<const replicator::Executable* const> parts) const override { return pretend::merge(parts); }
  std::vector<std::size_t> bytes_of_outputs() const { return {bytes_.begin() + static_cast<std::ptrdiff_t>(input_layouts.size()), bytes_.end()}; }

 private:
  static std::size_t stored_bytes(const Layout& layout, const TensorType& type) {
    return static_cast<std::size_t>(storage_elements(layout, type.shape)) * size_of(type.dtype);
  }
  static void note(const DataError& error, Refusal& noted) {
    const std::lock_guard lock{refused.mutex};
    noted = {0, static_cast<std::int64_t>(refused.words.size())};
    refused.words.push_back(error.what());
  }

  std::vector<std::size_t> bytes_;  // of the inputs, then of the outputs
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
    const auto run = [this, index = static_cast<Work*>(launch.stream)->index, table = launch.table, scratch = launch.scratch, context = launch.context] {
      const auto* inputs = reinterpret_cast<const std::byte* const*>(table) + input_layouts.size();
      auto* const* outputs = reinterpret_cast<std::byte* const*>(table) + input_layouts.size() + output_layouts.size();
      for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
        inputs -= (*part)->input_layouts.size();
        outputs -= (*part)->output_layouts.size();
        const auto& one = *static_cast<const pretend::Executable*>(*part);
        one.inner().run({inputs, outputs, scratch, context, nullptr});
        flip_result(index, outputs, one.bytes_of_outputs());
      }
    };
    Accesses accesses{{launch.table, table_bytes, false}, {launch.scratch, scratch_bytes, true}};
    const auto* inputs = launch.inputs;
    auto* const* outputs = launch.outputs;
    for (const auto* part : parts_) {
      const auto operands = static_cast<const pretend::Executable*>(part)->operands(inputs, outputs);
      accesses.insert(accesses.end(), operands.begin(), operands.end());
      inputs += part->input_layouts.size();
      outputs += part->output_layouts.size();
    }
    enqueue(launch.stream, {run, std::move(accesses), "a merged kernel"});
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
      if (auto inner = kernel->make(request)) return std::make_unique<Executable>(std::move(inner), request);
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
    pretend::unshared.clear();
    pretend::copied.clear();
    pretend::misread = {};
    flipped = {};
    pretend::planted = {};
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
      for (auto* queue : device.queues) {
        pretend::end_thread(*queue);
        queue->queued.clear();
      }
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
