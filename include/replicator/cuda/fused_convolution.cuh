// SPDX-License-Identifier: Apache-2.0
// The reference kernel of FusedConvolution on GPUs. It runs the convolution and each operation fused with it by its own kernel.
#pragma once

#include <replicator/cuda/convolution.cuh>
#include <replicator/cuda/expressions/map.cuh>
#include <replicator/cuda/expressions/reduce.cuh>
#include <replicator/ops/fusion/convolution_in_parts.hpp>

namespace replicator::detail::cuda {

inline const bool fused_convolution_registered =
    register_kernel<FusedConvolution>(DeviceKind::cuda, KernelTier::reference, &convolution_in_parts<DeviceKind::cuda>);

}  // namespace replicator::detail::cuda
