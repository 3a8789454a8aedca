// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: the CPU kernels, which register themselves, and the first values of variables.
#include <replicator/cpu/kernels.hpp>

#include <replicator/cpu/draw_first_values.hpp>

template void replicator::detail::cpu::initialize<>(replicator::AnyArray&, const replicator::Initializer&, std::uint64_t, std::uint64_t);
