// SPDX-License-Identifier: Apache-2.0
// Devices that compute wrongly: a chosen bit of what a chosen kernel writes is flipped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <replicator/collectives/schedule.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/operation.hpp>

#include "wrapped.hpp"

namespace replicator::test {

using namespace replicator::detail;

// Flips a bit of what kernel number `kernel` of device `index` writes, counted from the last call of count_from_here(); or,
// if `always`, of each kernel from that one on.
struct FlippedBit {
  int index = -1;
  std::int64_t kernel = 0;
  std::uint64_t bit = 0;  // modulo the number of bits that it writes
  bool always = false;
};
inline FlippedBit flipped;
inline std::atomic<std::int64_t> kernels_run[8];  // by device
inline std::atomic<int> flips{0};

inline void count_from_here() {
  flips = 0;
  for (auto& count : kernels_run) count = 0;
}
// Called after each kernel of a device that can flip bits.
inline void flip_result(int index, std::byte* const* outputs, std::span<const std::size_t> bytes) {
  const auto number = kernels_run[index]++;
  if (index != flipped.index || (flipped.always ? number < flipped.kernel : number != flipped.kernel)) return;
  std::size_t all = 0;
  for (const auto each : bytes) all += each;
  if (all == 0) return;
  auto byte = static_cast<std::size_t>(flipped.bit / 8) % all;
  std::size_t output = 0;
  while (byte >= bytes[output]) byte -= bytes[output++];
  outputs[output][byte] ^= std::byte{1} << static_cast<int>(flipped.bit % 8);
  ++flips;
}

// While it lives, kernels of these operations on CPUs can flip bits. Threads learn in each step which device they are: call
// learn() before one that is not audited.
template <class... Ops>
class FlippingCpus {
 public:
  FlippingCpus() { set(&kernel); }
  FlippingCpus(const FlippingCpus&) = delete;
  FlippingCpus& operator=(const FlippingCpus&) = delete;
  ~FlippingCpus() {
    set(nullptr);
    flipped = {};
  }
  // In the next step, each of `devices` devices of the job runs its own replicas. `each`: so many belong to a process.
  static void learn(int replicas, int devices, int each = 8) {
    device_of.clear();
    const collectives::ReplicaBlocks blocks{replicas, devices};
    for (int device = 0; device < devices; ++device) device_of.insert(device_of.end(), static_cast<std::size_t>(blocks.count(device)), device % each);
  }
  static void learnt() { device_of.clear(); }

 private:
  class Flipping final : public Wrapped {
   public:
    Flipping(std::unique_ptr<Executable> inner, const KernelRequest& request) : Wrapped{std::move(inner)} {
      for (std::size_t o = 0; o < output_layouts.size(); ++o)
        bytes_.push_back(static_cast<std::size_t>(storage_elements(output_layouts[o], request.outputs[o].shape)) * size_of(request.outputs[o].dtype));
    }
    void run(const Launch& launch) const override {
      static thread_local int here = 0;
      if (!device_of.empty() && !launch.context.uniform) here = device_of[launch.context.replica];
      inner().run(launch);
      flip_result(here, launch.outputs, bytes_);
    }

   private:
    std::vector<std::size_t> bytes_;
  };
  static std::unique_ptr<Executable> make(const KernelRequest& request) {
    const auto& tiers = request.operation.slots()[static_cast<std::size_t>(DeviceKind::cpu)];
    for (std::size_t tier = static_cast<std::size_t>(KernelTier::user); tier-- > 0;)
      if (const Kernel* below = tiers[tier].load())
        if (auto inner = below->make(request)) return std::make_unique<Flipping>(std::move(inner), request);
    return nullptr;
  }
  static void set(const Kernel* one) {
    (register_kernel<Ops>(DeviceKind::cpu, KernelTier::user, one), ...);
  }

  static inline constexpr Kernel kernel{"flipping", &make};
  static inline std::vector<int> device_of;  // by replica; empty: threads know already
};

}  // namespace replicator::test
