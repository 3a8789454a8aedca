// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: there are no kernels.
#pragma once

namespace replicator::detail::cpu {

struct KernelEnvironment {
  explicit KernelEnvironment(int) {}
};

}  // namespace replicator::detail::cpu
