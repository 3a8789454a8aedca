// SPDX-License-Identifier: Apache-2.0
// The kernel of FusedConvolution on the CPU. It runs the convolution and each operation fused with it by its own kernel.
#pragma once

#include <replicator/cpu/convolution.hpp>
#include <replicator/cpu/map.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/ops/fusion/convolution_in_parts.hpp>

namespace replicator::detail::cpu {

inline const bool fused_convolution_registered =
    register_kernel<FusedConvolution>(DeviceKind::cpu, KernelTier::reference, &convolution_in_parts<DeviceKind::cpu>);

}  // namespace replicator::detail::cpu
