// SPDX-License-Identifier: Apache-2.0
// A convolution and the sums over its channels, by the kernels of both.
#pragma once

#include <replicator/cpu/convolution.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/ops/convolution_then_sums.hpp>

namespace replicator::cpu {

inline const bool convolution_statistics_registered =
    register_kernel<ConvolutionStatistics>(DeviceKind::cpu, KernelTier::reference, &convolution_then_sums<DeviceKind::cpu>);

}  // namespace replicator::cpu
