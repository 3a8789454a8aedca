// SPDX-License-Identifier: Apache-2.0
// Includes the optional parts of this build that connect processes: UCX and PMIx. Each registers itself.
#pragma once

#if __has_include(<replicator/with/ucx.hpp>)
#include <replicator/with/ucx.hpp>
#endif
#if __has_include(<replicator/with/pmix.hpp>)
#include <replicator/with/pmix.hpp>
#endif
