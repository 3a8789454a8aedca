// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: the CPU kernels. They register themselves.
#include <replicator/cpu/kernels.hpp>
