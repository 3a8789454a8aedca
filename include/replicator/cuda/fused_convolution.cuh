// SPDX-License-Identifier: Apache-2.0
// A convolution and what is fused with it, by the kernels of each.
#pragma once

#include <replicator/cuda/convolution.cuh>
#include <replicator/cuda/expressions/map.cuh>
#include <replicator/cuda/expressions/reduce.cuh>
#include <replicator/ops/fusion/convolution_in_parts.hpp>

namespace replicator::detail::cuda {

inline const bool fused_convolution_registered =
    register_kernel<FusedConvolution>(DeviceKind::cuda, KernelTier::reference, &convolution_in_parts<DeviceKind::cuda>);

}  // namespace replicator::detail::cuda
