// SPDX-License-Identifier: Apache-2.0
// All that NVIDIA's GPUs bring to a program.
#pragma once

#include <replicator/cuda/device.cuh>
#include <replicator/cuda/map.cuh>
#include <replicator/cuda/matmul.cuh>
#include <replicator/cuda/reduce.cuh>
