// SPDX-License-Identifier: Apache-2.0
// What must be in a program once: the engines, the kernels, the transports and launchers that this build has. A source tree without the
// folder async/ or elastic/ gives programs without that engine.
#pragma once

#include <replicator/collectives/connect/linked_parts.hpp>
#include <replicator/cpu/kernels.hpp>
#include <replicator/engine/host_engine.hpp>
#include <replicator/runtime/plan/planner.hpp>

#if __has_include(<replicator/async/async_engine.hpp>)
#include <replicator/async/async_engine.hpp>
#endif
#if __has_include(<replicator/elastic/elastic_engine.hpp>)
#include <replicator/elastic/elastic_engine.hpp>
#endif
#if __has_include(<replicator/with/onednn.hpp>)
#include <replicator/with/onednn.hpp>
#endif
