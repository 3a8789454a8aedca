// SPDX-License-Identifier: Apache-2.0
// A kind of device in place of `cuda`: its memory cannot be touched but by its own queue, its queue does nothing until
// it is synchronised, and its kernels are the CPU's. So whoever forgets a copy or a wait crashes or gets other bits. Captured work
// is done again as it was given, and knows of the step only what lies in memory.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <replicator/collectives/reduction.hpp>
#include <replicator/core/device_support.hpp>
#include <replicator/core/tool_ranges.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::test {

namespace pretend {

inline constexpr int devices = 8;

struct Device {
  std::mutex mutex;  // several logical devices may share it
  std::vector<std::pair<std::byte*, std::size_t>> memory;
  int queues = 0;
  std::atomic<int> captures{0};

  void protect(int protection) {
    for (const auto& [data, bytes] : memory) ::mprotect(data, bytes, protection);
  }
  bool owns(const std::byte* pointer) {
    const std::lock_guard lock{mutex};
    for (const auto& [data, bytes] : memory)
      if (pointer >= data && pointer <= data + bytes) return true;
    return false;
  }
};
inline std::array<Device, devices>& all() {
  static std::array<Device, devices> result;
  return result;
}
inline Device& device(int index) { return all().at(static_cast<std::size_t>(index)); }

inline thread_local int entered = -1;  // by this thread
inline std::set<int> made_on;          // which devices had been entered where kernels were made

using Tasks = std::vector<std::function<void()>>;
struct Work {
  int index = 0;
  Tasks queued, captured;
  bool captures = false, spoiled = false;  // spoiled: what is captured cannot be kept
};
struct Counts {
  std::atomic<int> given{0}, captures{0}, replays{0}, abandoned{0};  // given: tasks, one by one, replays left out
};
inline Counts counts;

inline void require(int index) {
  if (index >= devices) throw DeviceError{"there are 8 pretended devices"};
}
inline std::byte* allocate(int index, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const std::lock_guard lock{device(index).mutex};
  device(index).memory.emplace_back(static_cast<std::byte*>(data), bytes);
  return static_cast<std::byte*>(data);
}
inline void release(int index, std::byte* data, std::size_t bytes) noexcept {
  const std::lock_guard lock{device(index).mutex};
  std::erase_if(device(index).memory, [&](const auto& block) { return block.first == data; });
  ::munmap(data, bytes);
}
inline void* make_queue(int index) {
  const std::lock_guard lock{device(index).mutex};
  ++device(index).queues;
  auto* const work = new Work;
  work->index = index;
  return work;
}
inline void synchronise(void* queue) {
  auto& work = *static_cast<Work*>(queue);
  if (work.captures) {
    work.spoiled = true;
    throw DeviceError{"a queue that captures was waited for"};
  }
  const std::lock_guard lock{device(work.index).mutex};
  device(work.index).protect(PROT_READ | PROT_WRITE);
  for (const auto& one : work.queued) one();
  work.queued.clear();
  device(work.index).protect(PROT_NONE);
}
inline void destroy_queue(int index, void* queue) noexcept {
  synchronise(queue);
  const std::lock_guard lock{device(index).mutex};
  --device(index).queues;
  delete static_cast<Work*>(queue);
}
inline void enqueue(void* queue, std::function<void()> what) {
  auto& work = *static_cast<Work*>(queue);
  if (!work.captures) ++counts.given;
  (work.captures ? work.captured : work.queued).push_back(std::move(what));
}
inline void copy(void* queue, std::byte* to, const std::byte* from, std::size_t bytes) {
  enqueue(queue, [=] { std::memcpy(to, from, bytes); });
}
inline void fold(void* queue, DType dtype, Reduction reduction, std::byte* into, const std::byte* from, std::int64_t elements) {
  auto& own = device(static_cast<Work*>(queue)->index);
  if (!own.owns(into) || !own.owns(from)) throw std::logic_error{"a fold was given memory of the host"};
  enqueue(queue, [=] { collectives::combine(dtype, reduction, into, into, from, elements); });
}


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
  const auto& tasks = *static_cast<const Tasks*>(captured);
  auto& queued = static_cast<Work*>(queue)->queued;
  queued.insert(queued.end(), tasks.begin(), tasks.end());
  ++counts.replays;
}
inline void release_captured(int index, void* captured) noexcept {
  --device(index).captures;
  delete static_cast<Tasks*>(captured);
}
inline constexpr CaptureSupport capture{&begin_capture, &end_capture, &abandon_capture, &replay, &release_captured};

inline constexpr DeviceSupport support{.require = &require,
                                       .allocate = &allocate,
                                       .release = &release,
                                       .make_queue = &make_queue,
                                       .destroy_queue = &destroy_queue,
                                       .enter = [](int index) { entered = index; },
                                       .copy = &copy,
                                       .fold = &fold,
                                       .synchronise = &synchronise,
                                       .capture = &capture};

// The CPU's executable of the same operation, run when the queue gets there.
class Executable final : public replicator::Executable {
 public:
  explicit Executable(std::unique_ptr<replicator::Executable> inner) : inner_{std::move(inner)} {
    input_layouts = inner_->input_layouts;
    output_layouts = inner_->output_layouts;
    scratch_bytes = inner_->scratch_bytes;
    in_place = inner_->in_place;
    reads_step = true;
  }
  void run(const Launch& launch) const override {
    auto& own = device(static_cast<Work*>(launch.stream)->index);
    const std::vector<const std::byte*> inputs{launch.inputs, launch.inputs + input_layouts.size()};
    const std::vector<std::byte*> outputs{launch.outputs, launch.outputs + output_layouts.size()};
    for (const auto* input : inputs)
      if (!own.owns(input)) throw std::logic_error{"a kernel was given an input in the host's memory"};
    for (const auto* output : outputs)
      if (!own.owns(output)) throw std::logic_error{"a kernel was given an output in the host's memory"};
    enqueue(launch.stream, [this, inputs, outputs, scratch = launch.scratch, context = launch.context, step = launch.step]() mutable {
      context.step = *step;
      inner_->run({inputs.data(), outputs.data(), scratch, context, nullptr});
    });
  }

 private:
  std::unique_ptr<replicator::Executable> inner_;
};

inline std::unique_ptr<replicator::Executable> make(const KernelRequest& request) {
  made_on.insert(entered);
  const auto& tiers = request.operation.slots()[static_cast<std::size_t>(DeviceKind::cpu)];
  for (std::size_t tier = kernel_tiers; tier-- > 0;)
    if (const Kernel* kernel = tiers[tier].load())
      if (auto inner = kernel->make(request)) return std::make_unique<Executable>(std::move(inner));
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
  ~PretendDevices() { set(nullptr, nullptr); }

  // Blocks of memory, queues and captures that are there.
  std::size_t in_use() const {
    std::size_t count = 0;
    for (const auto& device : pretend::all()) count += device.memory.size() + static_cast<std::size_t>(device.queues + device.captures);
    return count;
  }

 private:
  static void set(const DeviceSupport* support, const Kernel* kernel) {
    device_support[static_cast<std::size_t>(DeviceKind::cuda)].store(support);
    (register_kernel<Ops>(DeviceKind::cuda, KernelTier::reference, kernel), ...);
  }
};

}  // namespace replicator::test
