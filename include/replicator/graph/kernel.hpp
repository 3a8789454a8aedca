// SPDX-License-Identifier: Apache-2.0
// The meeting point of operations and devices: what a device kind registers for an operation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
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

// What a kernel that draws random numbers or reads the step may depend on.
struct StepContext {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t replica = 0;
  bool uniform = false;   // it runs for all replicas, once per device
  bool repeated = false;  // and this is not the device of replica 0
};

// What a kernel of a device with memory of its own could not take, in that memory: it cannot throw there.
struct Refusal {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t number = none;  // of the first such element of the values that it looks at
  std::int64_t value = 0;       // that element
};

// One execution. Pointers are in the device's memory; the number of each is fixed by the node.
struct Launch {
  const std::byte* const* inputs = nullptr;
  std::byte* const* outputs = nullptr;
  std::byte* scratch = nullptr;  // Executable::scratch_bytes, 64-byte aligned
  StepContext context;
  void* stream = nullptr;               // of the device kind; null on the CPU
  const std::uint64_t* step = nullptr;  // in the device's memory, the number of the step, where the executable reads_step
  const std::byte* table = nullptr;     // in the device's memory, Executable::table of these operands
  Refusal* refused = nullptr;           // in the device's memory, where the executable refuses
};

// A kernel made ready for one operation with its attributes, shapes and layouts. Immutable: any thread may run it.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;
  // May throw DataError for values that it cannot take (an index that points nowhere): the step then ends with that error
  // at the user's line. Never from inside a team of OpenMP threads. On devices with memory of their own: see `refuses`.
  virtual void run(const Launch& launch) const = 0;
  // Throws the DataError for what was noted in Launch::refused.
  virtual void refuse(const Refusal& what) const {
    throw DataError{std::string{kernel} + " refused its value " + std::to_string(what.number) + ", which is " + std::to_string(what.value)};
  }
  // One launch for the runs of these parts, all of this one's family, none of which reads what another writes: it takes the inputs of all,
  // then the outputs of all. The parts outlive it. Null where it cannot be had after all.
  virtual std::unique_ptr<Executable> merge(std::span<const Executable* const>) const { return nullptr; }
  // The table_bytes that run() finds at Launch::table. They are written there once, when the addresses of the operands are known.
  virtual std::vector<std::byte> table(const std::byte* const*, std::byte* const*) const { return {}; }

  std::vector<Layout> input_layouts;   // demanded: the planner inserts a copy where an input lies otherwise
  std::vector<Layout> output_layouts;  // given
  std::size_t scratch_bytes = 0;
  std::size_t table_bytes = 0;
  // What executables have in common whose runs may be merged; empty where each is a launch of its own, as on devices that compute on the
  // host's memory, where operands may move.
  std::optional<detail::Digest> family;
  // run() looks at values on the host, for which it waits for the queue: it cannot be captured.
  bool needs_host = false;
  // Of a device with memory of its own: values that it cannot take it notes in Launch::refused, and does something harmless in their place. The
  // program looks there whenever it waits for the device, and before a variable changes; then the step ends by refuse().
  bool refuses = false;
  // It needs Launch::step: where launches are captured and replayed, the context's number of the step is that of the capture.
  bool reads_step = false;
  // in_place[o] = i: output o may share the memory of input i (same layout, element-for-element); -1: it may not.
  std::vector<int> in_place;
  std::string_view kernel;  // Kernel::name of who made it, unless it says more; merged ones, too, have another only where merge says so
  double arithmetic = 1;    // of the operation's work, the part that run() does where its algorithm spares some: for rooflines
};

struct KernelRequest {
  const AnyOperation& operation;
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs;
  std::span<const Layout> offered;  // how the inputs lie where they were made
  int threads = 1;                  // OpenMP threads under which it is made and run
  KernelChoice choice = {};         // of what libraries may do
};

// Constant-initialised: no order of initialisation between files matters.
struct Kernel {
  std::string_view name;
  std::unique_ptr<Executable> (*make)(const KernelRequest&) = nullptr;  // null result: these shapes are not for me
};

// The highest filled one wins, the next is asked where it declines.
enum class KernelTier : std::uint8_t {
  reference,
  compiled,  // made for one expression, while the step is planned
  library,   // for less than the ones below, and there better
  user,
};
inline constexpr std::size_t kernel_tiers = 4;  // reference, compiled, library, user

using KernelSlots = std::atomic<const Kernel*>[device_kinds][kernel_tiers];  // null: no kernel

// The registry: a slot for each operation, filled by the headers that define kernels. Storing twice is harmless.
template <class Op>
struct kernels {
  static inline constinit KernelSlots slot{};
};

// `inline const bool registered = register_kernel<Op>(DeviceKind::cpu, KernelTier::reference, &kernel);`
template <class Op>
bool register_kernel(DeviceKind kind, KernelTier tier, const Kernel* kernel) {
  kernels<Op>::slot[static_cast<std::size_t>(kind)][static_cast<std::size_t>(tier)].store(kernel, std::memory_order_relaxed);
  return true;
}

}  // namespace replicator
