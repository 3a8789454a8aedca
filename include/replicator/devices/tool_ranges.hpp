// SPDX-License-Identifier: Apache-2.0
// Named ranges of time for a tool that looks at devices of a kind from outside (Nsight Systems): a slot that the headers of the kind fill.
#pragma once

#include <atomic>
#include <cstddef>

#include <replicator/devices/device_kind.hpp>

namespace replicator::detail {

struct ToolRanges {
  bool (*attached)() = nullptr;               // whether a tool listens: it does from the program's start, or never
  void (*begin)(const char* name) = nullptr;  // inside those of the calling thread that have not ended
  void (*end)() noexcept = nullptr;           // the latest of them
};

// Constant-initialised; storing twice is harmless.
inline constinit std::atomic<const ToolRanges*> tool_ranges_slot[device_kinds]{};

// Null where nobody listens.
inline const ToolRanges* tool_ranges(DeviceKind kind) {
  const auto* ranges = tool_ranges_slot[static_cast<std::size_t>(kind)].load();
  return ranges && ranges->attached() ? ranges : nullptr;
}

// While it lives; nothing where `tool` is null.
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
