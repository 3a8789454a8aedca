// SPDX-License-Identifier: Apache-2.0
// Named ranges for NVIDIA's profilers, by NVTX 3. Its headers find an attached tool by themselves, so nothing is linked.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstddef>

#include <replicator/devices/tool_ranges.hpp>

namespace replicator::detail::cuda {

namespace detail {

// Null where no tool is attached.
inline nvtxDomainHandle_t tool_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("replicator");
  return domain;
}
inline bool tool_attached() { return tool_domain() != nullptr; }
inline void begin_range(const char* name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  (void)nvtxDomainRangePushEx(tool_domain(), &attributes);
}
inline void end_range() noexcept { (void)nvtxDomainRangePop(tool_domain()); }

}  // namespace detail

inline constexpr ToolRanges nvtx_ranges{&detail::tool_attached, &detail::begin_range, &detail::end_range};

inline const bool nvtx_registered = [] {
  tool_ranges_slot[static_cast<std::size_t>(DeviceKind::cuda)].store(&nvtx_ranges);
  return true;
}();

}  // namespace replicator::detail::cuda
