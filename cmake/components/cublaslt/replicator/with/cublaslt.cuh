// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::cublaslt; cuda/kernels.cuh looks for it.
#pragma once

#include <replicator/cuda/libraries/cublaslt_matmul.cuh>
