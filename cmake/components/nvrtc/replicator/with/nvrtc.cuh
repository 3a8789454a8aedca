// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::nvrtc; cuda/kernels.cuh looks for it.
#pragma once

#include <replicator/cuda/expressions/compiled_map.cuh>
#include <replicator/cuda/expressions/compiled_reduce.cuh>
