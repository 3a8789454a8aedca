// SPDX-License-Identifier: Apache-2.0
// On the include path only of targets that link replicator::ucx; replicator.hpp looks for it.
#pragma once

#include <replicator/collectives/connect/ucx_transport.hpp>
