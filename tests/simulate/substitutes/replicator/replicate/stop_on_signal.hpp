// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: the signal that the simulated process has received.
#pragma once

#include "../../../shard_oracle.hpp"

namespace replicator {

struct StopOnSignal {
  static int received() { return simulate::signal_of_this_process(); }
};

}  // namespace replicator
