// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::cudnn; cuda/kernels.cuh looks for it.
#pragma once

#include <replicator/cuda/libraries/cudnn_convolution.cuh>
#include <replicator/cuda/libraries/cudnn_fused_convolution.cuh>
#include <replicator/cuda/libraries/cudnn_pooling.cuh>
