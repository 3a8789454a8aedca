// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel of an operation.
#pragma once

#include <cstddef>
#include <memory>

#include <replicator/graph/operation.hpp>

namespace replicator::detail {

// Asks the highest filled tier first, then the next. Null where there is no kernel, or all decline.
inline std::unique_ptr<Executable> make_executable(DeviceKind kind, const KernelRequest& request) {
  const auto& tiers = request.operation.slots()[static_cast<std::size_t>(kind)];
  for (std::size_t tier = kernel_tiers; tier-- > 0;)
    if (const Kernel* kernel = tiers[tier].load(std::memory_order_relaxed))
      if (auto executable = kernel->make(request)) {
        if (executable->kernel.empty()) executable->kernel = kernel->name;
        if (tier == static_cast<std::size_t>(KernelTier::user)) executable->throws = true;
        return executable;
      }
  return nullptr;
}

}  // namespace replicator::detail
