// SPDX-License-Identifier: Apache-2.0
// What connects processes, as far as this build has it: each part registers itself.
#pragma once

#if __has_include(<replicator/with/ucx.hpp>)
#include <replicator/with/ucx.hpp>
#endif
#if __has_include(<replicator/with/crypto.hpp>)
#include <replicator/with/crypto.hpp>
#endif
#if __has_include(<replicator/with/pmix.hpp>)
#include <replicator/with/pmix.hpp>
#endif
