// SPDX-License-Identifier: Apache-2.0
// Includes all CPU kernels that need no library.
#pragma once

#include <replicator/cpu/adam_update.hpp>
#include <replicator/cpu/attention.hpp>
#include <replicator/cpu/convolution.hpp>
#include <replicator/cpu/copy.hpp>
#include <replicator/cpu/cumulative_sum.hpp>
#include <replicator/cpu/device.hpp>
#include <replicator/cpu/fused_convolution.hpp>
#include <replicator/cpu/gather.hpp>
#include <replicator/cpu/index.hpp>
#include <replicator/cpu/map.hpp>
#include <replicator/cpu/matmul.hpp>
#include <replicator/cpu/movement.hpp>
#include <replicator/cpu/observe.hpp>
#include <replicator/cpu/pooling.hpp>
#include <replicator/cpu/random.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/cpu/resize.hpp>
#include <replicator/cpu/rows.hpp>
#include <replicator/cpu/top_k.hpp>
