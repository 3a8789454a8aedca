// SPDX-License-Identifier: Apache-2.0
// Instantiates the collectives alone: World.
#pragma once

#include <replicator/world/open_world.hpp>

namespace replicator {

REPLICATOR_TEMPLATE std::unique_ptr<detail::WorldImplementation> detail::open_world<>(const Processes*, const WorldOptions&);

}  // namespace replicator
