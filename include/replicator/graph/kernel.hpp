// SPDX-License-Identifier: Apache-2.0
// The interface between operations and devices: kernels that a device kind registers for an operation.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>
#include <replicator/devices/device_kind.hpp>
#include <replicator/devices/kernel_choice.hpp>

namespace replicator {

class AnyOperation;

// Values of the current step, for kernels that draw random numbers or depend on the step.
struct StepContext {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t replica = 0;
  bool uniform = false;   // the kernel runs for all replicas, once for each device
  bool repeated = false;  // uniform, and this is not the device of replica 0; or the second computation of an audited step. An effect is left out
};

// The first value that a kernel could not take, on a device with memory of its own. Such a kernel cannot throw, so it
// stores this record there.
struct Refusal {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t number = none;  // index of the first such element
  std::int64_t value = 0;       // value of that element
};

// The arguments of one execution. Pointers are in the device's memory; the node fixes how many there are.
struct Launch {
  const std::byte* const* inputs = nullptr;
  std::byte* const* outputs = nullptr;
  std::byte* scratch = nullptr;  // of Executable::scratch_bytes, 64-byte aligned
  StepContext context;
  void* stream = nullptr;               // the device kind's; null on the CPU
  const std::uint64_t* step = nullptr;  // in device memory: the number of the step, where the executable reads_step
  const std::byte* table = nullptr;     // in device memory: Executable::table for these operands
  Refusal* refused = nullptr;           // in device memory, where the executable refuses
};

// A kernel prepared for one operation with its attributes, shapes and layouts. Immutable: any thread may run it.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;
  // Runs the kernel. Throws DataError for values that it cannot take, such as an index out of range. The step then ends
  // with that error at the user's line. It must not throw inside a team of OpenMP threads. On devices with memory of their
  // own, see `refuses`.
  virtual void run(const Launch& launch) const = 0;
  // Throws the DataError for the record in Launch::refused.
  virtual void refuse(const Refusal& what) const {
    throw DataError{std::string{kernel} + " refused its value " + std::to_string(what.number) + ", which is " + std::to_string(what.value)};
  }
  // Merges the runs of these parts into one launch. All parts are of this family, and none reads what another writes. The
  // result takes the inputs of all parts, then the outputs of all. The parts outlive it. Returns null where merging is
  // impossible after all.
  virtual std::unique_ptr<Executable> merge(std::span<const Executable* const>) const { return nullptr; }
  // The table_bytes that run() finds at Launch::table. They are stored there once, when the addresses of the operands are
  // known.
  virtual std::vector<std::byte> table(const std::byte* const*, std::byte* const*) const { return {}; }

  std::vector<Layout> input_layouts;   // demanded: the planner inserts a copy where an input has another layout
  std::vector<Layout> output_layouts;  // produced
  std::size_t scratch_bytes = 0;
  std::size_t table_bytes = 0;
  // Executables with equal families may be merged. Empty where each run needs its own launch, as on devices that compute in
  // host memory, where operands may move.
  std::optional<detail::Digest> family;
  // run() reads values on the host and waits for the queue, so it cannot be captured.
  bool needs_host = false;
  // For a device with memory of its own. The kernel records a value that it cannot take in Launch::refused, and does
  // something harmless instead. The program looks there whenever it waits for the device, and before a variable changes.
  // Then it ends the step with refuse().
  bool refuses = false;
  // run() may throw, as gather does for an index out of range. Such a kernel runs before any variable changes. True for
  // every kernel of the tier `user`.
  bool throws = false;
  // The kernel needs Launch::step. Where launches are captured and replayed, the context's step number is the one of the
  // capture.
  bool reads_step = false;
  // in_place[o] = i: output o may share the memory of input i (same layout, element by element). -1: it may not.
  std::vector<int> in_place;
  std::string_view kernel;  // Kernel::name of the maker, unless the maker or merge() sets a more specific one
  double arithmetic = 1;    // share of the operation's work that run() does, where its algorithm saves some: for rooflines
};

// The operation, types and layouts for which a kernel is to be made.
struct KernelRequest {
  const AnyOperation& operation;
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs;
  std::span<const Layout> offered;  // layouts in which the inputs were made
  int threads = 1;                  // OpenMP threads under which the kernel is made and run
  KernelChoice choice = {};         // limits on what libraries may do
};

// Makes executables for an operation. Kernels are constant-initialised, so no order of initialisation between files matters.
struct Kernel {
  std::string_view name;
  std::unique_ptr<Executable> (*make)(const KernelRequest&) = nullptr;  // null result: declines these shapes
};

// The highest filled tier is asked first; where it declines, the next one is asked.
enum class KernelTier : std::uint8_t {
  reference,
  compiled,  // compiled for one expression while the step is planned
  library,   // covers fewer cases than the tiers below, but is faster there
  user,
};
inline constexpr std::size_t kernel_tiers = 4;  // reference, compiled, library, user

using KernelSlots = std::atomic<const Kernel*>[device_kinds][kernel_tiers];  // null: no kernel

// The registry: a slot for each operation. Headers that define kernels fill it; filling it twice is harmless.
template <class Op>
struct kernels {
  static inline constinit KernelSlots slot{};
};

namespace detail {
// Whether this kind of device has a kernel, of any tier.
inline bool has_kernel(const KernelSlots& slots, DeviceKind kind) {
  const auto& tiers = slots[static_cast<std::size_t>(kind)];
  return std::any_of(std::begin(tiers), std::end(tiers), [](const auto& slot) { return slot.load(std::memory_order_relaxed) != nullptr; });
}
}  // namespace detail

// `inline const bool registered = register_kernel<Op>(DeviceKind::cpu, KernelTier::reference, &kernel);`
template <class Op>
bool register_kernel(DeviceKind kind, KernelTier tier, const Kernel* kernel) {
  kernels<Op>::slot[static_cast<std::size_t>(kind)][static_cast<std::size_t>(tier)].store(kernel, std::memory_order_relaxed);
  return true;
}

}  // namespace replicator
