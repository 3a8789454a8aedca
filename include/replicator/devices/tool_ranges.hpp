// SPDX-License-Identifier: Apache-2.0
// Named ranges of time for a profiler that watches devices of a kind (Nsight Systems). The headers of the kind store the
// functions in a slot.
#pragma once

#include <atomic>
#include <cstddef>

#include <replicator/devices/device_kind.hpp>

namespace replicator::detail {

struct ToolRanges {
  bool (*attached)() = nullptr;               // whether a tool listens; this never changes while the program runs
  void (*begin)(const char* name) = nullptr;  // inside the calling thread's ranges that have not ended
  void (*end)() noexcept = nullptr;           // ends the latest of them
};

// The slots of the kinds. Constant-initialised; storing twice is harmless.
inline constinit std::atomic<const ToolRanges*> tool_ranges_slot[device_kinds]{};

// Null where no tool listens.
inline const ToolRanges* tool_ranges(DeviceKind kind) {
  const auto* ranges = tool_ranges_slot[static_cast<std::size_t>(kind)].load();
  return ranges && ranges->attached() ? ranges : nullptr;
}

// A range that lasts as long as this object. There is none where `tool` is null.
class ToolRange {
 public:
  ToolRange(const ToolRanges* tool, const char* name) : tool_{tool} {
    if (tool_) tool_->begin(name);
  }
  ToolRange(const ToolRange&) = delete;
  ToolRange& operator=(const ToolRange&) = delete;
  ~ToolRange() {
    if (tool_) tool_->end();
  }

 private:
  const ToolRanges* tool_;
};

}  // namespace replicator::detail
