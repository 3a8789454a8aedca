// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link a component cuda with cuDNN: cuda/kernels.cuh looks for it.
#pragma once

#include <replicator/cuda/cudnn_convolution.cuh>
