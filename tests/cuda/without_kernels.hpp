// SPDX-License-Identifier: Apache-2.0
// Takes an operation's kernels for GPUs away.
#pragma once

#include <cstddef>

#include <replicator/graph/kernel.hpp>

namespace replicator::test {

// While it lives, GPUs have no kernel of the operation.
template <class Op>
class WithoutKernels {
 public:
  WithoutKernels() {
    for (std::size_t tier = 0; tier < kernel_tiers; ++tier) before_[tier] = slots()[tier].exchange(nullptr);
  }
  WithoutKernels(const WithoutKernels&) = delete;
  WithoutKernels& operator=(const WithoutKernels&) = delete;
  ~WithoutKernels() {
    for (std::size_t tier = 0; tier < kernel_tiers; ++tier) slots()[tier].store(before_[tier]);
  }

 private:
  static auto& slots() { return kernels<Op>::slot[static_cast<std::size_t>(DeviceKind::cuda)]; }
  const Kernel* before_[kernel_tiers];
};

}  // namespace replicator::test
