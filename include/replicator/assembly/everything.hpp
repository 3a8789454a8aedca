// SPDX-License-Identifier: Apache-2.0
// What must be in a program once: the engine, the kernels, the transports and launchers that this build has.
#pragma once

#include <replicator/assembly/host_engine.hpp>
#include <replicator/collectives/connect/linked_parts.hpp>
#include <replicator/cpu/kernels.hpp>

#if __has_include(<replicator/with/onednn.hpp>)
#include <replicator/with/onednn.hpp>
#endif
