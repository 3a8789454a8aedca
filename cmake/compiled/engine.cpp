// SPDX-License-Identifier: Apache-2.0
// A unit of replicator::compiled: the engines. They call all other units and share most of their own code, hence a
// single unit.
#define REPLICATOR_TEMPLATE extern template
#include "collectives.hpp"
#include "elastic_job.hpp"
#include "files.hpp"
#include "graphs.hpp"
#include "job.hpp"
#include "resolve.hpp"
#include "runtime.hpp"
#include "safetensors.hpp"
#include "see.hpp"
#undef REPLICATOR_TEMPLATE

#include <replicator/engine/host_engine.hpp>

#if __has_include(<replicator/async/async_engine.hpp>)
#include <replicator/async/async_engine.hpp>
#endif
#if __has_include(<replicator/elastic/elastic_engine.hpp>)
#include <replicator/elastic/elastic_engine.hpp>
#endif
