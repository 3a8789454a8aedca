// SPDX-License-Identifier: Apache-2.0
// MemoryNeed: how much memory a device's program needs, by use, and its largest owners. Also the check against a limit.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/graph/variable.hpp>

namespace replicator::detail {

enum class MemoryUse : std::uint8_t {
  variables,    // mirrored ones once, replica-local ones for each replica of the device
  input,        // elements of this step and of the next one, which is read ahead, and the step's results
  collectives,  // contents of collectives: buckets of gradients and their sums
  handoffs,     // values that this device writes for the other devices of its replicas; they stay until the step ends
  activations,  // values of a forward pass that a backward pass reads
  values,       // all others: temporary gradients, copies of weights in other layouts
  scratch,      // of kernels
};
inline constexpr std::size_t memory_uses = 7;

constexpr std::string_view name_of(MemoryUse use) {
  constexpr std::string_view names[] = {"variables", "input and results",
                                        "collectives", "values for other devices",
                                        "activations kept for the backward pass", "other values", "scratch"};
  return names[static_cast<std::size_t>(use)];
}

// "1.50 GiB", "12.0 MiB", "640 B"
inline std::string text_of_bytes(std::size_t bytes) {
  constexpr std::string_view units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; amount >= 1000 && unit < 3; ++unit) amount /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, amount < 10 ? "%.2f " : "%.1f ", amount);
  return text + std::string{units[unit]};
}

struct MemoryOwner {
  std::size_t bytes = 0;
  MemoryUse use = MemoryUse::values;
  std::string text;  // replica0/convolution#12 at train.cpp:31, float32[16, 64, 56, 56]
};

inline MemoryOwner owner_of(const VariableDeclaration& variable) {
  return {variable.type.bytes(), MemoryUse::variables, variable.name + " declared at " + variable.where.text() + ", " + variable.type.text()};
}

// Values are counted at instruction `peak`, where they need the most memory. Everything else lives as long as the
// program.
struct MemoryNeed {
  static constexpr std::size_t listed = 12;

  std::array<std::size_t, memory_uses> bytes{};  // by use
  std::size_t gaps = 0;                          // holes in the arena at its peak, because values have different lifetimes
  std::uint32_t peak = 0;
  std::vector<MemoryOwner> largest;  // descending, at most `listed`

  std::size_t of(MemoryUse use) const { return bytes[static_cast<std::size_t>(use)]; }
  std::size_t total() const {
    std::size_t sum = gaps;
    for (const auto part : bytes) sum += part;
    return sum;
  }
  void add(MemoryOwner owner) {
    bytes[static_cast<std::size_t>(owner.use)] += owner.bytes;
    if (owner.bytes == 0) return;
    const auto place = std::upper_bound(largest.begin(), largest.end(), owner, [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    largest.insert(place, std::move(owner));
    if (largest.size() > listed) largest.pop_back();
  }
};
// "variables 204 MiB, collectives 204 MiB, ..."; leaves out uses of 0 bytes.
inline std::string text_of_uses(const MemoryNeed& plan) {
  std::string text;
  const auto part = [&](std::string_view name, std::size_t bytes) {
    if (bytes) text += (text.empty() ? "" : ", ") + std::string{name} + " " + text_of_bytes(bytes);
  };
  for (std::size_t use = 0; use < memory_uses; ++use) part(name_of(static_cast<MemoryUse>(use)), plan.bytes[use]);
  part("gaps", plan.gaps);
  return text;
}
// One line for each owner.
inline std::string text_of_owners(std::span<const MemoryOwner> owners) {
  std::string text;
  for (const auto& owner : owners) text += "\n  " + text_of_bytes(owner.bytes) + ": " + owner.text;
  return text;
}

// One line for all uses, then one for each of the largest owners.
inline std::string text_of(const MemoryNeed& plan) {
  return "memory " + text_of_bytes(plan.total()) + ": " + detail::text_of_uses(plan) + detail::text_of_owners(plan.largest) + "\n";
}

struct MemoryLimit {
  std::size_t bytes = ~std::size_t{0};
  std::string text = {};  // the origin of the limit: "--memory-limit allows 8.00 GiB"
};

// Throws BuildError if the plan needs more than the limit on `device`.
inline void require_room(const MemoryNeed& plan, std::string_view device, const MemoryLimit& limit) {
  if (plan.total() <= limit.bytes) return;
  const std::span<const MemoryOwner> owners{plan.largest};
  throw BuildError{
      "the step needs " + text_of_bytes(plan.total()) + " of memory on " + std::string{device} + ", but " + limit.text +
      ". It is for " + detail::text_of_uses(plan) +
      ". The largest:" + detail::text_of_owners(owners.first(std::min<std::size_t>(owners.size(), 5))) +
      "\nUse smaller batches, wrap parts of the model in rp::recompute, or deal the replicas to more devices"};
}

}  // namespace replicator::detail
