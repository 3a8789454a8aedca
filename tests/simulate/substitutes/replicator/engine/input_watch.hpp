// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: no input is slow.
#pragma once

#include <chrono>

namespace replicator::detail {

class InputWatch {
 public:
  explicit InputWatch(std::chrono::milliseconds) {}
};

}  // namespace replicator::detail
