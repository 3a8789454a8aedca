// SPDX-License-Identifier: Apache-2.0
// A convolution and the sums over its channels, by the kernels of both.
#pragma once

#include <replicator/cuda/convolution.cuh>
#include <replicator/cuda/reduce.cuh>
#include <replicator/ops/convolution_then_sums.hpp>

namespace replicator::cuda {

inline const bool convolution_statistics_registered =
    register_kernel<ConvolutionStatistics>(DeviceKind::cuda, KernelTier::reference, &convolution_then_sums<DeviceKind::cuda>);

}  // namespace replicator::cuda
