// SPDX-License-Identifier: Apache-2.0
// Of replicator::compiled: kernels of the CPU. They register themselves.
#include <replicator/cpu/kernels.hpp>
