// SPDX-License-Identifier: Apache-2.0
// Includes all kernels for NVIDIA's GPUs, and those by the libraries that the build has.
#pragma once

#include <replicator/cuda/convolution.cuh>
#include <replicator/cuda/cumulative_sum.cuh>
#include <replicator/cuda/device.cuh>
#include <replicator/cuda/expressions/fused_reduce.cuh>
#include <replicator/cuda/expressions/map.cuh>
#include <replicator/cuda/expressions/reduce.cuh>
#include <replicator/cuda/fused_convolution.cuh>
#include <replicator/cuda/gather.cuh>
#include <replicator/cuda/index.cuh>
#include <replicator/cuda/matmul.cuh>
#include <replicator/cuda/movement.cuh>
#include <replicator/cuda/pooling.cuh>
#include <replicator/cuda/random.cuh>
#include <replicator/cuda/resize.cuh>
#include <replicator/cuda/scatter_add.cuh>
#include <replicator/cuda/top_k.cuh>
#if __has_include(<replicator/with/cublaslt.cuh>)
#include <replicator/with/cublaslt.cuh>
#endif
#if __has_include(<replicator/with/cudnn.cuh>)
#include <replicator/with/cudnn.cuh>
#endif
#if __has_include(<replicator/with/nvrtc.cuh>)
#include <replicator/with/nvrtc.cuh>
#endif
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <replicator/cuda/libraries/nvtx.hpp>
#endif
